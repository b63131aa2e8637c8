"""`--workers-per-host auto`: the same generator, and the next run reuses the size once found."""

from pathlib import Path

import pytest

from mdgan.settings.machine import num_cores
from tests.processes import QUICK, ended_well, run, run_here

TRAIN = ["train", "--world-size", "4", *QUICK, "--eval-interval", "0"]


@pytest.mark.slow
def test_it_changes_no_bit_and_is_tried_out_once(tmp_path: Path) -> None:
    alone = run_here(*TRAIN, "--transport", "memory", "--out", "alone", cwd=tmp_path)
    expected = ended_well(alone, tmp_path / "alone")
    said = []
    for name in ("first", "second"):
        result = run(*TRAIN, "--workers-per-host", "auto", "--out", name, cwd=tmp_path,
                     XDG_CACHE_HOME=str(tmp_path / "cache"))  # fmt: skip
        assert ended_well(result, tmp_path / name) == expected
        (line,) = [line for line in result.errors.splitlines() if "worker(s) a host" in line]
        said.append(line)
    assert "measured in" in said[0]
    assert "3: " in said[0]
    assert said[1].endswith("as measured here before")
    assert len(list((tmp_path / "cache" / "mdgan").rglob("*.json"))) == 1


REFUSED = {
    "ranks": ["--ranks", "0..2"],
    "memory": ["--transport", "memory"],
    "cores": ["--cores", "0"],
    "ray": ["--launcher", "ray"],
    "clients": ["--algorithm", "fl-gan", "--clients", "5"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_it_cannot_be_tried_out(tmp_path: Path, name: str) -> None:
    result = run_here("train", "--workers-per-host", "auto", *REFUSED[name], cwd=tmp_path)
    assert result.status == 2
    (line,) = result.errors.splitlines()
    assert line.startswith("mdgan: --workers-per-host auto: ")


def test_a_plan_is_made_for_a_number(tmp_path: Path) -> None:
    result = run_here("plan", "--workers-per-host", "auto", cwd=tmp_path)
    assert result.status == 2
    assert "with mdgan plan give a number" in result.errors


@pytest.mark.slow
@pytest.mark.skipif(num_cores() > 8, reason="would need many workers")
def test_by_default_few_processes_give_the_bits_of_a_process_each(tmp_path: Path) -> None:
    workers = 2 * num_cores()
    flags = ["train", "--world-size", str(workers + 1), *QUICK, "--threads", "auto"]
    flags += ["--eval-interval", "0", "--checkpoint-interval", "5", "--swap-interval", "3"]
    alone = run(*flags, "--workers-per-host", "1", "--out", "alone", cwd=tmp_path)
    shared = run(*flags, "--out", "shared", cwd=tmp_path)
    assert ended_well(alone, tmp_path / "alone") == ended_well(shared, tmp_path / "shared")
    assert f"starting {workers + 1} processes" in alone.errors
    assert "--workers-per-host 1 gives each its own" not in alone.errors
    assert f"starting {1 + workers // 2} processes" in shared.errors
    message = f"{workers} workers share {workers // 2} process(es)"
    assert any(message in line for line in shared.errors.splitlines())
    generators = []
    for name, carried in (("shared", "1"), ("alone", "3")):
        more = ["--iterations", "18", "--workers-per-host", carried]
        result = run("train", "--resume", name, *more, cwd=tmp_path)
        generators.append(ended_well(result, tmp_path / name, 18))
    assert generators[0] == generators[1]
