"""`--secure-aggregation`: the same generator, and a server that sees only sums."""

import os
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file

from mdgan.families.federated.server import Cohort
from mdgan.messages import Kind, Message
from mdgan.transport.memory import MemoryHostTransport
from tests.claims.registry import claim
from tests.known_noise import run_with_known_noise
from tests.marks import mostly_slow
from tests.processes import (
    MDGAN,
    Finished,
    ended_well,
    finish,
    read_events,
    run,
    run_here,
    start,
    training,
    wait_until,
)

SMALL = [
    *("train", "--world-size", "8", "--workers-per-host", "1", "--threads", "1"),
    *("--batch-size", "4", "--sample-interval", "0", "--checkpoint-interval", "0"),
]
FAMILIES = {
    "mdgan": ["--iterations", "6", "--swap-interval", "2", "--kappa", "2"],
    "fl-gan": ["--algorithm", "fl-gan", "--iterations", "6", "--round-iterations", "2"],
    "fegan": [
        *("--algorithm", "fegan", "--iterations", "6", "--round-iterations", "2"),
        *("--participation", "0.6", "--partition", "shards:2"),
    ],
}
ANSWERS = ("FEEDBACK", "UPDATE")
PRIVATE = ["--dp-noise", "1.5", "--dp-delta", "0.0001"]


@pytest.mark.parametrize("family", mostly_slow(FAMILIES, ["mdgan", "fegan"]))
@claim("sums-alone", "with the same bits")
@claim(
    "opens-sums-alone",
    "The generator is, bit for bit, that of the same run without, if κ is the same and no "
    "host or sum is left out or cut.",
)
def test_the_generator_is_the_same(tmp_path: Path, family: str) -> None:
    results = []
    for name, secure in (("plain", []), ("secure", ["--secure-aggregation"])):
        flags = [*SMALL, *FAMILIES[family], "--transport", "memory", *secure, "--out", name]
        results.append(ended_well(run_here(*flags, cwd=tmp_path), tmp_path / name, 6))
    assert results[0] == results[1]


def test_weights_that_clients_keep_to_themselves_are_those_in_the_clear(tmp_path: Path) -> None:
    """The round that follows, and one that goes on from a checkpoint, ask for no classes again."""
    results: dict[str, dict[str, torch.Tensor]] = {}
    flags = [*SMALL, *FAMILIES["fegan"], "--sampling", "random", "--transport", "memory"]
    secure = [*flags, "--secure-aggregation"]
    for name, i, given in (
        ("plain", 2, [*flags, "--out", "plain"]),
        ("secure", 2, [*secure, "--checkpoint-interval", "2", "--out", "secure"]),
        ("secure", 6, ["train", "--resume", "secure"]),
        ("whole", 6, [*secure, "--out", "whole"]),
    ):
        asks = nullcontext() if "--resume" not in given else patch.object(Cohort, "learn_classes")
        with asks as asked:
            ended_well(run_here(*given, "--iterations", str(i), cwd=tmp_path), tmp_path / name, i)
        assert asked is None or not asked.called
        results[f"{name} {i}"] = load_file(tmp_path / name / "generator.safetensors")
    for name, plain in results["plain 2"].items():
        torch.testing.assert_close(results["secure 2"][name], plain, rtol=2.0**-23, atol=0.0)
        assert torch.equal(results["secure 6"][name], results["whole 6"][name])


def test_the_first_line_tells_of_fewer_batches_where_sums_have_too_few_hosts(
    tmp_path: Path,
) -> None:
    flags = [*SMALL, "--transport", "memory", "--iterations", "1", "--secure-aggregation"]
    for world_size, more, said in (
        ("5", (), "κ = 1 batch of 4, which workers both judge and train on, 4 workers"),
        ("8", (), "κ = 2 batches of 4, 7 workers"),
        (
            "11",
            ("--participation", "0.5"),
            "κ = 1 batch of 4, which workers both judge and train on, 10 workers",
        ),
    ):
        options = [*flags, "--world-size", world_size, *more, "--out", world_size]
        assert f"MD-GAN (Hardy et al. 2019): {said}" in run_here(*options, cwd=tmp_path).errors


