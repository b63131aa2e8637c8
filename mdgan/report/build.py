"""Reads runs, draws every figure, writes the page."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path

from mdgan.errors import BadInput, cannot_write
from mdgan.observe.progress import redrawn
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.run_directory import runs_in
from mdgan.storage.whole_file import write_whole

_log = logging.getLogger(__name__)

PAGE_NAME = "report.html"


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        missing: name → why, of the figures that are for these runs but could not.
        running: whether one of the runs goes on, so that the page may be written again.
    """

    path: Path
    num_figures: int
    missing: dict[str, str]
    damage: tuple[str, ...]
    running: bool


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
    paths: Sequence[Path],
    output: Path | None = None,
    figures: Path | None = None,
    *,
    refresh_seconds: float | None = None,
) -> Report:
    """Writes the report of some runs, which may still be going on.

    It may be called again and again while they do. Each time the page is replaced in one step.

    Args:
        output: the page; by default `report.html` in the folder of the only path, or here.
        refresh_seconds: how often a browser that shows the page reads it again as long as a run
            goes on; None for never.

    Raises:
        BadInput: matplotlib or jinja2 is not installed, a folder is no run and has none in it, a
            run is given twice, or a file cannot be written.
    """
    check_plots_extra()
    from mdgan.report.compose import compose

    runs, damage = _read(paths)
    output = output or (paths[0] / PAGE_NAME if len(paths) == 1 else Path(PAGE_NAME))
    written = datetime.now().astimezone()
    with _writing(f"--figures {figures}"):
        if figures is not None:
            figures.mkdir(parents=True, exist_ok=True)
        html, num_figures, missing = compose(runs, written, figures, refresh_seconds, _show_step)
    with _writing(f"-o {output}"):
        write_whole(output, html.encode(errors="replace"))
    damage += [line for run in runs for line in run.damage]
    running = any(run.under_way for run in runs)
    return Report(output, num_figures, missing, tuple(damage), running)


def _show_step(text: str) -> None:
    """Shows what is being done where the line before is overwritten; a log needs no such lines."""
    if redrawn():
        _log.info("%s …", text, extra={"shown": "live"})


def _read(paths: Sequence[Path]) -> tuple[list[RecordedRun], list[str]]:
    """The runs, and why some that lie in a folder of runs are left out."""
    runs: dict[Path, RecordedRun] = {}
    damage: list[str] = []
    for path in paths:
        for folder in runs_in(path):
            if folder.resolve() in runs:
                raise BadInput(f"{folder}: given twice; name every run once")
            _show_step(f"reading {folder}")
            try:
                runs[folder.resolve()] = RecordedRun.read(folder)
            except BadInput as error:
                if folder == path:
                    raise
                damage.append(f"left out: {error}")
    if not runs:
        raise BadInput(damage[0].removeprefix("left out: "))
    return list(runs.values()), damage


@contextmanager
def _writing(what: str) -> Iterator[None]:
    """Names what cannot be written."""
    try:
        yield
    except OSError as error:
        raise BadInput(cannot_write(what, error)) from error
