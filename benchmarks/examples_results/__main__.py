"""Runs the examples, and writes which of the papers' figures and tables they reproduce.

    python -m benchmarks.examples_results --list
    python -m benchmarks.examples_results [--only NAME]… [--seeds 0,1,2] [--runs runs/examples]

Trains every group of examples whose settings or seeds have not run yet, one training after another,
as `mdgan compare` does. It also runs the other commands of `examples/papers.toml`. After each group
and command it writes `examples/results.json` and `examples/results.md`, so that you may stop it at
any time. The same command then resumes an interrupted training from its checkpoint, and skips the
finished ones. On an otherwise idle machine with two cores all of it takes about two hours a seed.
Run it from the root of the repository.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.examples_results.numbers import numbers_of_group, output_of_command
from benchmarks.examples_results.page import as_page, is_done
from benchmarks.examples_results.papers import EXAMPLES, Row, read_rows

RECORDS, PAGE = EXAMPLES / "results.json", EXAMPLES / "results.md"


def _read_seeds(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


@click.command(help=__doc__)
@click.option("--only", multiple=True, metavar="NAME", help="A group or a command, as --list says.")
@click.option("--seeds", default="0", callback=_read_seeds, show_default=True)
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs/examples"))
@click.option("--list", "lists", is_flag=True, help="List what has run and what has not.")
@click.option("--page", "writes_page", is_flag=True, help="Write the page alone; run nothing.")
def main(
    only: Sequence[str], seeds: tuple[int, ...], runs: Path, lists: bool, writes_page: bool
) -> None:
    """See the head of this file."""
    papers, rows = read_rows()
    records: dict[str, Any] = json.loads(RECORDS.read_bytes()) if RECORDS.exists() else {}
    groups = {row.group.name: row.group for row in rows if row.group}
    commands = dict.fromkeys(command for row in rows for command in row.commands)
    unknown = set(only) - groups.keys() - commands.keys()
    if unknown:
        raise click.ClickException(f"--only {min(unknown)}: no such group; see --list")
    wanted = [name for name in (*groups, *commands) if not only or name in only]
    missing = [
        name
        for name in wanted
        if not (is_done(groups[name], records, seeds) if name in groups else name in records)
    ]
    if lists:
        for name in wanted:
            print(f"{'not yet' if name in missing else records[name]['commit']:10} {name}")
        return
    for number, name in enumerate(() if writes_page else missing, start=1):
        print(f"[{number}/{len(missing)}] {name}", flush=True)
        if name in groups:
            records[name] = numbers_of_group(groups[name], seeds, runs)
        else:
            records[name] = output_of_command(name)
        _write(papers, rows, records)
    _write(papers, rows, records)


def _write(papers: dict[str, str], rows: Sequence[Row], records: dict[str, Any]) -> None:
    text = json.dumps(dict(sorted(records.items())), indent=1, ensure_ascii=False)
    RECORDS.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(as_page(papers, rows, records), encoding="utf-8")


if __name__ == "__main__":
    main()
