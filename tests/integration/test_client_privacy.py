"""`--dp-unit client` in whole runs: the same bits anywhere, budgets, and refusals."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mdgan.data.dataset_file import load
from mdgan.privacy.accountant import PrivacyCharge, PrivacyHistory, best_order, epsilon_of
from tests.accounts import all_charges_in, charges_in
from tests.claims.registry import claim
from tests.integration.federated import IN_MEMORY, QUICK, train_in_memory
from tests.processes import (
    check_refused,
    ended_well,
    generator_bytes,
    read_events,
    read_status,
    run_here,
)
from tests.refusals import check_refused_in_one_line

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

FL_GAN = ["--algorithm", "fl-gan", "--checkpoint-interval", "5"]
PLACED = ["--clients", "6", "--slots", "1", "--world-size", "2"]
HALF = ["--participation", "0.5"]
BOUND = ["--dp-unit", "client", "--dp-delta", "0.01"]
NOISE = [*BOUND, "--dp-noise", "1", "--dp-clip", "0.5"]
SAME = [*FL_GAN, *HALF, *NOISE]
OWN_RANKS = ["--world-size", "7", "--set", "client_state=fresh"]


@pytest.mark.usefixtures("known_noise")
def test_it_does_not_matter_where_clients_are_trained(tmp_path: Path) -> None:
    placed = train_in_memory(tmp_path, "placed", *SAME, *PLACED)
    assert train_in_memory(tmp_path, "home", *SAME, *OWN_RANKS, "--workers-per-host", "1") == placed
    assert train_in_memory(tmp_path, "other-noise", *SAME, *PLACED, "--seed", "1") != placed


@pytest.mark.parametrize("algorithm", ["fl-gan", pytest.param("fegan", marks=pytest.mark.slow)])
def test_secure_sums_are_plain_sums(tmp_path: Path, algorithm: str) -> None:
    same = ["--algorithm", algorithm, "--participation", "1", "--dp-unit", "client"]
    same += ["--dp-noise", "0", "--dp-clip", "0.5", "--world-size", "5", "--workers-per-host", "1"]
    assert train_in_memory(tmp_path, "secure", *same, "--secure-aggregation") == train_in_memory(
        tmp_path, "plain", *same
    )


@claim(
    "client-shared",
    "With --secure-aggregation certificates share the noise, and nobody need trust the server "
    "with it",
)
def test_with_secure_sums_clients_share_the_noise_and_trust_no_server(tmp_path: Path) -> None:
    """One round of updates that are cut to next to nothing: what is left is the noise."""
    hidden = [*IN_MEMORY, *FL_GAN, "--dp-unit", "client", "--world-size", "5", "--dp-clip", "1e-3"]
    hidden += ["--workers-per-host", "1", "--iterations", "2", "--round-iterations", "2"]
    still = run_here(
        *hidden, "--dp-noise", "0", "--dp-clip", "1e-9", "--out", "still", cwd=tmp_path
    )
    ended_well(still, tmp_path / "still", 2)
    noisy = [*hidden, "--dp-noise", "4", "--dp-delta", "0.01", "--dp-ledger", "ledger"]
    noisy += ["--require", "dp,delta<=0.01", "--out", "noisy"]
    refused = run_here(*noisy, cwd=tmp_path)
    check_refused(refused, "the server adds the noise")
    ended_well(run_here(*noisy, "--secure-aggregation", cwd=tmp_path), tmp_path / "noisy", 2)
    charges = charges_in(tmp_path / "ledger")
    assert [(charge.noise, charge.rate, charge.steps) for charge in charges] == [(4.0, 1.0, 1)] * 5
    before, after = (
        load_file(tmp_path / name / "generator.safetensors") for name in ("still", "noisy")
    )
    weights = [name for name in after if name.endswith("weight")]
    noise = torch.cat([(after[name] - before[name]).flatten() for name in weights])
    assert float(noise.std()) == pytest.approx(4.0 * 1e-3 / 4, rel=0.05), "σC / qN"


def test_more_clients_than_there_are_cannot_share_noise(tmp_path: Path) -> None:
    few = [*IN_MEMORY, *FL_GAN, *NOISE, "--world-size", "5", "--workers-per-host", "1"]
    few += ["--secure-aggregation", "--set", "noise_sharers=9"]
    check_refused(run_here(*few, cwd=tmp_path), "noise_sharers=9: there are 4 workers", lines=1)


@pytest.mark.slow
def test_without_noise_and_bound_it_is_a_run_without_privacy(tmp_path: Path) -> None:
    same = [*FL_GAN, *HALF, *PLACED]
    bare = ["--dp-unit", "client", "--dp-noise", "0", "--dp-clip", "inf", "--dp-disclose", "losses"]
    private, public = (
        (train_in_memory(tmp_path, name, *same, *flags), read_events(tmp_path / name, "round"))
        for name, flags in (("private", bare), ("public", ["--sampling", "poisson"]))
    )
    assert private[0] == public[0]
    assert [{**row, "seconds": 0} for row in private[1]] == [
        {**row, "seconds": 0} for row in public[1]
    ]
    sizes = [len(row["took_part"]) for row in public[1]]
    assert len(sizes) == 3


@pytest.mark.usefixtures("known_noise")
def test_a_run_that_stopped_goes_on_bit_by_bit_and_every_round_counts(tmp_path: Path) -> None:
    same = [*FL_GAN, *HALF, *PLACED, *NOISE]
    # Both go on with the account of an earlier run.
    train_in_memory(tmp_path, "first", *same, "--dp-ledger", "secrets")
    for copy in ("whole", "cut"):
        shutil.copytree(tmp_path / "secrets", tmp_path / copy)
    whole = train_in_memory(tmp_path, "whole-run", *same, "--dp-ledger", "whole")
    cut = run_here(
        *(*QUICK, "--transport", "memory", *same, "--iterations", "5", "--dp-ledger", "cut"),
        *("--out", "cut-run"),
        cwd=tmp_path,
    )
    assert cut.status == 0, cut
    again = ["train", "--resume", "cut-run", "--iterations", "12"]
    shutil.move(tmp_path / "cut", tmp_path / "moved")
    (lost := run_here(*again, cwd=tmp_path))
    assert lost.status == 2, lost
    assert "knows of 0 rounds of the clients of digits, and this run alone has had" in lost.errors
    shutil.rmtree(tmp_path / "cut")
    shutil.move(tmp_path / "moved", tmp_path / "cut")
    ended_well(run_here(*again, cwd=tmp_path), tmp_path / "cut-run")
    assert generator_bytes(tmp_path / "cut-run") == whole
    charges = [all_charges_in(tmp_path / name) for name in ("cut", "whole")]
    assert charges[0] == charges[1] == (PrivacyCharge(1.0, 0.5, 6),)
    events = [row["epsilon"]["0"] for row in read_events(tmp_path / "whole-run", "epsilon")]
    first = (PrivacyHistory(best_order(PrivacyCharge(1.0, 0.5, 3), 0.01), ()),)
    known = [epsilon_of(PrivacyCharge(1.0, 0.5, 3 + n), 0.01, "rdp", first) for n in (1, 2, 3)]
    assert events == [round(epsilon, 4) for epsilon in known]


@pytest.mark.slow  # hosts and their accounts by themselves: tests/unit/privacy/test_clients.py
def test_clients_are_known_by_their_samples_and_not_by_the_name_of_the_data(tmp_path: Path) -> None:
    (tmp_path / "sets").mkdir()
    shutil.copy(load("digits", None).path, tmp_path / "sets" / "renamed.py")
    renamed = ["--dataset", "renamed", "--datasets-dir", "sets"]
    ledger = ["--dp-ledger", "ledger", "--workers-per-host", "3"]
    arguments = [*IN_MEMORY, *FL_GAN, *HALF, *BOUND, *OWN_RANKS, *ledger]
    assert run_here(*arguments, "--dp-epsilon", "8", "--out", "first", cwd=tmp_path).status == 0
    assert [charge.steps for charge in charges_in(tmp_path / "ledger")] == [3, 3, 3], (
        "the server's account of the data's name, and those of two hosts"
    )
    again = run_here(
        *(*arguments, *renamed, "--seed", "1", "--dp-epsilon", "8", "--out", "again"), cwd=tmp_path
    )
    assert again.status == 2
    assert again.errors.count("\n") == 1
    assert "--dp-epsilon 8: the samples of rank 1 have spent 8 before" in again.errors
    # With more, the server, which has no account of that name, plans with what hosts tell it.
    more = [*arguments, *renamed, "--seed", "1", "--dp-epsilon", "12", "--out", "more"]
    assert run_here(*more, cwd=tmp_path).status == 0
    events = [row["epsilon"]["0"] for row in read_events(tmp_path / "more", "epsilon")]
    assert 8 < events[0] < events[-1] <= 12
    assert events[-1] > 11.9


def test_it_ends_when_the_budget_is_spent_and_names_nobody(tmp_path: Path) -> None:
    arguments = [*QUICK, "--transport", "memory", *FL_GAN, *HALF, *PLACED, *BOUND]
    arguments += ["--dp-noise", "1", "--dp-epsilon", "4", "--iterations", "60"]
    arguments += ["--round-iterations", "2"]
    result = run_here(*arguments, "--out", "run", cwd=tmp_path)
    assert result.status == 0, result
    events = [row["epsilon"]["0"] for row in read_events(tmp_path / "run", "epsilon")]
    known = [epsilon_of(PrivacyCharge(1.0, 0.5, n), 0.01, "rdp") for n in range(1, len(events) + 2)]
    assert events == [round(epsilon, 4) for epsilon in known[:-1]]
    assert known[-2] <= 4 < known[-1], "no round less, and none more"
    status = read_status(tmp_path / "run")
    assert (status["state"], status["iteration"]) == ("finished", 2 * len(events))
    assert "the clients have spent their privacy budget ε = " in result.errors
    assert (tmp_path / "run" / "checkpoints" / f"{2 * len(events):07d}").is_dir()
    (attendance,) = read_events(tmp_path / "run", "attendance")
    assert attendance["workers"] == {}
    for row in read_events(tmp_path / "run", "round"):
        names = ("asked", "took_part", "weights", "iterations", "batch_sizes")
        assert not any(row[name] for name in names)
    for row in read_events(tmp_path / "run", "placement"):
        assert not any(slot.get("clients") or slot["work"] for slot in row["slots"])
    (begun,) = read_events(tmp_path / "run", "holdings")
    assert all(
        held == {"samples": held["samples"], "classes": []} for held in begun["workers"].values()
    )
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [row for line in lines if "generator_loss" in (row := json.loads(line))]
    assert rows
    assert all(row["generator_loss"] is row["discriminator_loss"] is None for row in rows)
    assert not any("by_worker" in row for row in rows)
    again = run_here(*arguments, "--out", "again", cwd=tmp_path)
    assert again.status == 2
    assert again.errors.count("\n") == 1
    assert "too small for one step of the clients of digits" in again.errors


DP = [*BOUND, "--dp-epsilon", "8"]
REFUSED = [
    ([*DP[:2], "--dp-epsilon", "8"], ["--dp-epsilon 8", "the number of clients"]),
    ([*DP, "--dp-clip", "inf"], ["--dp-clip inf", "each client"]),
    ([*DP, "--audit-canaries", "9"], ["--audit-canaries 9", "without --dp-unit client"]),
    ([*DP, "--require", "dp"], ["--require dp", "the server adds the noise"]),
    ([*DP, "--algorithm", "mdgan"], ["--dp-unit client", "mdgan"]),
    ([*DP, "--algorithm", "paragan"], ["--dp-", "paragan"]),
    ([*DP, "--partition", "none"], ["ranks 1 and 2 hold the same samples"]),
    ([*DP, "--dp-noise", "0.1"], ["--dp-epsilon 8", "too small for one step of the clients"]),
]
QUICK_ONES = 6
"""Of these need neither data nor an accountant."""


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        pytest.param(*case, id=" ".join(case[0]), marks=pytest.mark.slow if n >= QUICK_ONES else ())
        for n, case in enumerate(REFUSED)
    ],
)
def test_it_is_refused_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    says: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    named = [] if "--algorithm" in flags else ["--algorithm", "fl-gan"]
    check_refused_in_one_line(capsys, [*named, *flags], says)
