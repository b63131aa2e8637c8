"""The dataset file of a run, and the settings that it trains with."""

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
"""Settings of which the best values depend on the models, beside those that algorithms name."""


@dataclass(frozen=True, kw_only=True)
class Loaded(Named):
    """A run whose dataset file has been executed and prepared."""

    dataset: DatasetFile
    # What holds where neither the user nor the algorithm has a value.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)  # settings that follow from folders
    notes: tuple[str, ...] = ()  # what the user is told of them


def load(named: Named, *, looks_at_folders: bool = True) -> Loaded:
    """Loads the dataset file, or the copy of it in the run that goes on.

    Args:
        looks_at_folders: whether settings may follow from them; never those of a run that goes on,
            or that a server has told.
    """
    torch.set_num_threads(1)  # the launcher forks: it must not have a pool of threads
    own = named.draft.data
    kept = None if named.continues is None else RunDirectory(named.continues)
    if kept is not None and (path := kept.dataset_file(own.dataset)).is_file():
        dataset = dataset_file.load_path(path)
    else:
        dataset = dataset_file.load(own.dataset, own.datasets_dir)
    declared = registry.declared_settings()
    dataset_file.check_defaults(dataset, [name for name, item in declared.items() if item.shared])
    defaults = default_settings(named.layers, dataset)
    found, notes = dict[str, Any](), list[str]()
    if looks_at_folders and named.continues is None and named.joins_as is None:
        found, notes = _found_in_folders(named, dataset, defaults)
    if looks_at_folders and named.continues is None:
        _find_bits(named, dataset, found, notes)
    return Loaded(
        **named.known,
        dataset=dataset.prepared(own.but(**found, **_schema_of_run(named))),
        defaults=defaults,
        found=found,
        notes=tuple(notes),
    )


def _schema_of_run(named: Named) -> dict[str, str]:
    """The schema that a run keeps which goes on, by which its rows are read; BadInput if another.

    A file that the run was started with may be gone; not one that the user names now.
    """
    own, path = named.draft.data, named.continues
    if named.resumes_or_starts and (out := RunDirectory(path_of(named.launch.out or "."))):
        path = out.path if Checkpoints(out.checkpoints, keep=1).exist() else None
    if path is None or not (kept := RunDirectory(path).kept(KEPT_SCHEMA)).is_file():
        return {}
    before = RunDirectory(path).read_config()
    if own.target != before.get("target"):
        why = f"{path} was trained with {flag('target', before.get('target') or 'none')}"
        raise BadInput(flag("target", own.target or "none"), why, "start a new run")
    if own.schema is not None and (own.schema != before.get("schema") or Path(own.schema).exists()):
        theirs, ours = (read_schema(each).sha256 for each in (path_of(own.schema), kept))
        if theirs != ours:
            why = f"is another schema (sha256 {theirs}) than that of {path} (sha256 {ours})"
            raise BadInput(flag("schema", own.schema), why, f"give {kept}, or start a new run")
    return {"schema": str(kept)}


def default_settings(layers: Sequence[Mapping[str, Any]], dataset: DatasetFile) -> dict[str, Any]:
    """What holds where neither the user nor the algorithm has a value.

    An architecture that the user names replaces all that the file's DEFAULTS say of models. If the
    DEFAULTS name it themselves, they come before the architecture's.
    """
    named = [layer["architecture"] for layer in layers if layer.get("architecture") is not None]
    name = named[0] if named else dataset.defaults.get("architecture", FILE)
    own = {} if name == FILE else architecture(name).defaults
    if not named:
        return merged([dataset.defaults, own], registry.declared_settings().values())
    replaced = ModelSettings.names() if name == FILE else _OF_MODELS | registry.settings_of_models()
    return {**{n: v for n, v in dataset.defaults.items() if n not in replaced}, **own}


