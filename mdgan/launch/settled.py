"""Loads the dataset file of a run, and merges all defaults to the settings that it trains with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from mdgan.data import dataset_file
from mdgan.data.dataset_file import DatasetFile
from mdgan.data.settings import KEPT_SCHEMA
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.contract import Builder
from mdgan.gan.build import Models
from mdgan.gan.losses import check_losses
from mdgan.gan.optimizer_settings import OPTIMIZER_NAMES
from mdgan.gan.optimizers import kept_by_registered
from mdgan.gan.regularizers.registry import SETTINGS_OF_MODELS
from mdgan.launch.given import Named
from mdgan.launch.models import models_of
from mdgan.launch.ranks import local_ranks
from mdgan.models.registry import architecture
from mdgan.models.settings import FILE, ModelSettings
from mdgan.records.run_directory import RunDirectory
from mdgan.samples.table.schema import read_schema
from mdgan.settings.layers import merged
from mdgan.settings.machine import path_of
from mdgan.spelling import flag, key
from mdgan.storage.checkpoints import Checkpoints
from mdgan.version import SERIES

_OF_MODELS = {
    *ModelSettings.names(),
    *("generator_optimizer", "discriminator_optimizer"),
    *("generator_loss", "discriminator_loss", "local_steps"),
    *SETTINGS_OF_MODELS,
}
"""Settings whose best values depend on the models; algorithms name more of them."""


@dataclass(frozen=True, kw_only=True)
class Loaded(Named):
    """A run whose dataset file has been executed and prepared."""

    dataset: DatasetFile
    # Values of settings for which neither the user nor the algorithm has one.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    from_folders: Mapping[str, Any] = field(default_factory=dict)  # settings that data decide
    notes: tuple[str, ...] = ()  # lines about them for the user


def load(named: Named, *, looks_at_folders: bool = True) -> Loaded:
    """Loads the dataset file, or the copy of it in a resumed run.

    Args:
        looks_at_folders: whether data folders may decide settings. They never do in a resumed run,
            or if a server has sent the settings.
    """
    torch.set_num_threads(1)  # the launcher forks, so it must not have a pool of threads
    data = named.draft.data
    kept = None if named.continues is None else RunDirectory(named.continues)
    if kept is not None and (path := kept.dataset_file(data.dataset)).is_file():
        dataset = dataset_file.load_path(path)
    else:
        dataset = dataset_file.load(data.dataset, data.datasets_dir)
    declared = registry.declared_settings()
    dataset_file.check_defaults(dataset, [name for name, item in declared.items() if item.shared])
    defaults = default_settings(named.layers, dataset)
    settings, notes = dict[str, Any](), list[str]()
    if looks_at_folders and named.continues is None and named.joins_as is None:
        settings, notes = _settings_from_folders(named, dataset, defaults)
    if looks_at_folders and named.continues is None:
        _add_picture_bits(named, dataset, settings, notes)
    return Loaded(
        **named.known,
        dataset=dataset.prepared(data.but(**settings, **_schema_of_run(named))),
        defaults=defaults,
        from_folders=settings,
        notes=tuple(notes),
    )


def _schema_of_run(named: Named) -> dict[str, str]:
    """The setting `schema` of a resumed run, its copy; BadInput if the user names another one."""
    data, path = named.draft.data, named.continues
    if named.resumes_or_starts and (out := RunDirectory(path_of(named.launch.out or "."))):
        path = out.path if Checkpoints(out.checkpoints, keep=1).exist() else None
    if path is None or not (kept := RunDirectory(path).kept(KEPT_SCHEMA)).is_file():
        return {}
    before = RunDirectory(path).read_config()
    if data.target != before.get("target"):
        why = f"{path} was trained with {flag('target', before.get('target') or 'none')}"
        raise BadInput(flag("target", data.target or "none"), why, "start a new run")
    if data.schema is not None and (
        data.schema != before.get("schema") or Path(data.schema).exists()
    ):
        theirs, ours = (read_schema(each).sha256 for each in (path_of(data.schema), kept))
        if theirs != ours:
            why = f"is another schema (sha256 {theirs}) than that of {path} (sha256 {ours})"
            raise BadInput(flag("schema", data.schema), why, f"give {kept}, or start a new run")
    return {"schema": str(kept)}


def default_settings(layers: Sequence[Mapping[str, Any]], dataset: DatasetFile) -> dict[str, Any]:
    """Values of settings for which neither the user nor the algorithm has one.

    If the user names an architecture, its defaults replace all DEFAULTS of the file about models.
    If the file's DEFAULTS name the architecture, they come before its own.
    """
    named = [layer["architecture"] for layer in layers if layer.get("architecture") is not None]
    name = named[0] if named else dataset.defaults.get("architecture", FILE)
    defaults = {} if name == FILE else architecture(name).defaults
    if not named:
        return merged([dataset.defaults, defaults], registry.declared_settings().values())
    replaced = ModelSettings.names() if name == FILE else _OF_MODELS | registry.settings_of_models()
    return {**{n: v for n, v in dataset.defaults.items() if n not in replaced}, **defaults}


def _settings_from_folders(
    named: Named, dataset: DatasetFile, defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Decides, from the data folders, `partition` and `image_size`, with lines for the user.

    It decides them only if all ranks run here. Otherwise each machine has its own data, and the
    settings must still be equal on all machines.
    """
    data, settings, notes = named.draft.data, dict[str, Any](), list[str]()
    if named.ray is not None or not named.draft.num_workers:
        return settings, notes
    ranks = local_ranks(named.draft, named.launch, named.task)
    folders = [data.data_folder(data.dataset, rank) for rank in ranks.workers() or (1,)]
    is_given = any(layer.get("partition") is not None for layer in named.layers)
    has_own = defaults.get("partition") == "none" and not is_given
    folder = flag("data_dir", folders[0])
    if ranks.complete and has_own and len(folders) > len(set(folders)):
        settings["partition"] = "iid"
        notes.append(
            f"{folder}: one {'file' if folders[0].is_file() else 'folder'}, so its samples are "
            f"divided among the workers (iid); {flag('partition', 'none')} gives each of them all"
        )
    if dataset.usual_size is not None and data.image_size is None and ranks.workers():
        side = dataset.usual_size(folders[0])
        if ranks.complete:
            settings["image_size"] = side
        if side < dataset.shape[-1]:
            what = "are trained on as" if ranks.complete else "could be trained on as"
            how = "takes another size" if ranks.complete else "on every machine does that"
            other = key("image_size", "N" if ranks.complete else side)
            notes.append(f"{folder}: pictures {what} {side}×{side}; {other} {how}")
    return settings, notes


