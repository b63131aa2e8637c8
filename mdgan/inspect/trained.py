"""Loads a run's newest generator with its dataset file, to sample, score, audit or release it."""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.data.dataset_file import DatasetFile, load_path
from mdgan.data.partitioner import Partitioner
from mdgan.data.settings import KEPT_SCHEMA
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.gan.build import Models
from mdgan.gan.labels import even_labels, label_counts, num_classes_of
from mdgan.launch.models import models_of
from mdgan.launch.settings import LaunchSettings
from mdgan.metrics.chosen import judging, open_held_out
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.run_directory import RunDirectory
from mdgan.records.values import said_list
from mdgan.storage.foreign_file import read_whole

Label = int | str | None  # a class by number or name, or all

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainedRun:
    """A run's generator as it was saved after `iteration`, with all that is needed to use it."""

    run: RunDirectory
    dataset: DatasetFile
    models: Models
    generator: nn.Module
    iteration: int

    def labels(self, num_samples: int, label: Label = None, what: str = "--class") -> Tensor | None:
        """Chooses the classes of n samples to generate.

        Args:
            label: the class of all samples; None for all classes, in the shares of `label_prior`.
            what: how a refusal calls `label`.

        Returns:
            int64 [n]; None if the generator is not conditional.
        """
        num_classes = num_classes_of(self.generator)
        if num_classes is None:
            if label is not None:
                why = f"the generator of {self.run.path} is not conditional"
                raise BadInput(f"{what} {label}", why, "leave it out")
            return None
        if label is None:
            as_data = self.settings()[0].training.label_prior == "data"
            return even_labels(
                label_counts(num_classes, self.held_counts() if as_data else ()), num_samples
            )
        # No file of a run has the names of a picture folder's classes, so those are numbers.
        sources = self.dataset.kind, self.dataset.partitioner
        known = next(filter(None, (getattr(s, "class_names", ()) for s in sources)), ())
        number = known.index(label) if label in known else label
        if f"{number}" not in map(str, range(num_classes)):
            names = f"{said_list(known)}, or " if known else ""
            raise BadInput(f"{what} {label}", f"must be {names}one of 0-{num_classes - 1}")
        return torch.full((num_samples,), int(number))

    def held_counts(self) -> list[list[int]]:
        """Counts the samples of each class, a list for each worker, from the run's record.

        There is one list for all workers together if they counted classes before training.
        """
        if (learnt := self.dataset.kind.class_counts) is not None:
            return [learnt.tolist()]
        return list(RecordedRun.read(self.run.path).holdings().values())

    def settings(self) -> tuple[RunSettings, LaunchSettings]:
        """Reads the settings of the run and of its server's machine."""
        settings = self.run.read_config()
        return registry.read_settings([settings]), LaunchSettings.read(settings)

    def changed_settings(self, changes: Mapping[str, Any]) -> RunSettings:
        """Reads the settings of the run with some changed, such as folders of this machine."""
        for name in ("data_dir", "held_out"):
            self.dataset.check_folder(name, changes.get(name))
        return self.settings()[0].but(**changes)

    def held_out(self, settings: RunSettings) -> Partitioner | None:
        """Opens the samples to judge by, which no worker and no classifier has trained on."""
        folder = settings.data.data_folder(self.dataset.name, 1)
        return judging(settings, self.dataset, open_held_out(settings, self.dataset, folder))


def load_trained(
    path: Path, *, raw: bool = False, places: Mapping[str, str] | None = None
) -> TrainedRun:
    """Loads the generator of a run; `raw`: itself, not its average; `places`: `data_dir`, `map`."""
    run = RunDirectory.open(path)
    status = run.read_status()
    state, iteration = run.read_generator(raw=raw)
    source = path / status.get("dataset_file", "")
    if not source.is_file():
        raise BadInput(path, f"its dataset file {source} is gone", "put it back")
    if hashlib.sha256(read_whole(source)).hexdigest() != status.get("dataset_sha256"):
        _log.warning("warning: %s has changed since the run began", source)
    settings = registry.read_settings([run.read_config()]).but(**places or {})
    if (schema := run.kept(KEPT_SCHEMA)).exists():
        settings = settings.but(schema=str(schema))
    dataset = load_path(source).prepared(settings.data)
    if dataset.kind.num_counts:
        dataset.kind.learn(run.read_counts(dataset.kind.num_counts))
    models = models_of(settings, dataset)
    generator = models.generator()
    try:
        generator.load_state_dict(state)
    except RuntimeError as error:
        raise BadInput(path, f"its generator no longer fits {models.source}") from error
    dataset.kind.calibrate(generator)
    return TrainedRun(run, dataset, models, generator=generator, iteration=iteration)