@pytest.mark.slow
@pytest.mark.usefixtures("known_noise")
@pytest.mark.parametrize("family", ["mdgan", "fl-gan"])
def test_the_generator_is_the_same_beside_differential_privacy(tmp_path: Path, family: str) -> None:
    """Here and in processes."""
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    flags, results = [*SMALL, *FAMILIES[family], *PRIVATE], []
    for name, secure in (("plain", []), ("secure", ["--secure-aggregation"])):
        here = run_here(*flags, *secure, "--transport", "memory", "--out", name, cwd=tmp_path)
        results.append(ended_well(here, tmp_path / name, 6))
    secure_flags = [*flags, "--secure-aggregation", "--out", "apart"]
    apart = run_with_known_noise(*secure_flags, cwd=tmp_path)
    results.append(ended_well(apart, tmp_path / "apart", 6))
    assert results[0] == results[1] == results[2]
    spent = {n for row in read_events(tmp_path / "apart", "epsilon") for n in row["epsilon"]}
    assert sorted(spent) == [str(n) for n in range(1, 8)]


@claim("sums-alone", "the server gets sums of three hosts or more instead of answers")
@claim(
    "opens-sums-alone",
    "With --secure-aggregation hosts mask their answers, so that the server opens sums alone",
)
def test_all_that_the_server_gets_of_an_answer_is_masked(tmp_path: Path) -> None:
    """What hosts answer without masks, in the same run, occurs nowhere in what they send with."""
    answers: dict[bool, dict[tuple[int, int], Message]] = {False: {}, True: {}}
    original = MemoryHostTransport.send
    for secure in (False, True):

        def send(link: MemoryHostTransport, message: Message, secure: bool = secure) -> int:
            assert message.kind in (*ANSWERS, Kind.READY, Kind.REAL, Kind.SPANS, Kind.LEAVE)
            if message.kind in ANSWERS and "revealed.0" not in message.tensors:
                answers[secure][link.host, message.iteration] = message
            return original(link, message)

        flags = [*SMALL, "--swap-interval", "0", "--iterations", "4", "--kappa", "1"]
        flags += [*["--secure-aggregation"] * secure, "--transport", "memory", "--out", "run"]
        (folder := tmp_path / str(secure)).mkdir()
        with patch.object(MemoryHostTransport, "send", send):
            ended_well(run_here(*flags, cwd=folder), folder / "run", 4)
    assert answers[False].keys() == answers[True].keys()
    assert len(answers[True]) == 7 * 4
    for place, plain in answers[False].items():
        masked = answers[True][place]
        assert masked.tensors.keys() == {"masked.0", "shares.0"}
        assert not any("loss" in name for name in masked.fields)
        sent = masked.tensors["masked.0"]
        steps = (plain.tensors["answers.values"].double() * 2**50).round().long().flatten()
        assert not (sent[: len(steps)] == steps).any()
        assert (sent.double().abs() > 2**55).double().mean() > 0.9  # evenly spread: 0.996


