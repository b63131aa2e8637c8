"""`--merge-halves` in every algorithm: runs that stopped and went on, and one worker alone."""

from pathlib import Path

import pytest

from tests.processes import generator_bytes, run_here

pytestmark = pytest.mark.slow

_SHORT = [
    *("--batch-size", "4", "--threads", "1", "--merge-halves", "--checkpoint-interval", "2"),
    *("--eval-interval", "0", "--sample-interval", "0"),
]
_TRAIN = ["train", "--transport", "memory", *_SHORT]


def _generator(folder: Path, out: str, *flags: str) -> bytes:
    result = run_here(*flags, "--out", out, cwd=folder)
    assert result.status == 0, result
    return generator_bytes(folder / out)


@pytest.mark.parametrize(
    "flags",
    [
        "--algorithm mdgan --swap-interval 1 --local-steps 2",
        "--algorithm mdgan --stale 1 --architecture biggan --width 4",
        "--algorithm paragan --updates async",
        "--algorithm fl-gan --round-iterations 2",
        "--algorithm fegan --participation 1 --round-iterations 2",
    ],
)
def test_a_run_that_stopped_goes_on_with_the_same_bits(tmp_path: Path, flags: str) -> None:
    own = [*_TRAIN, "--world-size", "3", *flags.split()]
    whole = _generator(tmp_path, "whole", *own, "--iterations", "6")
    _generator(tmp_path, "part", *own, "--iterations", "4")
    resumed = run_here("train", "--resume", "part", "--iterations", "6", cwd=tmp_path)
    assert resumed.status == 0, resumed
    assert generator_bytes(tmp_path / "part") == whole


def test_one_replica_is_a_process_alone(tmp_path: Path) -> None:
    one = [*_TRAIN, "--algorithm", "paragan", "--world-size", "2", "--iterations", "6"]
    alone = ["standalone", *_SHORT, "--iterations", "6"]
    assert _generator(tmp_path, "one", *one) == _generator(tmp_path, "alone", *alone)
