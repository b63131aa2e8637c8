"""Draws README's picture: digits and rows that mdgan generated from four workers' data.

    make tables                 # once
    python -m benchmarks.made [--out runs/made] [--iterations 4000]

Trains on 10,000 real digits of MNIST (`picture_packages.py`) and on 16,000 flights
(`tables/data.py`), a quarter at each worker. Then it draws samples of both generators into
`docs/made.png`. A run that lies in the folder already is not trained again.
"""

import csv
import subprocess
import sys
from pathlib import Path

import click
from matplotlib.figure import Figure
from PIL import Image

from benchmarks.picture_sources import write
from benchmarks.tables import data

ROOT = Path(__file__).resolve().parents[1]
_ROWS = 12
_COLUMNS = ("month", "hour", "dep_delay", "distance", "carrier", "origin", "dest", "late")


@click.command()
@click.option("--out", default="runs/made", type=Path)
@click.option("--iterations", default=4000, help="Iterations of the run on digits.")
def main(out: Path, iterations: int) -> None:
    """Trains both runs, samples from them, and draws the picture."""
    sys.path.append(str(ROOT / "build" / "tables"))
    write("mnist", out / "mnist")
    outcome = data.write("flights", out / "flights", 4)
    common = ("--world-size", "5", "--transport", "memory", "--threads", "1")
    _train(out / "digits", "mnist", out / "mnist", *common, "--iterations", str(iterations))
    schema = out / "flights" / "study.json"
    if not schema.exists():
        _mdgan("schema", "draft", out / "flights" / "all.csv", "-o", schema)
    files = out / "flights" / "site-{rank}-iid.csv"
    of_rows = ("--schema", str(schema), "--target", outcome)
    _train(out / "rows", "table", files, *common, *of_rows)
    _sample(out / "digits", out / "digits.png", 49)
    _sample(out / "rows", out / "rows.csv", _ROWS)
    draw(out / "digits.png", out / "rows.csv", ROOT / "docs" / "made.png")


def _mdgan(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "mdgan", *map(str, arguments)], check=True)


def _train(run: Path, dataset: str, folder: object, *flags: str) -> None:
    if not run.exists():
        _mdgan("train", "--dataset", dataset, "--data-dir", folder, "--out", run, *flags)


def _sample(run: Path, file: Path, count: int) -> None:
    file.unlink(missing_ok=True)
    _mdgan("sample", run, "-n", count, "-o", file)


def draw(digits: Path, rows: Path, picture: Path) -> None:
    """Draws digits on the left and rows on the right."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.6))
    with Image.open(digits) as read:
        left.imshow(read, cmap="gray")
    with rows.open(newline="") as file:
        table = [[row[name] for name in _COLUMNS] for row in csv.DictReader(file)]
    drawn = right.table(
        table, colLabels=_COLUMNS, loc="center", cellLoc="right", edges="horizontal"
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8)
    drawn.scale(1, 1.2)
    for axes in (left, right):
        axes.axis("off")
    figure.savefig(picture, dpi=130, facecolor="white", bbox_inches="tight")


if __name__ == "__main__":
    main()
