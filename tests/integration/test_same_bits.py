"""The processes over which a run is spread change no bit of its generator."""

import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from mdgan.families.mdgan import host_swaps
from tests.claims.registry import claim
from tests.processes import QUICK, ended_well, finish, read_events, run, run_here, start

PROCESSES = {
    "a process per worker": ["--workers-per-host", "1"],
    "two workers per process": ["--workers-per-host", "2"],
    "one process for all workers": ["--workers-per-host", "5"],
}
MEMORY = {
    "memory, one host": ["--transport", "memory"],
    "memory, a host per worker": ["--transport", "memory", "--workers-per-host", "1"],
}
PAIRS = ["--swap", "pairs", "--swap-interval", "3"]
MEANS = ["--swap", "means", "--swap-interval", "3"]
ASYNC = [*PAIRS, "--updates", "async"]
DERANGEMENT = [
    "--swap",
    "derangement",
    "--swap-interval",
    "2",
    "--kappa",
    "3",
    "--local-steps",
    "2",
]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(PAIRS, id="pairs"),
        pytest.param(MEANS, id="means", marks=pytest.mark.slow),
        pytest.param(DERANGEMENT, id="derangement", marks=pytest.mark.slow),
        pytest.param(ASYNC, id="async", marks=pytest.mark.slow),
        pytest.param([*PAIRS, "--merge-halves"], id="merged", marks=pytest.mark.slow),
    ],
)
@claim(
    "same-bits",
    "One process with all workers, a process for each, and several machines with equal "
    "processors give the same generator, bit for bit, unless a flag gives that up.",
)
@claim("bits", "on the same kind of processor give the same generator.")
@claim("any-spread", "Any number of processes, hosts and machines: the same bits")
def test_any_spread_gives_the_same_generator(tmp_path: Path, settings: list[str]) -> None:
    generators: dict[str, bytes] = {}
    for name, flags in {**PROCESSES, **MEMORY}.items():
        out = f"run-{len(generators)}"
        start_run = run_here if name in MEMORY else run
        arguments = ["train", "--world-size", "6", *QUICK, *settings, *flags, "--out", out]
        generators[name] = ended_well(start_run(*arguments, cwd=tmp_path), tmp_path / out)
    assert len(set(generators.values())) == 1, {
        name: hash(generator) for name, generator in generators.items()
    }


def test_a_worker_refuses_the_same_discriminators_wherever_others_are(tmp_path: Path) -> None:
    flags = ["train", "--world-size", "6", "--transport", "memory", *QUICK, *PAIRS]
    results = {}
    with patch.object(host_swaps, "_WEIGHTS", 1.002):
        for size in ("1", "2", "5"):
            ended = run_here(*flags, "--workers-per-host", size, "--out", size, cwd=tmp_path)
            refused = [swap["refused"] for swap in read_events(tmp_path / size, "swap")]
            results[size] = ended_well(ended, tmp_path / size), refused
    assert results["1"] == results["2"] == results["5"]
    assert any(refused), "there is something to refuse"
    assert not all(len(ranks) == 4 for ranks in refused), "and something to take"


@pytest.mark.parametrize(
    "flags", [[], pytest.param(["--merge-halves"], marks=pytest.mark.slow)], ids=str
)
@claim("as-standalone", "One worker: the bits of `--algorithm standalone`.")
def test_one_worker_equals_standalone(tmp_path: Path, flags: list[str]) -> None:
    same = [*QUICK, *flags]
    alone = run_here("standalone", *same, "--out", "alone", cwd=tmp_path)
    spread = run("train", "--world-size", "2", *same, "--out", "spread", cwd=tmp_path)
    assert ended_well(alone, tmp_path / "alone") == ended_well(spread, tmp_path / "spread")


@pytest.mark.slow
@pytest.mark.parametrize("layout", [[], ["--transport", "memory"]], ids=str)
def test_profiled_runs_give_the_same_generator(tmp_path: Path, layout: list[str]) -> None:
    flags = ["--world-size", "3", *QUICK, *layout]
    plain = run("train", *flags, "--out", "plain", cwd=tmp_path)
    result = run("train", *flags, "--profile", "4..6", "--out", "profiled", cwd=tmp_path)
    assert ended_well(plain, tmp_path / "plain") == ended_well(result, tmp_path / "profiled")
    roles = {row["role"] for row in read_events(tmp_path / "profiled", "profile")}
    assert roles == ({"server"} if layout else {"server", "host-1", "host-2"})
    assert not read_events(tmp_path / "plain", "profile")
    assert "Activity" not in result.output + result.errors


def test_one_worker_is_awaited_alone_by_both_policies(tmp_path: Path) -> None:
    flags = ["--world-size", "2", "--transport", "memory", "--swap-interval", "5"]
    generators = {}
    for updates in ("sync", "arrival"):
        arguments = [*QUICK, *flags, "--checkpoint-interval", "4", "--updates", updates]
        ended = run_here("train", *arguments, "--out", updates, cwd=tmp_path)
        average = tmp_path / updates / "generator-average.safetensors"
        generators[updates] = ended_well(ended, tmp_path / updates), average.read_bytes()
    assert generators["sync"] == generators["arrival"]


def test_another_seed_gives_another_generator(tmp_path: Path) -> None:
    generators = set()
    for seed in ("0", "1"):
        flags = ["--transport", "memory", "--world-size", "3", "--seed", seed, "--out", seed]
        generators.add(ended_well(run_here("train", *QUICK, *flags, cwd=tmp_path), tmp_path / seed))
    assert len(generators) == 2


@pytest.mark.slow
def test_torchrun_gives_the_same_generator(tmp_path: Path) -> None:
    flags = QUICK
    ours = run_here(
        "train", "--transport", "memory", "--world-size", "2", *flags, "--out", "ours", cwd=tmp_path
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    theirs = finish(
        start(
            [*torchrun, "--nproc-per-node", "2", "-m", "mdgan", "train", *flags, "--out", "theirs"],
            tmp_path,
        )
    )
    assert ended_well(ours, tmp_path / "ours") == ended_well(theirs, tmp_path / "theirs")