def _found_in_folders(
    named: Named, dataset: DatasetFile, defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Who holds what of the workers' folders and how large their pictures are; and what is told.

    Only where all ranks run here: else every machine has data of its own, of which the others know
    nothing, and settings must be equal on all.
    """
    own, found, notes = named.draft.data, dict[str, Any](), list[str]()
    if named.ray is not None or not named.draft.num_workers:
        return found, notes
    ranks = local_ranks(named.draft, named.launch, named.task)
    folders = [own.data_folder(own.dataset, rank) for rank in ranks.workers() or (1,)]
    is_given = any(layer.get("partition") is not None for layer in named.layers)
    has_own = defaults.get("partition") == "none" and not is_given
    folder = flag("data_dir", folders[0])
    if ranks.complete and has_own and len(folders) > len(set(folders)):
        found["partition"] = "iid"
        notes.append(
            f"{folder}: one folder, so its samples are divided among the workers (iid); "
            f"{flag('partition', 'none')} gives each of them all"
        )
    if dataset.usual_size is not None and own.image_size is None and ranks.workers():
        side = dataset.usual_size(folders[0])
        if ranks.complete:
            found["image_size"] = side
        if side < dataset.shape[-1]:
            what = "are trained on as" if ranks.complete else "could be trained on as"
            how = "takes another size" if ranks.complete else "on every machine does that"
            other = key("image_size", "N" if ranks.complete else side)
            notes.append(f"{folder}: pictures {what} {side}×{side}; {other} {how}")
    return found, notes


def _find_bits(named: Named, dataset: DatasetFile, found: dict[str, Any], notes: list[str]) -> None:
    """Adds how many bits the pictures in the folders use, if they have 16, and what is told."""
    own = named.draft.data.but(**found)
    has_workers = named.ray is None and named.draft.num_workers
    if dataset.usual_size is None or own.picture_bits is not None or not has_workers:
        return
    workers, everywhere = [named.joins_as or 1], False
    if named.joins_as is None:
        ranks = local_ranks(named.draft, named.launch, named.task)
        workers, everywhere = ranks.workers(), ranks.complete
    folders = dict.fromkeys(own.data_folder(own.dataset, rank) for rank in workers)
    bits, said = dataset.prepared(own).found_bits(folders, everywhere=everywhere)
    if bits is not None:
        found["picture_bits"] = bits
        notes.append(f"{flag('data_dir', own.data_dir or folders.popitem()[0])}: {said}")


@dataclass(frozen=True, kw_only=True)
class Settled(Loaded):
    """A run of which every setting has its value."""

    settings: RunSettings

    @cached_property
    def builder(self) -> Builder[Any]:
        """Makes the algorithm's parts."""
        return self.algorithm.build()

    @cached_property
    def models(self) -> Models:
        """What makes G and D."""
        return models_of(self.settings, self.dataset)

    @cached_property
    def other_defaults(self) -> dict[str, Any]:
        """Setting → its default, of those that have another value in this run."""
        architecture = [{"architecture": self.settings.models.architecture}]
        try:
            defaults = registry.read_settings(
                [{"algorithm": self.algorithm.name}], default_settings(architecture, self.dataset)
            ).as_json()
        except BadInput:  # the user's settings may be what makes those of the dataset file possible
            return {}
        chosen = self.settings.as_json()
        return {name: value for name, value in defaults.items() if chosen[name] != value}

    def asked(self, extractor: str) -> dict[str, Any]:
        """What the settings and the dataset file ask of every rank; see `Checked.identity`."""
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
    """Merges all defaults; nothing else makes the settings that a run trains with."""
    settings = settings_with((*loaded.layers, loaded.found), loaded.defaults)
    return Settled(**loaded.known, settings=settings)


def settings_with(layers: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any]) -> RunSettings:
    """The settings of a run, with what holds where neither the user nor the algorithm says it."""
    settings = registry.read_settings(layers, defaults)
    check_losses(settings.training)
    for network in ("generator", "discriminator"):
        if (policy := settings.training.policy(network)).inner in OPTIMIZER_NAMES.registered:
            kept_by_registered(policy)
    return settings
