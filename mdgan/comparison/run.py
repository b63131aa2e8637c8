"""`mdgan compare`: checks and trains configurations, writes the report and the numbers."""

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mdgan import __version__
from mdgan.comparison.plan import Configuration, jobs_at_once, list_trainings, read_configurations
from mdgan.comparison.schedule import Schedule
from mdgan.comparison.table import as_table, measure
from mdgan.errors import BadInput, cannot_write
from mdgan.report.build import PAGE_NAME, check_plots_extra, write_report
from mdgan.storage.whole_file import write_output

_log = logging.getLogger(__name__)
_say = partial(_log.info, extra={"shown": "result"})

TABLE_NAME = "comparison.json"
_CONFIGS = "configs"
_STOPPED = 130


def run_comparison(
    files: Sequence[Path],
    flags: Mapping[str, Any],
    seeds: Sequence[int],
    out: Path,
    *,
    jobs: int | None,
    resume: bool,
    paper_scale: bool = False,
) -> int:
    """Trains every configuration with every seed, and compares them.

    Args:
        jobs: how many trainings run at once; None for as many as the cores allow.
        paper_scale: whether to use the files' settings for the scale of the papers.

    Returns:
        The exit status: 0 done, 1 some training failed, 130 a user or a signal stopped it.

    Raises:
        BadInput: a training cannot work; none was started and nothing was written.
    """
    check_plots_extra()
    configurations = read_configurations(files, flags, seeds[0], paper_scale=paper_scale)
    trainings = list_trainings(configurations, seeds, out, resume=resume)
    for warning in dict.fromkeys(line for each in configurations for line in each.warnings):
        _log.warning("warning: %s", warning)
    _write_configs(configurations, out)
    at_once = jobs_at_once(configurations) if jobs is None else jobs
    schedule = Schedule(trainings, out / _CONFIGS, at_once)
    if not schedule.run():
        _say("stopped; the same command with --out %s --resume goes on", out)
        return _STOPPED
    ordered = [t for each in configurations for t in trainings if t.configuration is each]
    runs = [t.folder for t in ordered if (t.folder / "run.json").is_file()]
    found = measure(trainings)
    table = {"version": __version__, "seeds": list(seeds), "configurations": found}
    _write_json(out / TABLE_NAME, table)
    _say("\n%s\n", as_table(found))
    if runs:
        written = write_report(runs, out / PAGE_NAME)
        for line in written.damage:
            _log.warning("%s", line)
        _say("%s: %d figures", written.path, written.num_figures)
    _say("%s: the numbers", out / TABLE_NAME)
    if schedule.failed:
        _log.error("failed: %s", "; ".join(training.label for training in schedule.failed))
    return 1 if schedule.failed else 0


def _write_configs(configurations: Sequence[Configuration], out: Path) -> None:
    """Keeps the settings with their runs: a file that is edited meanwhile changes nothing."""
    try:
        (out / _CONFIGS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(cannot_write(f"--out {out}", error)) from error
    for each in configurations:
        _write_json(out / _CONFIGS / f"{each.name}.json", each.settings)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_output("--out", path, (json.dumps(content, indent=2) + "\n").encode())
