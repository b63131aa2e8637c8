"""`mdgan watch`: shows a run while it goes on."""

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--interval",
    type=click.FloatRange(0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks at the folder.",
)
@click.option("--once", is_flag=True, help="Show the run as it is now, and return.")
def watch(run: Path, interval: float, once: bool) -> None:
    """Watch RUN, the --out folder of a run, here or on another machine; Ctrl-C ends watching.

    Shows how far the run is, its losses and FID, and what each worker does. If the output is no
    terminal, each change is printed as plain text.
    """
    from mdgan.observe.live_view import follow

    follow(run, interval, once=once)
