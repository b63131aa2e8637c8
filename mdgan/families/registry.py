"""All algorithms: folders beside this file with an entry here, and those of installed packages."""

from collections.abc import Mapping, Sequence
from typing import Any

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families.contract import Algorithm
from mdgan.families.data_parallel.settings import PARAGAN
from mdgan.families.federated.settings import FEGAN, FL_GAN
from mdgan.families.mdgan.settings import MDGAN
from mdgan.families.moments.settings import MOMENTS
from mdgan.families.standalone.settings import STANDALONE
from mdgan.records.rows import WorkerNumbers
from mdgan.settings.declare import Setting, suggest
from mdgan.settings.layers import merged
from mdgan.settings.plugins import FAMILIES, installed, load
from mdgan.settings.retired import modern
from mdgan.spelling import flag

_ALGORITHMS: dict[str, Algorithm[Any]] = {
    entry.name: entry for entry in (MDGAN, FL_GAN, FEGAN, PARAGAN, MOMENTS, STANDALONE)
}
DEFAULT = MDGAN.name
BASELINE = STANDALONE.name  # the algorithm that has a command of its own
_unusable: dict[str, str] | None = None
"""Algorithms of installed packages that cannot be used, and why; None: not looked for yet."""


def register(entry: Algorithm[Any]) -> None:
    """Adds a program's algorithm, before the command line is built; ValueError if it exists."""
    if entry.name in _ALGORITHMS:
        raise ValueError(f"there is an algorithm {entry.name} already")
    _ALGORITHMS[entry.name] = entry


def _all() -> dict[str, Algorithm[Any]]:
    """All algorithms by name; at the first call those of installed packages are imported."""
    global _unusable
    if _unusable is None:
        _unusable = {}
        for name in installed(FAMILIES):
            try:
                entry = load(FAMILIES, name, Algorithm)
                if entry.name != name:
                    raise BadInput(name, f"its package calls this algorithm {entry.name}")
                register(entry)
            except ValueError as error:
                _unusable[name] = str(error)
    return _ALGORITHMS


def unusable() -> Mapping[str, str]:
    """Algorithms of installed packages that cannot be used: name → why, in one line."""
    _all()
    return _unusable or {}


def shown() -> tuple[WorkerNumbers, ...]:
    """What all algorithms record of their workers beside losses."""
    return tuple(numbers for entry in _all().values() for numbers in entry.shown)


def names() -> tuple[str, ...]:
    """The names of all algorithms."""
    return tuple(_all())


def own_name(name: str) -> str:
    """The algorithm's own name where a user wrote it as its paper does; else the same text."""
    return next((own for own, entry in _all().items() if name in entry.other_names), name)


def command(name: str) -> str:
    """The command that trains with an algorithm."""
    return name if name == BASELINE else "train"


def algorithm(name: str) -> Algorithm[Any]:
    """One algorithm by its name, or `BadInput`."""
    name = own_name(name) if isinstance(name, str) else name
    if isinstance(name, str) and name in unusable():
        raise BadInput(flag("algorithm", name), unusable()[name].removeprefix(f"{name}: "))
    if not isinstance(name, str) or name not in _all():
        near = suggest(str(name), names())
        raise BadInput(flag("algorithm", str(name)), f"must be one of {', '.join(names())}{near}")
    return _all()[name]


def all_phases() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The phases of all algorithms: the server's and a host's."""
    wings: tuple[dict[str, None], dict[str, None]] = ({}, {})
    for entry in _all().values():
        every = [(entry.server_phases, entry.host_phases)]
        every += [entry.phases(entry.settings(merge_halves=merges)) for merges in (False, True)]
        for phases in every:
            for wing, present in zip(wings, phases, strict=True):
                wing.update(dict.fromkeys(present))
    return tuple(wings[0]), tuple(wings[1])


def with_setting(name: str) -> list[str]:
    """The names of the algorithms that have a setting."""
    return [entry.name for entry in _all().values() if name in entry.settings.names()]


def settings_of_models() -> frozenset[str]:
    """The settings of all algorithms of which the best values depend on the models."""
    return frozenset().union(*(entry.of_models for entry in _all().values()))


def declared_settings() -> dict[str, Setting]:
    """Every setting that any algorithm has, by name, in the order of `--help`."""
    ordered: dict[str, Setting] = {}
    for entry in _all().values():
        ordered = {**entry.settings.declared(), **ordered}
    return ordered


def chosen_algorithm(layers: Sequence[Mapping[str, Any]]) -> Algorithm[Any]:
    """The algorithm that the first layer with an `algorithm` names, or the default."""
    given = [layer["algorithm"] for layer in layers if layer.get("algorithm") is not None]
    return algorithm(given[0] if given else DEFAULT)


def read_settings(
    layers: Sequence[Mapping[str, Any]], dataset_defaults: Mapping[str, Any] | None = None
) -> RunSettings:
    """The settings of a run, checked; layers are flags, then the config file.

    None stands for a value that was not given. `dataset_defaults` hold where neither the user nor
    the algorithm has a value, and those that the algorithm has no use for are left out. Without
    them, the dataset file may still register names to come.
    """
    layers = [modern(layer, "settings") for layer in layers]
    entry = chosen_algorithm(layers)
    own = {"algorithm": entry.name}
    if dataset_defaults is None:
        layers = [_without_names_to_come(layer) for layer in layers]
    beside = entry.settings.defaults_beside(merged(layers, declared_settings().values()))
    # A dataset file may also speak of other algorithms, but not promise.
    foreign = declared_settings().keys() - entry.settings.names() - _PROMISES
    fitting = {n: value for n, value in (dataset_defaults or {}).items() if n not in foreign}
    all_layers = (own, *layers, beside, entry.defaults, fitting)
    _refuse_foreign(entry, all_layers)
    settings: RunSettings = entry.settings.read(*all_layers)
    return settings


def _without_names_to_come(layer: Mapping[str, Any]) -> dict[str, Any]:
    """A layer without names that are not known, where the dataset file may still add some."""
    declared, kept = declared_settings(), {}
    for name, value in layer.items():
        item = declared.get(name)
        kept[name] = value
        if item is not None and item.kind.grows and value is not None:
            try:
                item.read(value)
            except BadInput:
                kept[name] = item.kind.stand_in
    return kept


_PROMISES = {"dp_epsilon", "dp_noise"}


def _refuse_foreign(entry: Algorithm[Any], layers: Sequence[Mapping[str, Any]]) -> None:
    """Refuses settings of other algorithms, unless they have the value that changes nothing.

    Of an algorithm that ignores them only those that would promise something.
    """
    declared = declared_settings()
    given = merged(layers, declared.values())
    names = _PROMISES & given.keys() if entry.settings.ignores_foreign else given
    for name, value in ((name, given[name]) for name in names):
        if name in declared and name not in entry.settings.names():
            item = declared[name]
            if item.read(value) != item.read(item.default) or item.is_choice:
                others = " or ".join(with_setting(name)[:2])
                way_out = f"leave it out, or use {flag('algorithm', others)}"
                raise BadInput(item.given(value), f"{entry.name} has no use for it", way_out)
