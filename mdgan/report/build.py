"""Reads runs, draws every figure, writes the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from mdgan.errors import BadInput
from mdgan.records.recorded_run import RecordedRun
from mdgan.storage.whole_file import write_whole

PAGE_NAME = "report.html"

Result = TypeVar("Result")


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        path: the page.
        num_figures: the figures that could be drawn.
        missing: name → why, of the figures that could not.
        damage: what could not be read, in one line each.
    """

    path: Path
    num_figures: int
    missing: dict[str, str]
    damage: tuple[str, ...]


def check_plots_extra() -> None:
    """Makes sure that figures can be drawn and the page can be written.

    Raises:
        BadInput: matplotlib or jinja2 is not installed.
    """
    for library, module in (("matplotlib", "matplotlib.figure"), ("jinja2", "jinja2")):
        try:
            import_module(module)
        except ImportError as error:
            raise BadInput(f"reports need {library}: pip install 'mdgan[plots]'") from error


def write_report(
    paths: Sequence[Path], output: Path | None = None, figures: Path | None = None
) -> Report:
    """Writes the report of some runs, which may still be going on.

    Args:
        paths: their folders, at least one.
        output: the page; by default `report.html` in the folder of the only run, or here.
        figures: a folder for every figure as PNG and as SVG.

    Raises:
        BadInput: matplotlib or jinja2 is not installed, a folder is no run or is given twice, or
            a file cannot be written.
    """
    check_plots_extra()
    from mdgan.report.compose import compose

    runs = _read(paths)
    output = output or (paths[0] / PAGE_NAME if len(paths) == 1 else Path(PAGE_NAME))
    if figures is not None:
        _written(lambda: figures.mkdir(parents=True, exist_ok=True), f"--figures {figures}")
    where = f"--figures {figures}" if figures else str(output)
    html, num_figures, missing = _written(
        lambda: compose(runs, datetime.now().astimezone(), figures), where
    )
    _written(lambda: write_whole(output, html.encode(errors="replace")), f"-o {output}")
    damage = tuple(line for run in runs for line in run.damage)
    return Report(output, num_figures, missing, damage)


def _read(paths: Sequence[Path]) -> list[RecordedRun]:
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise BadInput(f"{path}: given twice; name every run once")
        seen.add(path.resolve())
    return [RecordedRun.read(path) for path in paths]


def _written(write: Callable[[], Result], what: str) -> Result:
    try:
        return write()
    except OSError as error:
        raise BadInput(f"{what}: cannot write there ({error.strerror})") from error
