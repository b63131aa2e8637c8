"""What users look at: `report`, one page about runs, and `watch`, a run while it goes on."""

import logging
from pathlib import Path

import click

from mdgan.cli.help import Command
from mdgan.cli.options import PATH, complete_runs, output_option, run_argument

_log = logging.getLogger(__name__)


@click.command(
    cls=Command,
    examples=(
        "mdgan report runs/first",
        "mdgan report runs/first runs/second -o both.html",
        "mdgan report runs/first --serve 0",
    ),
)
@click.argument(
    "runs", nargs=-1, required=True, metavar="RUN...", type=PATH, shell_complete=complete_runs
)
@output_option("Where to write.  [default: RUN/report.html; report.html for several runs]")
@click.option(
    "--figures",
    type=PATH,
    metavar="DIR",
    help="Also write every figure as PNG and SVG into this folder.",
)
@click.option(
    "--live", is_flag=True, help="Write the page again and again until the runs are over."
)
@click.option(
    "--every",
    type=click.FloatRange(1.0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Least time between two pages of --live; browsers read the page again as often.",
)
@click.option(
    "--serve",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="As --live, and serve the page on this machine alone, at http://127.0.0.1:PORT/; 0 takes "
    "a free port.",
)
def report(
    runs: tuple[Path, ...],
    output: Path | None,
    figures: Path | None,
    live: bool,
    every: float,
    serve: int | None,
) -> None:
    """Write a page with all figures of each RUN, the --out folder of a finished or running run.

    A folder with runs in it stands for all of them. Several runs are compared in one page. The
    page is one file that any browser opens. Ctrl-C ends --live and --serve; both end by themselves
    when the runs are over, --serve once browsers have had time to read the last page.
    """
    told = str(runs[0]) if len(runs) == 1 else f"{len(runs)} runs"
    _log.info("writing the report of %s …", told, extra={"shown": "live"})
    from mdgan.report.build import write_report

    if live or serve is not None:
        from mdgan.report.live import keep_writing

        keep_writing(
            runs, lambda: write_report(runs, output, figures, refresh_seconds=every), every, serve
        )
        return
    written = write_report(runs, output, figures)
    for line in written.damage:
        _log.warning("%s", line)
    also = "" if figures is None else f"\n{figures}: the same as PNG and SVG"
    said = f"{written.path}: {written.num_figures} figures{also}"
    _log.info("%s", said, extra={"shown": "result"})


@click.command(cls=Command, examples=("mdgan watch runs/first", "mdgan watch runs/first --once"))
@run_argument
@click.option(
    "--interval",
    type=click.FloatRange(0.1),
    default=1.0,
    metavar="SECONDS",
    help="Time between two looks at the folder.",
)
@click.option("--once", is_flag=True, help="Show the run as it is now, and return.")
def watch(run: Path, interval: float, once: bool) -> None:
    """Watch RUN, the --out folder of a run, here or on another machine; Ctrl-C ends watching.

    Shows how far the run is, its losses and FID, and what each worker does. If the output is no
    terminal, each change is printed as plain text.
    """
    from mdgan.families.mdgan.shown import SHOWN
    from mdgan.observe.live_view import follow

    follow(run, interval, SHOWN, once=once)
