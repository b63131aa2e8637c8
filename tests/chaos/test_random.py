"""`mdgan chaos` plays random faults from a seed in one run, as a user calls it."""

import json
import re
from pathlib import Path

import pytest

from tests.chaos.staging import check_left_whole
from tests.processes import MDGAN, Finished, finish, free_port, read_events, run, run_here, start

DIGITS = [
    *("--world-size", "7", "--iterations", "2000", "--threads", "1", "--seed", "1"),
    *("--log-interval", "1", "--sample-interval", "0", "--eval-interval", "0"),
    *("--checkpoint-interval", "50", "--liveness-timeout", "3", "--deadline", "2"),
]
SMALL = [
    *("--world-size", "4", "--iterations", "120", "--batch-size", "8", "--threads", "1"),
    *("--log-interval", "1", "--sample-interval", "0", "--eval-interval", "0"),
    *("--checkpoint-interval", "50", "--liveness-timeout", "10", "--swap-interval", "5"),
]


def play(folder: Path, *flags: str, timeout: float) -> Finished:
    """Runs `mdgan chaos`, which must end well."""
    result = finish(start([*MDGAN, "chaos", *flags], folder), timeout=timeout)
    assert result.status == 0, result
    assert "Traceback" not in result.output + result.errors, result
    return result


def drawn(output: str) -> list[str]:
    """The faults as they are announced."""
    return re.findall(r"^ +(\d+ \| .*)$", output, flags=re.MULTILINE)


@pytest.mark.slow
def test_two_faults_and_what_is_told_of_them(tmp_path: Path) -> None:
    """Seed 3 draws a worker that is killed, and one that halts for less than is noticed."""
    flags = ["--seed", "3", "--faults", "2", "--kinds", "kill,stop", "--", *SMALL, "--out", "run"]
    output = play(tmp_path, *flags, timeout=300).output
    check_left_whole(tmp_path / "run", 120)
    assert output.startswith("2 faults drawn from --seed 3:\n")
    events = drawn(output)
    assert len(events) == 2
    headings, *table = output[output.index("\nfault  ") :].splitlines()[1:4]
    assert re.split(r"  +", headings)[:3] == ["fault", "at iteration", "noticed after s"]
    for event, line in zip(events, table, strict=True):
        at, _, what = event.partition(" | ")
        assert line.startswith(what + "  ")
        assert int(re.split(r"  +", line)[1]) >= int(at)
    (lost,) = read_events(tmp_path / "run", "lost")
    assert f"rank {lost['workers'][0]} lost (its connection closed)" in output
    assert "training survived 2 faults and 0 newcomers (--seed 3)" in output


@pytest.mark.slow
def test_on_a_machine_without_the_server(tmp_path: Path) -> None:
    """Only that machine's workers are struck; one of them may be the last."""
    flags = [*SMALL, "--master-port", str(free_port()), "--checkpoint-interval", "0"]
    flags_of_run = [*flags, "--ranks", "0..1", "--out", "run"]
    server = start([*MDGAN, "train", *flags_of_run], tmp_path)
    chaos = ["--seed", "3", "--faults", "3", "--kinds", "kill,stop", "--spare", "0", "--"]
    there = play(tmp_path, *chaos, *flags, "--ranks", "2,3", "--out", "elsewhere", timeout=300)
    assert re.search(r"training survived [123] faults", there.output)
    assert "the server's records tell more" in there.output
    assert finish(server).status == 0
    check_left_whole(tmp_path / "run", 120)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_random_faults_in_two_thousand_iterations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    struck = play(tmp_path, "--faults", "20", "--", *DIGITS, "--out", "struck", timeout=1200)
    check_left_whole(tmp_path / "struck", 2000)
    seed = re.findall(r"--seed (\d+)\)", struck.output)[-1]
    survived = re.search(r"survived (\d+) faults? and (\d+) newcomers?", struck.output)
    assert survived is not None
    # Some victims have not come back when their turn comes, if the machine is busy.
    assert sum(map(int, survived.groups())) >= 15, struck
    again = ["--seed", seed, "--", *DIGITS, "--iterations", "2000", "--dataset", "digits"]
    assert drawn(struck.output) == announced(tmp_path, *again)
    assert run("train", *DIGITS, "--out", "calm", cwd=tmp_path, timeout=600).status == 0
    fid = {name: score(tmp_path, name) for name in ("struck", "calm")}
    with capsys.disabled():
        print(f"\nfaults of --seed {seed}: FID {fid['struck']:.2f}, without {fid['calm']:.2f}")
    assert fid["struck"] < 1.5 * fid["calm"]


def announced(folder: Path, *flags: str) -> list[str]:
    """What another run with the same seed would do; it is ended as soon as it has said so."""
    process = start([*MDGAN, "chaos", *flags, "--out", "again"], folder)
    assert process.stdout is not None
    head = [process.stdout.readline() for _ in range(21)]
    process.terminate()
    finish(process, timeout=300)
    return drawn("".join(head))


def score(folder: Path, name: str) -> float:
    result = run_here("evaluate", name, "--json", cwd=folder)
    assert result.status == 0, result
    return float(json.loads(result.output)["scores"]["fid"])