def _add_picture_bits(
    named: Named, dataset: DatasetFile, settings: dict[str, Any], notes: list[str]
) -> None:
    """Adds the setting `picture_bits`, if the pictures in the folders have 16 bits, and a note."""
    data = named.draft.data.but(**settings)
    has_workers = named.ray is None and named.draft.num_workers
    if dataset.usual_size is None or data.picture_bits is not None or not has_workers:
        return
    workers, everywhere = [named.joins_as or 1], False
    if named.joins_as is None:
        ranks = local_ranks(named.draft, named.launch, named.task)
        workers, everywhere = ranks.workers(), ranks.complete
    folders = dict.fromkeys(data.data_folder(data.dataset, rank) for rank in workers)
    bits, note = dataset.prepared(data).found_bits(folders, everywhere=everywhere)
    if bits is not None:
        settings["picture_bits"] = bits
        notes.append(f"{flag('data_dir', data.data_dir or folders.popitem()[0])}: {note}")


@dataclass(frozen=True, kw_only=True)
class Settled(Loaded):
    """A run of which every setting has its value."""

    settings: RunSettings

    @cached_property
    def builder(self) -> Builder[Any]:
        """The object that makes the algorithm's server and host parts."""
        return self.algorithm.build()

    @cached_property
    def models(self) -> Models:
        """The functions that build G and D."""
        return models_of(self.settings, self.dataset)

    @cached_property
    def other_defaults(self) -> dict[str, Any]:
        """The defaults, by name, of the settings that have another value in this run."""
        architecture = [{"architecture": self.settings.models.architecture}]
        try:
            defaults = registry.read_settings(
                [{"algorithm": self.algorithm.name}], default_settings(architecture, self.dataset)
            ).as_json()
        except BadInput:  # without the user's settings, those of the dataset file may not fit
            return {}
        chosen = self.settings.as_json()
        return {name: value for name, value in defaults.items() if chosen[name] != value}

    def asked(self, extractor: str) -> dict[str, Any]:
        """The values of settings and dataset file that all ranks share; see `Checked.identity`."""
        shared = self.settings.as_json(shared=True)
        first = {name: shared.pop(name) for name in ("algorithm", "dataset", "world_size")}
        return {
            "version": SERIES,
            **first,
            **shared,
            "dataset_sha256": self.dataset.sha256,
            **self.dataset.agreed,
            "extractor": extractor,
        }


def settle(loaded: Loaded) -> Settled:
    """Merges all defaults. Only this function makes the settings that a run trains with."""
    settings = settings_with((*loaded.layers, loaded.from_folders), loaded.defaults)
    return Settled(**loaded.known, settings=settings)


def settings_with(layers: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any]) -> RunSettings:
    """Reads the settings of a run from layers, then from the algorithm's, then from `defaults`."""
    settings = registry.read_settings(layers, defaults)
    check_losses(settings.training)
    for network in ("generator", "discriminator"):
        if (policy := settings.training.policy(network)).inner in OPTIMIZER_NAMES.registered:
            kept_by_registered(policy)  # raises BadInput if mdgan could not keep its state
    return settings
