"""The line that names what trains: before a run, at its start, and when it is resumed."""

import re
from pathlib import Path

import pytest

from tests.claims.registry import claim
from tests.processes import run_here
from tests.unit.dataset_formats import black_png

TINY = [
    *("train", "--transport", "memory", "--workers-per-host", "1", "--threads", "1"),
    *("--sample-interval", "0", "--eval-interval", "0", "--iterations", "2"),
]


def said(text: str) -> str:
    (line,) = re.findall(r"MD-GAN \(Hardy et al\. 2019\): .*", text)
    return str(line)


@pytest.mark.parametrize(
    ("num_workers", "flags"),
    [
        (1, ""),
        (4, "--secure-aggregation"),
        (5, "--secure-aggregation --swap derangement"),
        (6, "--secure-aggregation --swap-interval 1"),
        (9, "--secure-aggregation"),
        (9, "--secure-aggregation --kappa 3"),
        (9, "--secure-aggregation --require secure-aggregation>=5"),
        (9, "--secure-aggregation --workers-per-host 2"),
        (12, "--secure-aggregation --workers-per-host 2 --participation 0.4"),
        (12, "--secure-aggregation --workers-per-host 3 --participation 0.3 --seed 4"),
        (12, "--secure-aggregation --participation 0.5"),
        (7, "--secure-aggregation --step-samples 48"),
        (4, "--step-samples 48 --swap means"),
        (3, "--step-samples 48 --wire images=bf16"),
        (9, "--participation 0.5 --aggregation median --partition sorted"),
        (5, "--updates arrival --kappa 1"),
    ],
)
@claim("first-line", "When the server begins, and with `--dry-run`, one line says what trains")
def test_a_dry_run_says_what_the_run_says(tmp_path: Path, num_workers: int, flags: str) -> None:
    options = [*TINY, "--world-size", str(num_workers + 1), "--batch-size", "4", *flags.split()]
    dry = run_here(*options, "--dry-run", cwd=tmp_path)
    assert dry.status == 0, dry
    ran = run_here(*options, "--out", "run", cwd=tmp_path)
    assert ran.status == 0, ran
    assert said(dry.output) == said(ran.errors)
    (kappa,) = re.findall(r"^  κ +(\d+)$", dry.output, re.MULTILINE)
    assert f": κ = {kappa} batch" in said(ran.errors)


def test_shards_that_grew_are_not_taken_for_other_classes(tmp_path: Path) -> None:
    """The rhythm of a run stays; the line says since when, and what it would be now."""
    flags = ["--dataset", "folder", "--data-dir", "photos/{rank}", "--world-size", "3"]
    flags += ["--batch-size", "4"]
    expected = ["pairs swap every 2 iterations"]
    expected += [f"{expected[0]}, as when the run began, not every 6 (--swap-interval)"]
    for size, end, given in ((8, "3", [*flags, "--out", "run"]), (24, "6", ["--resume", "run"])):
        for rank in ("1", "2"):
            (tmp_path / "photos" / rank).mkdir(parents=True, exist_ok=True)
            for number in range(size):
                (tmp_path / "photos" / rank / f"{number}.png").write_bytes(black_png(8))
        alike = TINY if "--out" in given else TINY[:1]
        ran = run_here(*alike, *given, "--iterations", end, cwd=tmp_path)
        assert ran.status == 0, ran
        assert said(ran.errors).endswith(f"2 workers, {expected.pop(0)}")
