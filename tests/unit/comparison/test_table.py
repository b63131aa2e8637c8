import json
import re
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from mdgan.comparison.plan import NEW, Configuration, Training
from mdgan.comparison.table import as_latex, as_table, measure
from mdgan.records.values import said
from tests.unit.observe.fake_run import IMAGE_BYTES, FakeRun
from tests.unit.observe.federated import federated_run

UNTIL = "rounds_until_every_class_seen_500"


def training(folder: Path, name: str, seed: int, algorithm: str) -> Training:
    configuration = Configuration(name, {}, {"algorithm": algorithm}, 1, ())
    return Training(configuration, seed, folder / f"{name}-seed{seed}", NEW)


def last_fid(folder: Path) -> float:
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    results: list[Any] = [r["scores"]["fid"] for r in records if r.get("event") == "scores"]
    return float(results[-1])


def test_means_are_over_the_finished_runs(tmp_path: Path) -> None:
    trainings = [training(tmp_path, "ours", seed, "mdgan") for seed in range(4)]
    for seed in range(3):
        state = "failed" if seed == 2 else "finished"
        fake = FakeRun(workers=3, iterations=60, seed=seed, state=state, swap_interval=0)
        fake.write(tmp_path / f"ours-seed{seed}")
    figures_read = measure(trainings)["ours"]
    states = [figures_read["runs"][str(n)]["state"] for n in range(4)]
    assert states == ["finished", "finished", "failed", "missing"]
    _, means, early, *_ = as_table({"ours": figures_read}).splitlines()
    last = said(last_fid(tmp_path / "ours-seed2"))
    assert means.split()[:2] == ["ours", "2/4"]
    assert early.split()[:9] == [
        *["ours,", "seed", "2:", "failed", "at", "iteration", "60", "–"],
        last,
    ]
    fids = [last_fid(tmp_path / f"ours-seed{seed}") for seed in (0, 1)]
    middle = {"mean": fmean(fids), "deviation": stdev(fids), "runs": 2}
    ends = {"least": min(fids), "greatest": max(fids)}
    assert figures_read["summary"]["fid"] == pytest.approx({**middle, **ends})
    assert figures_read["runs"]["3"]["fid"] is None
    assert figures_read["summary"]["samples_processed"]["mean"] == 3 * 60 * 10
    a_worker = 60 * (3 * 10 * IMAGE_BYTES + 328)
    assert figures_read["summary"]["client_bytes"]["mean"] == a_worker
    assert figures_read["summary"]["server_bytes"]["mean"] == 3 * a_worker
    assert figures_read["summary"][UNTIL] is None


def rows_of_losses(losses: list[float | None]) -> str:
    rows = [
        {"iteration": n, "seconds": n, "generator_loss": loss, "discriminator_loss": 1.0}
        for n, loss in enumerate(losses, start=1)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("last", "deviation"), [([4.0, 4.0, 7.0], 3**0.5), ([4.0, None, 7.0], None), ([4.0, 4.0], None)]
)
def test_how_much_losses_vary_in_the_last_quarter(
    last: list[float | None], deviation: float | None, tmp_path: Path
) -> None:
    FakeRun(workers=3, iterations=60).write(tmp_path / "ours-seed0")
    losses = [100.0 * n for n in range(3 * len(last))] + last
    (tmp_path / "ours-seed0" / "metrics.jsonl").write_text(rows_of_losses(losses))
    (run,) = measure([training(tmp_path, "ours", 0, "mdgan")])["ours"]["runs"].values()
    assert run["generator_loss_deviation"] == pytest.approx(deviation)
    assert run["discriminator_loss_deviation"] == (0.0 if len(last) == 3 else None)


def test_rounds_until_every_class_was_seen(tmp_path: Path) -> None:
    for seed in range(2):
        federated_run(tmp_path / f"long-seed{seed}", seed=seed, rounds=60)
        federated_run(tmp_path / f"short-seed{seed}", seed=seed, rounds=60 if seed else 3)
    names = [(name, seed) for name in ("long", "short") for seed in range(2)]
    figures_read = measure([training(tmp_path, name, seed, "fegan") for name, seed in names])
    runs = figures_read["long"]["runs"]
    assert figures_read["long"]["summary"][UNTIL]["mean"] == fmean(
        runs[s][UNTIL] for s in ("0", "1")
    )
    assert 3 < runs["0"][UNTIL] < 60
    assert figures_read["short"]["runs"]["0"][UNTIL] is None
    assert figures_read["short"]["runs"]["1"][UNTIL] == runs["1"][UNTIL]
    assert figures_read["short"]["summary"][UNTIL] is None, (
        "a mean over the lucky seeds would flatter"
    )
    assert figures_read["short"]["summary"]["rounds"]["mean"] == (3 + 60) / 2