@pytest.mark.parametrize(
    ("family", "phase"),
    [("mdgan", "feedback"), pytest.param("fl-gan", "send", marks=pytest.mark.slow)],
)
def test_a_host_drops_out(tmp_path: Path, family: str, phase: str) -> None:
    """Those that are left take the masks off; the generator is that of plain sums of theirs."""
    results = []
    for name, secure in (("plain", []), ("secure", ["--secure-aggregation"])):
        flags = [*SMALL, *FAMILIES[family], *secure, "--out", name]
        faults = {"MDGAN_FAULTS": f"host-3:kill@{phase}:4"}
        with patch.dict(os.environ, faults):
            run(*flags, cwd=tmp_path)
        assert [row["workers"] for row in read_events(tmp_path / name, "lost")] == [[3]]
        results.append((tmp_path / name / "generator.safetensors").read_bytes())
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["receive:4", "real-half:3"])
def test_a_host_drops_out_that_waits_for_a_question(tmp_path: Path, phase: str) -> None:
    """It depends on timing whether the server asks it once more, so bits are not compared.

    The last one has answered when it dies, and its shares are missing.
    """
    flags = [*SMALL, *FAMILIES["mdgan"], "--secure-aggregation", "--out", "run"]
    with patch.dict(os.environ, {"MDGAN_FAULTS": f"host-3:kill@{phase}"}):
        ended = run(*flags, cwd=tmp_path)
    ended_well(ended, tmp_path / "run", 6)
    assert [row["workers"] for row in read_events(tmp_path / "run", "lost")] == [[3]]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--world-size", "3"], "a sum of 2 worker(s) at a time"),
        (["--aggregation", "median"], "--aggregation median: with --secure-aggregation"),
        (["--wire", "feedback=topk:0.1"], "--wire feedback=topk:0.1: with --secure-aggregation"),
        (
            ["--algorithm", "fl-gan", "--wire", "models=bf16"],
            "--wire models=bf16: with --secure-aggregation",
        ),
        (["--deadline", "3x"], "--deadline 3x: with --secure-aggregation"),
        (["--updates", "arrival"], "--updates arrival: with --secure-aggregation"),
        (
            ["--set", "checkpoint_to_server=true"],
            "--set checkpoint_to_server=true: with --secure-aggregation",
        ),
        (["--stale", "1"], "--stale 1: with --secure-aggregation"),
        (["--kappa", "3"], "--kappa 3 of 7 worker(s): with --secure-aggregation"),
        (["--algorithm", "fl-gan", "--participation", "0.3"], "a sum of 2 worker(s) at a time"),
        (["--algorithm", "fl-gan", "--clients", "50"], "--clients 50: with --secure-aggregation"),
        (["--algorithm", "paragan"], "--secure-aggregation"),
        (["--workers-per-host", "4"], "2 host(s)"),
    ],
)
@claim(
    "mean-alone",
    "The server cannot refuse a single answer, so --aggregation other than mean is refused",
)
@claim(
    "refused-with",
    "It is refused with --set checkpoint_to_server=true, --deadline, --stale, --updates "
    "arrival, --clients, and --wire codecs that lose something",
)
def test_bad_input(tmp_path: Path, flags: list[str], why: str) -> None:
    options = [*SMALL, "--transport", "memory", "--secure-aggregation", *flags, "--out", "run"]
    result = run_here(*options, cwd=tmp_path)
    assert result.status == 2, result
    assert why in result.errors
    assert "Traceback" not in result.errors


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [("mdgan", "3 times in a row there was no sum"), ("moments", "it tells once alone")],
)
@claim(
    "too-few-left", "after three times in a row (30, while a spoiler is searched for) the run ends"
)
@claim("ends-in-order", "The run ends after three iterations without a sum.")
@claim(
    "ends-in-order",
    "A spoiled sum of moments or of counts of tables ends the run at once: begin anew.",
)
def test_sums_of_too_few_hosts_to_find_who_spoils_them_end_the_run_in_order(
    tmp_path: Path, algorithm: str, says: str
) -> None:
    """Of three hosts there is one sum, and workers of `moments` tell one."""

    def send(link: MemoryHostTransport, message: Message) -> int:
        if link.host == 2 and "masked.0" in message.tensors:
            noise = torch.randint_like(message.tensors["masked.0"], 256) * 2**52
            tensors = {**message.tensors, "masked.0": noise}
            message = Message(message.kind, message.iteration, message.fields, tensors)
        return original(link, message)

    original = MemoryHostTransport.send
    with patch.object(MemoryHostTransport, "send", send):
        flags = [*SMALL, "--world-size", "4", "--iterations", "6", "--transport", "memory"]
        flags += ["--algorithm", algorithm, "--secure-aggregation"]
        result = run_here(*flags, "--out", "run", cwd=tmp_path)
    assert result.status not in (0, 2)
    assert says in result.errors
    assert "does not answer the server" not in result.errors
    assert "Traceback" not in result.errors


@claim(
    "require-checked",
    "The machine checks that before it opens a link for training, and a server lets a host in "
    "only if its settings are the same.",
)
def test_a_worker_that_insists_takes_no_part_in_a_run_without(tmp_path: Path) -> None:
    options = [
        *SMALL,
        *FAMILIES["mdgan"],
        "--transport",
        "memory",
        "--require",
        "secure-aggregation",
    ]
    refused = run_here(*options, "--out", "plain", cwd=tmp_path)
    assert refused.status == 2
    assert "--require secure-aggregation: the run has no --secure-aggregation" in refused.errors
    taken = run_here(*options, "--secure-aggregation", "--dry-run", cwd=tmp_path)
    assert taken.status == 0, taken


@pytest.mark.slow
def test_a_newcomer_that_insists_takes_no_part_either(tmp_path: Path) -> None:
    running = training(tmp_path, "train", "--world-size", "3", "--iterations", "100000")
    joins = run("join", "run", "--require", "secure-aggregation", "--threads", "1", cwd=tmp_path)
    running.process.terminate()
    finish(running.process)
    assert joins.status == 2
    assert "--require secure-aggregation: the run has no --secure-aggregation" in joins.errors


def certificates(folder: Path, *names: str) -> None:
    """An authority, a server's file, and one for each host."""
    assert run_here("credentials", "init", "authority", cwd=folder).status == 0
    for name in names:
        role = ("--role", "server") if name == "main" else ("--ranks", name)
        assert run_here("credentials", "issue", "authority", name, *role, cwd=folder).status == 0


