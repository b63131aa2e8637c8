"""Finds what other installed packages add to mdgan, by the entry points in their `pyproject.toml`.

Every command looks for them when it starts, so looking must be cheap: nothing is imported unless
some package has entry points for mdgan.
"""

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mdgan.errors import BadInput, reason_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FAMILIES, SAMPLES, ARCHITECTURES = "mdgan.families", "mdgan.samples", "mdgan.architectures"
"""The groups of entry points: algorithms, kinds of samples, models."""

Kind = TypeVar("Kind")


@cache
def installed(group: str) -> "dict[str, list[EntryPoint]]":
    """The entry points of a group by name, in the order of their names; imports none.

    A name has several entry points if several packages use it.
    """
    if not _any_is_installed():
        return {}
    from importlib.metadata import entry_points

    by_name: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=group)):
        by_name.setdefault(entry.name, []).append(entry)
    return by_name


@cache
def _any_is_installed() -> bool:
    files = (
        file for folder in sys.path for file in Path(folder or ".").glob("*-info/entry_points.txt")
    )
    return any(b"[mdgan." in file.read_bytes() for file in files)


def load(group: str, name: str, kind: type[Kind]) -> Kind:
    """Imports the object that an entry point names.

    Raises:
        BadInput: with one line that names the packages: the package cannot be imported, the object
            is no `kind`, or several packages have an entry point of that name.
    """
    entry, *others = installed(group)[name]
    package = _package(entry)
    if others:
        packages = " and ".join([package, *map(_package, others)])
        raise BadInput(name, f"the packages {packages} both bring one", "uninstall one of them")
    try:
        thing = entry.load()
    except (Exception, SystemExit) as error:  # a package's code may raise anything
        raise BadInput(
            name,
            f"the package {package} cannot be imported: {type(error).__name__}: {reason_of(error)}",
            "repair or uninstall it",
        ) from error
    if not isinstance(thing, kind):
        raise BadInput(
            name,
            f"{entry.value} of the package {package} must be of the class {kind.__name__}, not "
            f"{type(thing).__name__}",
        )
    return thing


def _package(entry: "EntryPoint") -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module
