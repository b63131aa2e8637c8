"""`mdgan report`: one page about one or several runs."""

import sys
from pathlib import Path

import click

from mdgan.cli.options import output_option


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@output_option("Where to write.  [default: RUN/report.html; report.html for several runs]")
@click.option(
    "--figures",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write every figure as PNG and SVG into this folder.",
)
def report(runs: tuple[Path, ...], output: Path | None, figures: Path | None) -> None:
    """Write a page with all figures of each RUN, the --out folder of a finished or running run.

    Several runs are compared in one page. The page is one file that any browser opens.
    """
    from mdgan.report.build import write_report

    written = write_report(runs, output, figures)
    for line in written.damage:
        print(f"mdgan: {line}", file=sys.stderr)
    print(f"{written.path}: {written.num_figures} figures")
    if figures is not None:
        print(f"{figures}: the same as PNG and SVG")
