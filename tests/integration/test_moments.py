"""`--algorithm moments`: workers send one sum and leave; the server trains a generator on it."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mdgan.data.dataset_file import load
from mdgan.families.moments.message import CONSTANT
from mdgan.gan.randomness import derive_seed
from tests.accounts import charges_in
from tests.claims.registry import claim
from tests.processes import (
    MDGAN,
    Finished,
    check_refused,
    ended_well,
    finish,
    generator_bytes,
    read_events,
    run,
    run_cleanly,
    run_here,
    start,
    wait_until,
)

SMALL = [
    *("train", "--algorithm", "moments", "--architecture", "md-gan-mlp", "--width", "32"),
    *("--batch-size", "20", "--iterations", "12", "--threads", "1", "--sample-interval", "0"),
    *("--eval-interval", "0", "--set", "num_features=100"),
]
MEMORY = ["--transport", "memory"]
PRIVATE = ["--dp-epsilon", "3", "--dp-delta", "1e-4"]


def told_in(run_folder: Path) -> dict[str, torch.Tensor]:
    """What workers have told, from the newest checkpoint."""
    newest = max((run_folder / "checkpoints").iterdir())
    (file,) = newest.glob("server*")
    state = load_file(file)
    return {n.removeprefix("told."): t for n, t in state.items() if n.startswith("told.")}


def test_one_worker_without_noise_tells_what_a_plain_computation_gives(tmp_path: Path) -> None:
    result = run_cleanly(tmp_path, *SMALL, *MEMORY, "--world-size", "2", "--out", "one")
    ended_well(result, tmp_path / "one")
    digits = load("digits", None).partitioner(tmp_path)
    every = digits.images(torch.arange(len(digits)))
    random = torch.Generator().manual_seed(derive_seed(0, "features"))
    frequencies = torch.randn(50, 64, generator=random).double().numpy() / (0.5 * 8)
    expected = np.zeros((10, 101))
    for image, c in zip(every.flatten(1).double().numpy(), digits.labels, strict=True):
        waves = np.concatenate([np.cos(frequencies @ image), np.sin(frequencies @ image)])
        expected[int(c)] += [CONSTANT, *(waves * np.sqrt((1 - CONSTANT**2) / 50))]
    outcome = told_in(tmp_path / "one")
    number = len(digits)
    np.testing.assert_allclose(outcome["sums"].numpy() / number, expected / number, atol=1e-6)
    assert int(outcome["samples"]) == number


def test_any_layout_and_secure_sums_give_the_same_bits(tmp_path: Path) -> None:
    layouts = {
        "here": MEMORY,
        "apart": ["--workers-per-host", "1"],
        "secure": [*MEMORY, "--workers-per-host", "1", "--secure-aggregation"],
    }
    results = {}
    for name, flags in layouts.items():
        begin = run_here if "--transport" in flags else run
        result = begin(*SMALL, "--world-size", "6", *flags, "--out", name, cwd=tmp_path)
        results[name] = ended_well(result, tmp_path / name)
    assert len(set(results.values())) == 1, {name: hash(one) for name, one in results.items()}


@claim("tells-once", "a worker tells one noisy sum of its samples' features, and leaves.")
@claim("told-once", "The identical question is free")
def test_workers_tell_once_and_go_home_and_training_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    flags = [*SMALL, *PRIVATE, "--world-size", "4", "--dp-ledger", "ledger", "--out", "run"]
    result = run(*flags, "--workers-per-host", "1", cwd=tmp_path)
    ended_well(result, tmp_path / "run")
    for rank in (1, 2, 3):
        assert f"rank {rank} has told all that it tells" in result.errors
    assert [(c.rate, c.steps) for c in charges_in(tmp_path / "ledger")] == [(1.0, 1)] * 3
    spent = read_events(tmp_path / "run", "epsilon")[-1]["epsilon"]
    assert all(2.9 < epsilon <= 3 for epsilon in spent.values())
    before, sums = charges_in(tmp_path / "ledger"), told_in(tmp_path / "run")["sums"]
    # What was asked for is told again, and nothing else is.
    again = run_cleanly(tmp_path, *flags[:-1], "again")
    ended_well(again, tmp_path / "again")
    assert torch.equal(told_in(tmp_path / "again")["sums"], sums)
    assert charges_in(tmp_path / "ledger") == before
    other = run_cleanly(tmp_path, *flags[:-1], "other", "--set", "num_features=50")
    assert other.status, other
    assert "have told other sums with this epsilon before" in other.errors
    stronger = run_cleanly(tmp_path, *flags[:-1], "other", "--dp-epsilon", "2.9")
    check_refused(stronger, "have spent", "give more", lines=1)
    assert charges_in(tmp_path / "ledger") == before


@claim("tells-once", "What the server does afterwards follows from the sums, and spends nothing.")
def test_a_run_that_goes_on_asks_nobody_and_costs_nothing(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    flags = [*SMALL, *PRIVATE, *MEMORY, "--world-size", "4", "--dp-ledger", "ledger"]
    ended_well(run_cleanly(tmp_path, *flags, "--out", "run"), tmp_path / "run")
    before, sums = charges_in(tmp_path / "ledger"), told_in(tmp_path / "run")["sums"]
    result = run_cleanly(tmp_path, "train", "--resume", "run", "--iterations", "20")
    ended_well(result, tmp_path / "run", 20)
    assert charges_in(tmp_path / "ledger") == before
    assert torch.equal(told_in(tmp_path / "run")["sums"], sums)


def checkpoints_with_sums(run_folder: Path) -> list[Path]:
    return [p for p in run_folder.glob("checkpoints/*/manifest.json") if int(p.parent.name) > 0]


def test_a_run_that_is_killed_goes_on_with_what_was_told(tmp_path: Path) -> None:
    """A checkpoint is made as soon as workers have told, however rare checkpoints are."""
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    flags = [*SMALL, *PRIVATE, "--world-size", "4", "--dp-ledger", "ledger", "--out", "cut"]
    long = ["--checkpoint-interval", "1000000", "--iterations", "10000000"]
    process = start([*MDGAN, *flags, *long], tmp_path)
    wait_until(lambda: bool(checkpoints_with_sums(tmp_path / "cut")), "a checkpoint")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    sums, before = told_in(tmp_path / "cut")["sums"], charges_in(tmp_path / "ledger")
    (saved,) = checkpoints_with_sums(tmp_path / "cut")
    reached = int(saved.parent.name) + 5
    result = run("train", "--resume", "cut", "--iterations", str(reached), cwd=tmp_path)
    ended_well(result, tmp_path / "cut", reached)
    assert torch.equal(told_in(tmp_path / "cut")["sums"], sums)
    assert charges_in(tmp_path / "ledger") == before


def test_sums_of_other_features_are_not_gone_on_with(tmp_path: Path) -> None:
    ended_well(
        run_cleanly(tmp_path, *SMALL, *MEMORY, "--world-size", "3", "--out", "run"),
        tmp_path / "run",
    )
    before = generator_bytes(tmp_path / "run")
    more = ["train", "--resume", "run", "--iterations", "20", "--set", "kernel_width=0.7"]
    check_refused(run_cleanly(tmp_path, *more), "kernel_width", "begin a new run")
    assert generator_bytes(tmp_path / "run") == before


@claim(
    "shared-noise",
    "Each of M certificates adds noise of variance σ²/M, all workers of its host together",
)
def test_with_secure_sums_all_workers_share_the_noise(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    flags = [*SMALL, *PRIVATE, *MEMORY, "--world-size", "6", "--workers-per-host", "1"]
    variances = {}
    for name, secure in (("plain", []), ("secure", ["--secure-aggregation"])):
        ledger = ["--dp-ledger", f"ledger-{name}", "--out", name]
        ended_well(run_cleanly(tmp_path, *flags, *secure, *ledger), tmp_path / name)
        variances[name] = float(told_in(tmp_path / name)["variance"])
        charged = {charge.noise for charge in charges_in(tmp_path / f"ledger-{name}")}
        if name == "secure":  # the sum has the noise that each is charged for
            (noise,) = charged
            assert variances[name] == pytest.approx(noise**2)
    assert variances["plain"] == pytest.approx(5 * variances["secure"])


def apart(folder: Path, port: int, *flags: str) -> list[Finished]:
    """Four machines and a server's; the first machine carries three of six workers in one host."""
    assert run_here("credentials", "init", "authority", cwd=folder).status == 0
    ranks = {"main": "0", "three": "1,2,3", "four": "4", "five": "5", "six": "6"}
    same = [*MDGAN, *SMALL, *PRIVATE, "--world-size", "7", "--master-port", str(port)]
    same += ["--secure-aggregation", "--workers-per-host", "3", "--set", "patience=1", *flags]
    processes = []
    for name, own in ranks.items():
        may = ["--role", "server"] if name == "main" else ["--ranks", own]
        issued = run_here("credentials", "issue", "authority", name, *may, cwd=folder)
        assert issued.status == 0, issued
        shows = ["--credentials", f"authority/{name}.cred", "--dp-ledger", f"ledger-{name}"]
        processes.append(start([*same, "--ranks", own, *shows, "--out", name], folder))
    return [finish(process) for process in processes]


