"""`mdgan watch` as a user reads it."""

from pathlib import Path

from click.testing import CliRunner, Result

from mdgan.cli.inspect import watch

ESCAPE = "\x1b"


def command(*arguments: object, columns: int = 80) -> Result:
    environment = {"COLUMNS": str(columns), "FORCE_COLOR": "", "NO_COLOR": ""}
    return CliRunner().invoke(watch, [str(argument) for argument in arguments], env=environment)


def shown(path: Path, columns: int = 80) -> list[str]:
    """The lines of one frame, without spaces at their ends."""
    done = command(path, "--once", columns=columns)
    assert done.exit_code == 0, done.exception
    assert ESCAPE not in done.stdout
    assert all(len(line) <= columns for line in done.stdout.splitlines())
    return [line.rstrip() for line in done.stdout.splitlines()]


def workers(lines: list[str]) -> dict[str, list[str]]:
    """The other cells of the table, by rank."""
    (head,) = (number for number, line in enumerate(lines) if line.split()[:1] == ["rank"])
    rows = {}
    for line in lines[head + 1 :]:
        if not line or "more" in line:
            break
        rank, *cells = [" ".join(cell.split()) for cell in line.split("  ") if cell.strip()]
        rows[rank] = cells
    return rows
