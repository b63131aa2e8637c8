"""The registry of algorithms: folders beside this file, and algorithms of installed packages."""

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
BASELINE = STANDALONE.name  # the algorithm with its own command
_unusable: dict[str, str] | None = None
"""By name, why an installed package's algorithm is unusable; None before packages are searched."""


def register(entry: Algorithm[Any]) -> None:
    """Adds an algorithm, before the command line is built; ValueError if its name is taken."""
    if entry.name in _ALGORITHMS:
        raise ValueError(f"there is an algorithm {entry.name} already")
    _ALGORITHMS[entry.name] = entry


def _all() -> dict[str, Algorithm[Any]]:
    """All algorithms by name; the first call imports those of installed packages."""
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
    """The unusable algorithms of installed packages: name → why, in one line."""
    _all()
    return _unusable or {}


def shown() -> tuple[WorkerNumbers, ...]:
    """The numbers that any algorithm records of workers beside losses."""
    return tuple(numbers for entry in _all().values() for numbers in entry.shown)


def names() -> tuple[str, ...]:
    """The names of all algorithms."""
    return tuple(_all())


def own_name(name: str) -> str:
    """The registered name for one as papers write it, such as `MD-GAN`; other texts unchanged."""
    plain = name.lower().replace("-", "")
    return next((real for real in _all() if real.replace("-", "") == plain), name)


def command(name: str) -> str:
    """The command that trains with an algorithm."""
    return name if name == BASELINE else "train"


def algorithm(name: str) -> Algorithm[Any]:
    """The algorithm of a name; raises `BadInput` for an unknown or unusable one."""
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
        variants = [(entry.server_phases, entry.host_phases)]
        variants += [entry.phases(entry.settings(merge_halves=merges)) for merges in (False, True)]
        for phases in variants:
            for wing, names_of_wing in zip(wings, phases, strict=True):
                wing.update(dict.fromkeys(names_of_wing))
    return tuple(wings[0]), tuple(wings[1])


def with_setting(name: str) -> list[str]:
    """The names of the algorithms with this setting."""
    return [entry.name for entry in _all().values() if name in entry.settings.names()]


def settings_of_models() -> frozenset[str]:
    """The settings of any algorithm whose best values depend on the models."""
    return frozenset().union(*(entry.of_models for entry in _all().values()))


def declared_settings() -> dict[str, Setting]:
    """Every setting that any algorithm has, by name, in the order of `--help`."""
    ordered: dict[str, Setting] = {}
    for entry in _all().values():
        ordered = {**entry.settings.declared(), **ordered}
    return ordered


def chosen_algorithm(layers: Sequence[Mapping[str, Any]]) -> Algorithm[Any]:
    """The algorithm that the first layer with an `algorithm` names, or the default."""
    chosen = [layer["algorithm"] for layer in layers if layer.get("algorithm") is not None]
    return algorithm(chosen[0] if chosen else DEFAULT)


def read_settings(
    layers: Sequence[Mapping[str, Any]], dataset_defaults: Mapping[str, Any] | None = None
) -> RunSettings:
    """Reads and checks the settings of a run; layers are flags, then the config file.

    None in a layer means no value. `dataset_defaults` are for settings without a value of the user
    or the algorithm; those of other algorithms are left out. Without `dataset_defaults` the dataset
    file, which may still register names, has not been read.
    """
    layers = [modern(layer, "settings") for layer in layers]
    entry = chosen_algorithm(layers)
    chosen = {"algorithm": entry.name}
    if dataset_defaults is None:
        layers = [_without_names_to_come(layer) for layer in layers]
    beside = entry.settings.defaults_beside(merged(layers, declared_settings().values()))
    # A dataset file may have settings of other algorithms, except those that promise privacy.
    foreign = declared_settings().keys() - entry.settings.names() - _PROMISES
    fitting = {n: value for n, value in (dataset_defaults or {}).items() if n not in foreign}
    all_layers = (chosen, *layers, beside, entry.defaults, fitting)
    _refuse_foreign(entry, all_layers)
    settings: RunSettings = entry.settings.read(*all_layers)
    return settings


def _without_names_to_come(layer: Mapping[str, Any]) -> dict[str, Any]:
    """A layer with a stand-in for each unknown name that the dataset file may still register."""
    declared, result = declared_settings(), {}
    for name, value in layer.items():
        item = declared.get(name)
        result[name] = value
        if item is not None and item.kind.grows and value is not None:
            try:
                item.read(value)
            except BadInput:
                result[name] = item.kind.stand_in
    return result


_PROMISES = {"dp_epsilon", "dp_noise"}


def _refuse_foreign(entry: Algorithm[Any], layers: Sequence[Mapping[str, Any]]) -> None:
    """Refuses settings of other algorithms, unless they have their default.

    An algorithm that `ignores_foreign` refuses only those that would promise privacy.
    """
    declared = declared_settings()
    values = merged(layers, declared.values())
    names = _PROMISES & values.keys() if entry.settings.ignores_foreign else values
    for name, value in ((name, values[name]) for name in names):
        if name in declared and name not in entry.settings.names():
            item = declared[name]
            if item.read(value) != item.read(item.default) or item.is_choice:
                others = " or ".join(with_setting(name)[:2])
                way_out = f"leave it out, or use {flag('algorithm', others)}"
                raise BadInput(item.given(value), f"{entry.name} has no use for it", way_out)
