"""Draws docs/performance.png from the results of `versus.py` and `scaling.py`.

    python -m benchmarks.picture VERSUS.json SCALING.json docs/performance.png

The first two files are those that `versus` and `scaling` wrote with `--json`.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, QUIET, OURS, OTHERS = "#1f2430", "#8a90a0", "#2a6fdb", "#c4572e"
GIB = 2**30


def medians(rounds: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> Any:
    """N in increasing order, and the median of a value over the rounds with each N."""
    sizes = sorted({one["num_workers"] for one in rounds})
    return sizes, [
        statistics.median(value(one) for one in rounds if one["num_workers"] == size)
        for size in sizes
    ]


def line(axes: Axes, points: Any, name: str, colour: str, **style: Any) -> None:
    """Draws a curve with its name at the last point."""
    axes.plot(*points, color=colour, marker="o", markersize=4, **style)
    axes.annotate(
        name, (points[0][-1], points[1][-1]), (6, 0), textcoords="offset points", color=colour
    )


def log_scales(axes: Axes, title: str, unit: str, sizes: Sequence[int]) -> None:
    """Makes both axes logarithmic, with plain numbers."""
    axes.set(xscale="log", yscale="log", xlabel="workers", xticks=sizes)
    axes.set_title(f"{title}, {unit}", loc="left", color=INK)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.set_xlim(min(sizes) * 0.8, max(sizes) * 3.2)
    axes.grid(color="#e6e8ee", which="both", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def draw(rounds: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> Figure:
    """Draws three panels: time and memory beside the published algorithm, and many workers."""
    figure = Figure(figsize=(12.5, 3.8), layout="constrained")
    time, memory, many = figure.subplots(1, 3)
    sizes, _ = medians(rounds, lambda one: one["limit"])
    for key, name, colour in (("published", "published", OTHERS), ("ours", "mdgan", OURS)):
        measured = [{"num_workers": one["num_workers"], **one[key]} for one in rounds]
        line(time, medians(measured, lambda one: one["iteration_seconds"]), name, colour)
        line(memory, medians(measured, lambda one: one["pss_bytes"] / GIB), name, colour)
    line(time, medians(rounds, lambda one: one["limit"]), "", QUIET, linestyle=":")
    log_scales(time, "An iteration, CIFAR-10 models", "seconds", sizes)
    time.text(0.02, 0.93, "dotted: the arithmetic alone", transform=time.transAxes, color=QUIET)
    log_scales(memory, "Memory of all processes", "GB", sizes)

    hosted = [row for row in rows if row["name"].startswith("digits")]
    counts = [row["num_workers"] for row in hosted]
    line(many, (counts, [row["iteration_seconds"] for row in hosted]), "iteration", OURS)
    line(many, (counts, [row["limit_seconds"] for row in hosted]), "", QUIET, linestyle=":")
    line(many, (counts, [row["server_seconds"] for row in hosted]), "server", OTHERS)
    log_scales(many, "Many workers in four hosts, digits", "seconds", counts)
    return figure


@click.command()
@click.argument("versus", type=click.Path(exists=True, path_type=Path))
@click.argument("scaling", type=click.Path(exists=True, path_type=Path))
@click.argument("picture", type=click.Path(path_type=Path))
def main(versus: Path, scaling: Path, picture: Path) -> None:
    """Draws the picture."""
    mpl.rcParams.update({"font.size": 9, "text.color": INK, "axes.labelcolor": INK})
    rounds, rows = json.loads(versus.read_text()), json.loads(scaling.read_text())
    draw([one for one in rounds if one["precision"] == "fp32"], rows).savefig(picture, dpi=130)


if __name__ == "__main__":
    main()