@pytest.mark.slow
def test_machines_with_certificates_of_their_own_share_the_noise(tmp_path: Path, port: int) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    results = apart(tmp_path, port, "--require", "noise-sharers>=4,dp,epsilon<=3")
    assert [result.status for result in results] == [0] * 5, results
    ended_well(results[0], tmp_path / "main")
    charged = {c.noise for n in ("three", "four") for c in charges_in(tmp_path / f"ledger-{n}")}
    (noise,) = charged
    told = told_in(tmp_path / "main")
    assert float(told["variance"]) == pytest.approx(noise**2)
    plain = [*SMALL, *MEMORY, "--world-size", "7", "--out", "plain"]
    ended_well(run_cleanly(tmp_path, *plain), tmp_path / "plain")
    added = told["sums"].double() - told_in(tmp_path / "plain")["sums"].double()
    assert float(added.std()) == pytest.approx(noise, rel=0.12)


@pytest.mark.slow
def test_machines_that_want_more_certificates_than_there_are_tell_nothing(
    tmp_path: Path, port: int
) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    results = apart(tmp_path, port, "--require", "noise-sharers>=5")
    assert all(result.status for result in results), results
    assert "all but 4 of the 5 hosts that a sum takes" in results[0].errors
    for name in ("three", "four", "five", "six"):
        assert not any(charge.steps for charge in charges_in(tmp_path / f"ledger-{name}"))


