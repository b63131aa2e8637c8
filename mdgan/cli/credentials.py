"""`mdgan credentials`: makes, shows and revokes the certificates of a run's machines."""

from datetime import timedelta
from pathlib import Path

import click

from mdgan.cli.help import Commands
from mdgan.cli.options import number
from mdgan.credentials.pem import in_words
from mdgan.errors import BadInput
from mdgan.launch.ranks import parse_ranks
from mdgan.spelling import flag

_MOST_DAYS = 36_500
_ROLES = ("worker", "server", "standby")
_DAYS = 365
_AUTHORITY_DAYS = 3_650
_RANKS_BELOW = 1_000_000

_folder = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
_file = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


@click.group(
    cls=Commands, examples=("mdgan credentials new run.cred", "mdgan credentials init authority")
)
def credentials() -> None:
    """Make the certificates with which the machines of a run know each other.

    If all machines are yours, `new` is enough: one file for all of them. If they belong to several
    owners, `init` makes an authority, and `issue` a file for each machine.
    """


@credentials.command(examples=("mdgan credentials new run.cred",))
@_file
@number("--days", least=1, most=_MOST_DAYS, default=_DAYS, help="How long it is valid.")
def new(file: Path, days: int) -> None:
    """Write one FILE that all machines of one owner share.

    With it a machine may be the server, a worker or a standby: copy it only to your own machines.
    """
    from mdgan.credentials.files import write_shared

    end = write_shared(file, timedelta(days=days))
    print(
        f"{file}: credentials for all machines of a run, valid until {in_words(end)}; "
        "copy it to each of them and keep it secret"
    )


@credentials.command(examples=("mdgan credentials init authority",))
@_folder
@number(
    "--days",
    least=1,
    most=_MOST_DAYS,
    default=_AUTHORITY_DAYS,
    help="How long it is valid; no certificate that it issues is valid longer.",
)
def init(folder: Path, days: int) -> None:
    """Make an authority in DIR, which issues certificates for machines of several owners.

    DIR/ca.key signs them: keep DIR on one machine that others cannot read.
    """
    from mdgan.credentials.files import make_folder_of_authority

    end = make_folder_of_authority(folder, timedelta(days=days))
    print(
        f"{folder}: a new authority, valid until {in_words(end)}; "
        f"`mdgan credentials issue {folder} NAME` makes the file of a machine"
    )


@credentials.command(
    examples=(
        "mdgan credentials issue authority alice --ranks 3,4",
        "mdgan credentials issue authority main --role server",
        "mdgan credentials issue authority guest --hours 12",
    )
)
@_folder
@click.argument("name")
@click.option("--ranks", metavar="R,…", help="Ranks that it may have: 3,4 or 3..6.  [default: any]")
@click.option("--role", type=click.Choice(_ROLES), default="worker", help="What it may be.")
@number("--days", least=1, most=_MOST_DAYS, help=f"How long it is valid.  [default: {_DAYS}]")
@number("--hours", least=1, most=24 * _MOST_DAYS, help="The same, in hours.")
def issue(
    folder: Path, name: str, ranks: str | None, role: str, days: int | None, hours: int | None
) -> None:
    """Write DIR/NAME.cred, the file of one machine. A worker's can never pass for the server's."""
    from mdgan.credentials import files

    if days is not None and hours is not None:
        why = f"{flag('days', days)} says it already"
        raise BadInput(flag("hours", hours), why, "leave one of them out")
    valid_for = timedelta(hours=hours) if hours else timedelta(days=days or _DAYS)
    numbers = parse_ranks(ranks, _RANKS_BELOW) if ranks is not None else []
    path, end = files.issue(folder, name, role=role, ranks=numbers, valid_for=valid_for)
    print(
        f"{path}: credentials of a {role}, valid until {in_words(end)}; "
        f"copy it to the machine of {name} and keep it secret"
    )


@credentials.command(examples=("mdgan credentials revoke authority alice",))
@_folder
@click.argument("name")
def revoke(folder: Path, name: str) -> None:
    """Add what was issued to NAME to the signed list DIR/revoked.pem, which servers read."""
    from mdgan.credentials import files

    path = files.revoke(folder, name)
    print(f"{path}: {name} is revoked; servers read the list with --revoked {path}")


@credentials.command(examples=("mdgan credentials show run.cred",))
@_file
def show(file: Path) -> None:
    """Show the name, role and ranks in FILE, until when it is valid, and its fingerprint."""
    from mdgan.credentials.files import describe

    print(describe(file))
