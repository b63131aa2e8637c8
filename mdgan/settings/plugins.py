"""What other installed packages add to mdgan, as entry points that their `pyproject.toml` names.

A command looks for them whenever it starts, so looking is cheap: only where some package has a
group of mdgan's is anything imported.
"""

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mdgan.errors import BadInput, reason_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FAMILIES, SAMPLES, ARCHITECTURES = "mdgan.families", "mdgan.samples", "mdgan.architectures"
"""The groups: of algorithms, of kinds of samples, of models."""

Kind = TypeVar("Kind")


@cache
def installed(group: str) -> "dict[str, list[EntryPoint]]":
    """The entry points of a group by name, in the order of their names; none is imported.

    Of one name there are several where packages know nothing of each other.
    """
    if not _any_is_installed():
        return {}
    from importlib.metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=group)):
        found.setdefault(entry.name, []).append(entry)
    return found


@cache
def _any_is_installed() -> bool:
    files = (
        file for folder in sys.path for file in Path(folder or ".").glob("*-info/entry_points.txt")
    )
    return any(b"[mdgan." in file.read_bytes() for file in files)


def load(group: str, name: str, kind: type[Kind]) -> Kind:
    """Imports what an entry point names.

    Raises:
        BadInput: its package cannot be imported, the entry point is something else than a `kind`,
            or several packages have one of that name; one line that names the packages.
    """
    entry, *others = installed(group)[name]
    package = _package(entry)
    if others:
        packages = " and ".join([package, *map(_package, others)])
        raise BadInput(name, f"the packages {packages} both bring one", "uninstall one of them")
    try:
        found = entry.load()
    except (Exception, SystemExit) as error:  # code of others may raise anything
        raise BadInput(
            name,
            f"the package {package} cannot be imported: {type(error).__name__}: {reason_of(error)}",
            "repair or uninstall it",
        ) from error
    if not isinstance(found, kind):
        raise BadInput(
            name,
            f"{entry.value} of the package {package} must be of the class {kind.__name__}, not "
            f"{type(found).__name__}",
        )
    return found


def _package(entry: "EntryPoint") -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module