@claim(
    "one-file",
    "A credentials file that all machines share is one certificate, so each host adds all of "
    "the noise",
)
def test_a_file_that_all_share_shares_no_noise(tmp_path: Path) -> None:
    """Each host adds all of it, which a warning says."""
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    assert run_here("credentials", "new", "run.cred", cwd=tmp_path).status == 0
    flags = [*SMALL, *PRIVATE, *MEMORY, "--world-size", "5", "--workers-per-host", "1"]
    flags += ["--secure-aggregation", "--credentials", "run.cred", "--dp-ledger", "ledger"]
    result = run_cleanly(tmp_path, *flags, "--out", "run")
    ended_well(result, tmp_path / "run")
    assert "and each host adds all of the noise; against that" in result.errors
    (noise,) = {charge.noise for charge in charges_in(tmp_path / "ledger")}
    assert float(told_in(tmp_path / "run")["variance"]) == pytest.approx(4 * noise**2)
    many = ["--set", "noise_sharers=4"], ["--require", "noise-sharers>=2"]
    for asked in many:
        check_refused(run_cleanly(tmp_path, *flags, *asked), " ".join(asked), "issue", lines=1)


def test_samples_with_a_past_have_all_the_noise_that_they_are_charged_for(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    shared = [*SMALL, *MEMORY, "--workers-per-host", "1", "--secure-aggregation", *PRIVATE[2:]]
    shared += ["--dp-ledger", "ledger", "--partition", "iid", "--world-size", "5"]
    first = [
        *SMALL,
        *PRIVATE[2:],
        "--dp-epsilon",
        "2",
        "--dp-ledger",
        "ledger",
        "--world-size",
        "5",
    ]
    ranks = [*first, "--transport", "memory"]
    ended_well(run_cleanly(tmp_path, *ranks, "--out", "first"), tmp_path / "first")
    later = run_cleanly(tmp_path, *shared, "--dp-epsilon", "4", "--out", "later")
    ended_well(later, tmp_path / "later")
    noise = charges_in(tmp_path / "ledger")[-1].noise
    assert float(told_in(tmp_path / "later")["variance"]) == pytest.approx(noise**2)


def test_more_workers_than_there_are_cannot_share_noise(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    flags = [*SMALL, *PRIVATE, *MEMORY, "--world-size", "5", "--workers-per-host", "1"]
    arguments = ["--secure-aggregation", "--set", "noise_sharers=9"]
    check_refused(
        run_cleanly(tmp_path, *flags, *arguments), "noise_sharers=9", "4 workers", lines=1
    )


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--dp-clip", "1"], ["--dp-clip 1", "leave it out"]),
        (
            ["--audit-canaries", "5", "--secure-aggregation", "--workers-per-host", "1"],
            ["--audit-canaries 5", "a part of the noise"],
        ),
        (["--audit-canaries", "900"], ["--audit-canaries 900", "room for 126"]),
        (["--set", "num_features=0"], ["num_features=0"]),
        (["--set", "kernel_width=0"], ["kernel_width=0"]),
    ],
    ids=str,
)
def test_what_has_no_use_is_refused(tmp_path: Path, flags: list[str], parts: list[str]) -> None:
    result = run_cleanly(tmp_path, *SMALL, *MEMORY, "--world-size", "4", *PRIVATE, *flags)
    check_refused(result, *parts, lines=1)