def test_the_table_is_aligned_and_leaves_out_empty_columns(tmp_path: Path) -> None:
    for seed in range(2):
        FakeRun(workers=3, iterations=60, seed=seed).write(tmp_path / f"ours-seed{seed}")
        FakeRun(workers=0, iterations=60, seed=seed).write(tmp_path / f"alone-seed{seed}")
    trainings = [
        training(tmp_path, name, seed, algorithm)
        for name, algorithm in (("ours", "mdgan"), ("alone", "standalone"))
        for seed in range(2)
    ]
    head, *lines = as_table(measure(trainings)).splitlines()
    lines, (yardstick, *meanings) = lines[:2], lines[2:]
    assert "FID" in head
    assert "rounds" not in head
    assert [line.split()[:2] for line in lines] == [["ours", "2/2"], ["alone", "2/2"]]
    assert " ± " in lines[0]
    end = head.index("a worker moved (MB)") + len("a worker moved (MB)")
    assert lines[1][end - 1] == "–"
    assert lines[0][end - 1].isdecimal()
    assert yardstick.startswith("scores: ")
    assert "; real data: FID " in yardstick
    explained = [re.split(r"  +", line.strip())[0] for line in meanings]
    headings = re.split(r"  +", head.strip())
    assert explained == headings  # in their order, and no others


def test_latex_takes_the_table_as_it_is(tmp_path: Path) -> None:
    name = "50%_of{a}&b"
    FakeRun(workers=3, iterations=60).write(tmp_path / f"{name}-seed0")
    FakeRun(workers=3, iterations=60, seed=1).write(tmp_path / f"{name}-seed1")
    trainings = [training(tmp_path, name, seed, "mdgan") for seed in range(2)]
    yardstick, *lines = as_latex(measure(trainings)).splitlines()
    assert yardstick.startswith("% scores: ")
    (_, ours) = rows = [line for line in lines if line.endswith(r" \\")]
    (others,) = {len(re.findall(r"(?<!\\)&", row)) for row in rows}
    assert lines[0] == rf"\begin{{tabular}}{{l{'r' * others}}}"
    assert ours.startswith(r"50\%\_of\{a\}\&b & 2/2 & ")
    assert r" $\pm$ " in ours
    assert ours.isascii()


def test_a_column_has_one_unit(tmp_path: Path) -> None:
    for name, seconds in (("slow", 7200.0), ("quick", 36.0)):
        FakeRun(workers=3, iterations=60 if name == "slow" else 2).write(tmp_path / f"{name}-seed0")
        status = json.loads((tmp_path / f"{name}-seed0" / "run.json").read_text())
        changed = json.dumps({**status, "seconds": seconds})
        (tmp_path / f"{name}-seed0" / "run.json").write_text(changed)
    found = measure([training(tmp_path, name, 0, "mdgan") for name in ("slow", "quick")])
    rows = [line for line in as_latex(found).splitlines() if line.endswith(r" \\")]
    columns = [*zip(*(row.removesuffix(r" \\").split(" & ") for row in rows), strict=True)]
    assert ("time (h)", "2", "0.01") in columns
    (moved,) = (column for column in columns if column[0].startswith("a worker moved"))
    assert moved[0] == "a worker moved (MB)"
    assert float(moved[1]) > 1 > float(moved[2]) > 0


def score_otherwise(folder: Path, **changes: Any) -> None:
    """Changes what a run says of how it was scored."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [{**row, **changes} if row.get("event") == "scores" else row for row in rows]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    "changes",
    [
        {"n_real": 400},
        {"n": 500},
        {"n_held_out": 7},
        {"real_class_histogram": [1, 2]},
        {"extractor": {"name": "another", "sha256": "0" * 64}},
    ],
)
def test_scores_that_do_not_compare_have_letters_and_no_mean(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    names = [("ours", 0), ("ours", 1), ("alone", 0)]
    for name, seed in names:
        folder = tmp_path / f"{name}-seed{seed}"
        FakeRun(workers=3, iterations=20, seed=seed, score_interval=20).write(folder)
    score_otherwise(tmp_path / "alone-seed0", **changes)
    trainings = [training(tmp_path, name, seed, "mdgan") for name, seed in names]
    figures_read = measure(trainings)
    assert figures_read["ours"]["summary"]["fid"]["runs"] == 2
    _, ours, alone, *notes = as_table(figures_read).splitlines()
    assert re.search(r"ours +2/2 +[\d.]+ ± [\d.]+ a ", ours)
    assert re.search(r"alone +1/1 +[\d.]+ b ", alone)
    assert [note[:3] for note in notes[:2]] == ["a: ", "b: "]
    assert notes[2] == "scores of different letters do not compare"
    score_otherwise(tmp_path / "ours-seed1", **changes)
    mixed = measure(trainings[:2])
    assert mixed["ours"]["summary"]["fid"] is None
    assert mixed["ours"]["runs"]["1"]["fid"] is not None
    assert "FID " not in as_table(mixed).splitlines()[0]