def apart(folder: Path, port: int, *flags: str) -> list[Finished]:
    """Five processes that rank 0 leads, each with its own certificate."""
    same = [*MDGAN, "train", *SMALL[1:], "--world-size", "5", "--master-port", str(port)]
    same += [*FAMILIES["mdgan"], "--kappa", "1", "--secure-aggregation", *flags]
    changes = {"0": ["main.cred", "--out", "run"], **{str(n): [f"{n}.cred"] for n in range(1, 5)}}
    processes = [
        start([*same, "--ranks", rank, "--credentials", f"authority/{file}", *others], folder)
        for rank, (file, *others) in changes.items()
    ]
    return [finish(process) for process in processes]


@pytest.mark.slow
def test_hosts_with_certificates_of_their_own(tmp_path: Path, port: int) -> None:
    """Keys are signed, parcels encrypted, and the generator is that of a plain run."""
    certificates(tmp_path, "main", "1", "2", "3", "4")
    results = apart(tmp_path, port, "--require", "secure-aggregation>=4")
    assert [result.status for result in results] == [0] * 5, results
    plain = [*SMALL, *FAMILIES["mdgan"], "--world-size", "5", "--kappa", "1", "--transport"]
    result = run_here(*plain, "memory", "--out", "plain", cwd=tmp_path)
    outcome = ended_well(result, tmp_path / "plain", 6)
    assert ended_well(results[0], tmp_path / "run", 6) == outcome
    assert all(swap["exact"] for swap in read_events(tmp_path / "run", "swap"))


@pytest.mark.slow
def test_a_host_that_wants_sums_of_five_gets_one_of_eight(tmp_path: Path) -> None:
    """Eight hosts would have a sum for each of two batches; the settings do not tell that."""
    flags = [*SMALL, *FAMILIES["mdgan"], "--world-size", "9", "--transport", "memory"]
    for folder, more in {
        "two": ["--kappa", "2"],
        "insists": ["--kappa", "2", "--require", "secure-aggregation>=5"],
        "one": ["--kappa", "1"],
    }.items():
        result = run_here(*flags, "--secure-aggregation", *more, "--out", folder, cwd=tmp_path)
        assert result.status == 0, result
    two, insists, one = (
        (tmp_path / name / "generator.safetensors").read_bytes()
        for name in ("two", "insists", "one")
    )
    assert insists == one
    assert insists != two


def test_a_servers_certificate_does_not_stand_for_workers(tmp_path: Path) -> None:
    certificates(tmp_path, "main")
    options = [*SMALL, *FAMILIES["mdgan"], "--secure-aggregation", "--out", "run"]
    result = run_here(*options, "--credentials", "authority/main.cred", cwd=tmp_path)
    assert result.status == 2
    assert "the certificate here is that of a server, which cannot stand for" in result.errors


@claim(
    "shared-file-warned", "With a shared file the server can pass for hosts, which a warning says"
)
def test_a_shared_certificate_is_warned_of(tmp_path: Path) -> None:
    assert run_here("credentials", "new", "run.cred", cwd=tmp_path).status == 0
    options = [*SMALL, *FAMILIES["mdgan"], "--transport", "memory", "--out", "run"]
    for secure in ([], ["--secure-aggregation"]):
        result = run_here(*options, *secure, "--credentials", "run.cred", "--dry-run", cwd=tmp_path)
        assert result.status == 0, result
        warned = "a server that lies could pass for workers" in result.errors
        assert warned == bool(secure)


@pytest.mark.slow
def test_a_newcomer_gets_a_copy_and_takes_part_in_sums(tmp_path: Path) -> None:
    flags = ["--world-size", "5", "--workers-per-host", "1", "--threads", "1", "--log-interval"]
    flags += ["1", "--swap-interval", "5", "--secure-aggregation", "--iterations", "100000"]
    running = training(tmp_path, "train", *flags)
    joins = start([*MDGAN, "join", "run", "--require", "secure-aggregation"], tmp_path)
    wait_until(lambda: bool(read_events(running.folder, "joined")), "the newcomer has joined")
    wait_until(lambda: running.metrics()[-1]["workers"] == 5, "a sum with the newcomer")
    reached = running.metrics()[-1]["iteration"]
    wait_until(lambda: running.has_reached(reached + 12), "two swaps")
    running.process.terminate()
    assert "NaN" not in finish(running.process).errors
    assert "refused" not in finish(joins).errors
    assert any("5" in swap["taken"] for swap in read_events(running.folder, "swap"))