def test_models_without_classes_learn_too(tmp_path: Path) -> None:
    flags = [*("train", "--algorithm", "moments"), *SMALL[7:], *MEMORY, "--world-size", "3"]
    ended_well(run_cleanly(tmp_path, *flags, "--out", "run"), tmp_path / "run")
    assert told_in(tmp_path / "run")["sums"].shape == (1, 101)


@claim("dry-run", "--dry-run spends nothing.")
def test_runs_with_noise_in_every_step_name_what_does_better(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    flags = ["train", *MEMORY, "--world-size", "4", *PRIVATE, "--dry-run", "--batch-size", "16"]
    result = run_cleanly(tmp_path, *flags, "--dp-ledger", "ledger")
    assert result.status == 0, result
    assert "a worker here holds 479 samples, too few for noise in every step" in result.errors
    assert "--algorithm moments" in result.errors
    noise = result.output.partition("noise of differential privacy")[2]
    assert "steps, which draw a sample with q 0.033 (rank 2, 479 samples)" in noise
    assert "16 gradients of length 1 against noise of length" in noise
    assert "noise in every step         FID" in noise
    assert "--algorithm moments         FID" in noise
    assert not (tmp_path / "ledger").exists(), "nothing is spent"
    once = run_cleanly(tmp_path, *flags, "--dp-ledger", "ledger", "--algorithm", "moments")
    assert ", once, in a sum of all samples (rank 2, 479 samples)" in once.output
    assert "in every step" not in once.output + once.errors


def test_there_are_no_steps_to_plan(tmp_path: Path) -> None:
    result = run_here("plan", "--algorithm", "moments", "--world-size", "4", cwd=tmp_path)
    check_refused(result, "--algorithm moments", "workers answer once", lines=1)


NETWORK = """
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(SEED)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.Tanh())

    def forward(self, images):
        return self.layers(images)
"""


def test_features_of_a_network_are_told_instead(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK.replace("SEED", "1"))
    flags = [*SMALL, "--world-size", "4", "--set", "feature_network=net.py:Small"]
    ended_well(run_cleanly(tmp_path, *flags, *MEMORY, "--out", "run"), tmp_path / "run")
    result = told_in(tmp_path / "run")["sums"]
    assert result.shape == (10, 31)
    assert bool((result[:, 1:].norm(dim=1) <= result[:, 0] / CONSTANT).all())  # each of length 1
    apart = run(*flags, "--workers-per-host", "1", "--out", "apart", cwd=tmp_path)
    assert ended_well(apart, tmp_path / "apart") == generator_bytes(tmp_path / "run")


@pytest.mark.slow
def test_another_network_than_the_servers_is_noticed(tmp_path: Path, port: int) -> None:
    for name, seed in (("net", "1"), ("other", "2")):
        (tmp_path / f"{name}.py").write_text(NETWORK.replace("SEED", seed))
    trio = [*SMALL, "--world-size", "3", "--master-port", str(port), "--set", "patience=1"]
    ranks = [
        start([*MDGAN, *trio, "--ranks", r, "--set", f"feature_network={name}.py:Small"], tmp_path)
        for r, name in (("0", "net"), ("1", "net"), ("2", "other"))
    ]
    results = [finish(process) for process in ranks]
    assert (
        "--set feature_network: not the server's file; give every rank the same"
        in results[2].errors
    )
    assert all("Traceback" not in result.errors for result in results)


def test_a_network_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    result = run_cleanly(tmp_path, *SMALL, *MEMORY, "--set", "feature_network=none.pt")
    check_refused(result, "--set feature_network none.pt", "cannot be read", lines=1)


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        ("nn.BatchNorm1d(30, track_running_stats=False)", "(layer layers.2, BatchNorm1d)"),
        ("nn.Softmax(0)", "(layer layers.2, Softmax)"),
    ],
)
@claim(
    "judges-alone",
    "A discriminator or feature network must judge each sample by itself; mdgan tries that "
    "before it starts, and refuses one that does not.",
)
def test_a_network_that_judges_samples_by_each_other_is_refused(
    tmp_path: Path, layer: str, says: str
) -> None:
    """One sample would change what all others add."""
    mixing = NETWORK.replace("SEED", "1").replace("nn.Tanh()", layer)
    (tmp_path / "net.py").write_text(mixing)
    arguments = ["--set", "feature_network=net.py:Small", "--world-size", "4"]
    result = run_cleanly(tmp_path, *SMALL, *MEMORY, *arguments, "--out", "run")
    check_refused(result, "--set feature_network net.py:Small: ", says, lines=1)
