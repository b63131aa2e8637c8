"""`mdgan log`: looks after the audit log of a run."""

from pathlib import Path

import click

from mdgan.cli.help import Commands
from mdgan.cli.options import run_argument


@click.group(cls=Commands, examples=("mdgan log verify runs/first",))
def log() -> None:
    """Check the audit log of a run, which tells which hosts came, went or were refused."""


@log.command(examples=("mdgan log verify runs/first",))
@run_argument
def verify(run: Path) -> int:
    """Say whether the audit log of RUN is whole: each line holds the hash of the line before.

    Exit status 0 if it is, 1 if a line does not follow from those before. Who can write to RUN can
    write the whole log anew: compare the last hash with one that you noted elsewhere.
    """
    from mdgan.records import audit_log
    from mdgan.records.values import count

    found = audit_log.verify(run)
    path, entries = run / audit_log.AUDIT_LOG_FILE, count(found.entries, "entry", "entries")
    if found.trouble:
        print(f"{path}: breaks at line {found.entries + 1}, after {entries}: {found.trouble}")
        return 1
    print(f"{path}: whole, {entries}, the last with SHA-256 {found.sha256}")
    return 0
