"""Differential privacy in whole runs: the same bits anywhere, budgets that end, and refusals."""

import json
import re
from pathlib import Path

import pytest

from mdgan.privacy.ledger_file import FILE
from tests.accounts import all_charges_in, charges_in
from tests.claims.registry import claim
from tests.known_noise import run_with_known_noise
from tests.processes import (
    ended_well,
    generator_bytes,
    read_events,
    read_status,
    run_cleanly,
    run_here,
)
from tests.refusals import check_refused_in_one_line

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

BARE = [
    *("train", "--threads", "1", "--batch-size", "8", "--sample-interval", "0"),
    *("--log-interval", "1", "--world-size", "3"),
]
FLAGS = [*BARE, "--swap-interval", "3", "--eval-interval", "0", "--iterations", "12"]
MEMORY = ["--transport", "memory"]
NOISE = ["--dp-noise", "1.5", "--dp-delta", "0.0001"]


@pytest.mark.parametrize(
    "elsewhere",
    [
        ["--transport", "memory", "--workers-per-host", "1"],
        pytest.param([], marks=pytest.mark.slow),
        pytest.param(["--workers-per-host", "2"], marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.usefixtures("known_noise")
def test_the_same_secret_gives_the_same_bits_wherever_workers_are(
    tmp_path: Path, elsewhere: list[str]
) -> None:
    same = [*FLAGS, *NOISE]
    first = ended_well(run_cleanly(tmp_path, *same, *MEMORY, "--out", "here"), tmp_path / "here")
    begin = run_here if "memory" in elsewhere else run_with_known_noise
    there = begin(*same, *elsewhere, "--out", "there", cwd=tmp_path)
    assert ended_well(there, tmp_path / "there") == first


@pytest.mark.slow
def test_noise_0_without_a_bound_is_a_run_without_privacy(tmp_path: Path) -> None:
    question = {
        "without": ["--batch-sampling", "poisson"],
        "with": ["--dp-noise", "0", "--dp-clip", "inf", "--dp-disclose", "classes,features,losses"],
    }
    results = {}
    for out, flags in question.items():
        result = run_cleanly(tmp_path, *FLAGS, *MEMORY, *flags, "--out", out)
        losses = [
            row["by_worker"]
            for line in (tmp_path / out / "metrics.jsonl").read_text().splitlines()
            if "by_worker" in (row := json.loads(line))
        ]
        results[out] = ended_well(result, tmp_path / out), losses
    assert results["with"] == results["without"]


@pytest.mark.usefixtures("known_noise")
def test_a_run_that_stopped_goes_on_bit_by_bit_and_every_step_counts(tmp_path: Path) -> None:
    same = [*FLAGS, *NOISE, *MEMORY, "--checkpoint-interval", "6"]
    run_cleanly(tmp_path, *same, "--dp-ledger", "whole", "--out", "whole-run")
    run_cleanly(tmp_path, *same, "--dp-ledger", "cut", "--iterations", "6", "--out", "cut-run")
    run_cleanly(tmp_path, "train", "--resume", "cut-run", "--iterations", "12")
    assert generator_bytes(tmp_path / "cut-run") == generator_bytes(tmp_path / "whole-run")
    charges = [all_charges_in(tmp_path / name) for name in ("whole", "cut")]
    assert charges[0] == charges[1]
    assert [charge.steps for charge in charges[0]] == [2 * 12]
    spent = [row["epsilon"] for row in read_events(tmp_path / "whole-run", "epsilon")]
    assert 0 < spent[0]["1"] <= spent[-1]["1"]


@claim(
    "goes-on-counting",
    "ε goes on counting through resumes, other seeds, divisions, schemas, targets and picture "
    "sizes.",
)
def test_another_seed_divides_the_data_anew_and_is_no_new_account(tmp_path: Path) -> None:
    same = [*FLAGS, *MEMORY, "--dp-delta", "0.0001", "--dp-ledger", "ledger"]
    assert run_cleanly(tmp_path, *same, "--dp-epsilon", "8", "--out", "first").status == 0
    again = run_here(*same, "--dp-epsilon", "8", "--seed", "1", "--out", "again", cwd=tmp_path)
    assert again.status == 2
    assert again.errors.count("\n") == 1
    assert "--dp-epsilon 8: the samples of rank 1 have spent 8 before" in again.errors
    assert "give more" in again.errors
    more = [*same, "--dp-epsilon", "12", "--seed", "1", "--dry-run"]
    before = (tmp_path / "ledger" / FILE).read_bytes()
    assert run_cleanly(tmp_path, *more).status == 0
    assert (tmp_path / "ledger" / FILE).read_bytes() == before
    result = run_cleanly(tmp_path, *more[:-1], "--out", "more")
    assert "the samples of rank 2 have spent 8 before; left: 12 steps" in result.errors
    spent = read_events(tmp_path / "more", "epsilon")[-1]["epsilon"]
    assert all(11.9 < epsilon <= 12 for epsilon in spent.values())
    noises = {charge.noise for charge in charges_in(tmp_path / "ledger")}
    for noise in noises:  # of each sample: 12 steps of the first run, and 12 of the last
        assert sum(c.steps for c in charges_in(tmp_path / "ledger") if c.noise == noise) == 24


@pytest.mark.parametrize("algorithm", ["mdgan", pytest.param("fl-gan", marks=pytest.mark.slow)])
@claim("leaves", "A worker that has spent its budget leaves, and training goes on without it.")
def test_workers_leave_when_their_budgets_are_spent(tmp_path: Path, algorithm: str) -> None:
    rounds = ["--round-iterations", "2"] if algorithm == "fl-gan" else []
    budget = ["--dp-epsilon", "0.8", "--dp-noise", "1", "--dp-delta", "0.0001"]
    sizes = ["--partition", "dirichlet:0.3", "--iterations", "60", "--eval-interval", "0"]
    arguments = [*BARE, *rounds, *sizes, *budget, *MEMORY, "--algorithm", algorithm]
    result = run_cleanly(tmp_path, *arguments, "--out", "run")
    assert result.status == 0, result
    assert "--partition dirichlet:0.3: who holds a sample, and how many each" in result.errors
    left = read_events(tmp_path / "run", "left")
    assert sorted(row["workers"][0] for row in left) == [1, 2]
    assert all("has spent its privacy budget ε = " in row["reason"] for row in left)
    (first, last) = (read_events(tmp_path / "run", "epsilon")[n]["epsilon"] for n in (0, -1))
    assert all(0 <= epsilon <= 0.8 for epsilon in (*first.values(), *last.values()))
    # The worker with more samples takes each of them more seldom, and trains on alone.
    assert left[0]["iteration"] < left[1]["iteration"] < 60
    status = read_status(tmp_path / "run")
    assert status["state"] == "finished"
    assert status["iteration"] == left[1]["iteration"]
    assert "go on      not possible: all of --dp-epsilon 0.8 is spent" in result.output
    assert "--resume" not in result.output
    again = run_here(*arguments, "--out", "again", cwd=tmp_path)
    assert again.status == 2
    assert again.errors.count("\n") == 1
    assert "--dp-epsilon 0.8: " in again.errors
    assert "rank 1" in again.errors


OPEN_BEFORE = {
    "open": [],
    "noiseless": ["--dp-noise", "0"],
}


@pytest.mark.parametrize("before", ["open", pytest.param("noiseless", marks=pytest.mark.slow)])
@claim("not-later", "A run that has learnt without privacy cannot go on with it.")
def test_a_run_that_learnt_without_privacy_cannot_go_on_with_it(
    tmp_path: Path, before: str
) -> None:
    run_cleanly(
        tmp_path, *FLAGS, *MEMORY, *OPEN_BEFORE[before], "--iterations", "2", "--out", "run"
    )
    arguments = ["--dp-epsilon", "8", "--dp-delta", "0.0001", "--iterations", "4"]
    arguments += ["--dp-noise", "2"] if before == "noiseless" else []
    refused = run_here("train", "--resume", "run", *arguments, cwd=tmp_path)
    says = "mdgan: --resume run: --dp-epsilon 8 covers the steps from here on alone, and the run "
    assert refused.status == 2, refused
    assert refused.errors.splitlines()[-1].startswith(says)


def test_what_a_run_begins_with_is_not_covered_and_it_is_said(tmp_path: Path) -> None:
    run_cleanly(tmp_path, *FLAGS, *MEMORY, "--iterations", "2", "--out", "first")
    same = [*FLAGS, *MEMORY, *NOISE, "--iterations", "2", "--out", "second"]
    result = run_cleanly(tmp_path, *same, "--init-from", "first")
    assert result.status == 0, result
    assert "--init-from first: --dp-noise 1.5 does not cover what it has learnt" in result.errors


@pytest.mark.slow
@claim("counts-under-dp", "with --dp-epsilon the number alone, and no sums")
@claim("no-classes", "how many in all is told")
def test_what_is_not_covered_is_not_told(tmp_path: Path) -> None:
    scored = ["--iterations", "6", "--eval-interval", "6", "--set", "eval_samples=64"]
    result = run_cleanly(tmp_path, *BARE, *NOISE, *MEMORY, *scored, "--out", "run")
    assert result.status == 0, result
    (begun,) = read_events(tmp_path / "run", "holdings")
    assert {n: held["classes"] for n, held in begun["workers"].items()} == {"1": [], "2": []}
    scores = read_events(tmp_path / "run", "scores")
    assert scores
    assert all(0 < row["n_real"] == row["n_held_out"] for row in scores)


@claim(
    "declared",
    "--set dp_public_samples=N tells the server N, which must not be smaller, instead of the "
    "number of a worker's samples.",
)
def test_the_server_is_told_the_declared_number_of_samples(tmp_path: Path) -> None:
    same = [*FLAGS, *NOISE, *MEMORY, "--iterations", "2", "--out", "run"]
    result = run_cleanly(tmp_path, *same, "--set", "dp_public_samples=900")
    assert result.status == 0, result
    (begun,) = read_events(tmp_path / "run", "holdings")
    assert {n: held["samples"] for n, held in begun["workers"].items()} == {"1": 900, "2": 900}
    told = (tmp_path / "run" / "metrics.jsonl").read_text()
    # A loss may have these digits, too: they count where a number stands alone.
    assert not re.findall(r"(?<![\d.])719(?![\d.])", told)


@claim("no-times", "Hosts tell neither times nor memory")
def test_hosts_tell_no_times_of_what_they_compute(tmp_path: Path) -> None:
    for out, flags in {"open": [], "private": NOISE}.items():
        run_cleanly(tmp_path, *FLAGS, *MEMORY, *flags, "--out", out)
    told = {
        out: '"spans"' in (tmp_path / out / "trace" / "host-1.jsonl").read_text()
        for out in ("open", "private")
    }
    assert told == {"open": True, "private": False}


DP = ["--dp-epsilon", "8", "--dp-delta", "0.0001"]
REFUSED = [
    (["--dp-epsilon", "8"], ["--dp-epsilon 8", "add --dp-delta"]),
    (["--dp-epsilon", "0", "--dp-delta", "0.1"], ["--dp-epsilon 0", "above 0"]),
    (["--dp-epsilon", "8", "--dp-delta", "1"], ["--dp-delta 1", "below 1"]),
    (["--dp-delta", "0.1"], ["--dp-delta 0.1", "is for --dp-epsilon or --dp-noise"]),
    ([*DP, "--dp-noise", "0"], ["--dp-noise 0", "leave out one of the two"]),
    ([*DP, "--dp-clip", "inf"], ["--dp-clip inf", "bound"]),
    ([*DP, "--dp-disclose", "all"], ["--dp-disclose all", "classes, features, losses"]),
    ([*DP, "--dp-clip", "1e-45"], ["--dp-clip 1e-45", "must be 1e-9 to 1e9"]),
    ([*DP, "--dp-noise", "1e30"], ["--dp-noise 1e+30", "must be 0, or 0.001 to 1e5"]),
    ([*DP, "--profile", "1..2"], ["--profile", "how long real samples take"]),
    (["--set", "dp_public_samples=9"], ["--set dp_public_samples=9", "is for --dp-epsilon"]),
    (
        [*DP, "--set", "dp_public_samples=9", "--dp-disclose", "classes"],
        ["--set dp_public_samples=9", "--dp-disclose classes"],
    ),
    (["--audit-canaries", "9"], ["--audit-canaries 9", "add --dp-epsilon"]),
    ([*DP, "--audit-canaries", "-1"], ["--audit-canaries -1", "at least 0"]),
    ([*DP, "--merge-halves"], ["--merge-halves", "leave it out"]),
    ([*DP, "--augment", "ada"], ["--augment ada", "--augment diffaugment"]),
    ([*DP, "--precision", "bf16"], ["--precision bf16", "fp32"]),
    ([*DP, "--vectorize"], ["--vectorize", "--dp-epsilon 8"]),
    ([*DP, "--architecture", "acgan", "--width", "4"], ["(BatchNorm2d)", "--norm group"]),
    (
        [*DP, "--architecture", "md-gan-cnn", "--width", "4", "--norm", "group"],
        ["MinibatchDiscrimination", "acgan"],
    ),
    ([*DP, "--audit-canaries", "7000"], ["--audit-canaries 7000", "enough for 6,208"]),
    ([*DP, "--algorithm", "paragan"], ["--dp-epsilon 8.0", "paragan", "mdgan or fl-gan"]),
    ([*DP, "--algorithm", "fl-gan", "--clients", "9"], ["--clients 9", "leave --clients out"]),
    (
        [*DP, "--algorithm", "fegan", "--clusters", "kmeans:9"],
        ["--clusters kmeans:9", "--dp-disclose classes"],
    ),
    ([*DP, "--dp-noise", "0.1"], ["--dp-epsilon 8", "too small for one step", "--dp-noise 0.1"]),
    (["--dp-epsilon", "0.01", "--dp-delta", "0.0001"], ["--dp-epsilon 0.01", "too small for"]),
    ([*DP, "--partition", "fegan:2,50"], ["--partition fegan:2,50", "the same sample"]),
    (
        [*DP, "--set", "dp_public_samples=300"],
        ["--set dp_public_samples=300", "rank 1 holds more, 360"],
    ),
    ([*DP, "--partition", "none"], ["ranks 1 and 2 hold the same samples"]),
    (
        ["--dp-noise", "0.35", "--dp-delta", "0.0001", "--audit-canaries", "9"],
        ["--audit-canaries 9", "could not contradict epsilon", "no number of them could"],
    ),
    (
        ["--dp-epsilon", "60", "--dp-delta", "0.0001", "--audit-canaries", "2"],
        ["--audit-canaries 2", "could not contradict epsilon 60", "give at least "],
    ),
]


QUICK = 18
"""Of these need neither models nor an accountant."""


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        pytest.param(*case, id=" ".join(case[0]), marks=pytest.mark.slow if n >= QUICK else ())
        for n, case in enumerate(REFUSED)
    ],
)
@claim(
    "judges-alone",
    "A discriminator or feature network must judge each sample by itself; mdgan tries that "
    "before it starts, and refuses one that does not.",
)
@claim("no-times", "Hosts tell neither times nor memory.")
def test_it_is_refused_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    says: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refused_in_one_line(capsys, flags, says)
