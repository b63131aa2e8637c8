"""Writes the report of runs: `write_report` reads runs, draws their figures and writes the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path

from mdgan.errors import BadInput, writing
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.run_directory import runs_in
from mdgan.spelling import flag
from mdgan.storage.whole_file import write_output

PAGE_NAME = "report.html"


@dataclass(frozen=True)
class Report:
    """The result of `write_report`."""

    path: Path
    num_figures: int
    missing: dict[str, str]  # figures that fit these runs but could not be drawn, and why
    damage: tuple[str, ...]
    running: bool


def check_plots_extra() -> None:
    """Raises BadInput if a library for figures or for the page is not installed."""
    for library, module in (("matplotlib", "matplotlib.figure"), ("jinja2", "jinja2")):
        try:
            import_module(module)
        except ImportError as error:
            raise BadInput(f"reports need {library}", "pip install 'mdgan[plots]'") from error


def write_report(
    paths: Sequence[Path],
    output: Path | None = None,
    figures: Path | None = None,
    *,
    all_files: bool = False,
    refresh_seconds: float | None = None,
) -> Report:
    """Writes the report of some runs, which may still go on.

    Args:
        output: the page; by default `report.html` in the only path, or in the working directory.
        figures: a folder for each figure as PDF and its numbers as CSV.
        all_files: whether to write further views, PNG and SVG into that folder, too.
        refresh_seconds: how often a browser reloads the page while a run goes on; None: never.

    Raises:
        BadInput: a library is missing, a folder is no run, or a file cannot be written.
    """
    check_plots_extra()
    from mdgan.report.compose import compose

    runs, damage = _read(paths)
    output = output or (paths[0] / PAGE_NAME if len(paths) == 1 else Path(PAGE_NAME))
    written = datetime.now().astimezone()
    with writing(flag("figures", figures)):
        if figures is not None:
            figures.mkdir(parents=True, exist_ok=True)
        html, num_figures, missing = compose(
            runs, written, figures, refresh_seconds=refresh_seconds, all_files=all_files
        )
    write_output(output, html.encode(errors="replace"))
    damage += [line for run in runs for line in run.damage]
    running = any(run.under_way for run in runs)
    return Report(output, num_figures, missing, damage=tuple(damage), running=running)


def _read(paths: Sequence[Path]) -> tuple[list[RecordedRun], list[str]]:
    """Reads the runs; also returns why runs in a folder of runs are left out."""
    runs: dict[Path, RecordedRun] = {}
    left_out: list[BadInput] = []
    for path in paths:
        for folder in runs_in(path):
            if folder.resolve() in runs:
                raise BadInput(folder, "given twice", "name every run once")
            try:
                runs[folder.resolve()] = RecordedRun.read_for_others(folder)
            except BadInput as error:
                if folder == path:
                    raise
                left_out.append(error)
    if not runs:
        raise left_out[0]
    return list(runs.values()), [f"left out: {error}" for error in left_out]
