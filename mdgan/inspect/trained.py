"""Loads a run's newest generator together with its dataset file."""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from mdgan.data.dataset_file import DatasetFile, load_path
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.gan.build import Models
from mdgan.launch.models import models_of
from mdgan.launch.settings import LaunchSettings
from mdgan.records.run_directory import RunDirectory

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """What `load_trained` returns.

    Attributes:
        run: the run's folder.
        dataset: the dataset file of the run.
        models: what makes G and D.
        generator: G.
        iteration: after which the generator was saved.
    """

    run: RunDirectory
    dataset: DatasetFile
    models: Models
    generator: nn.Module
    iteration: int

    def settings(self) -> tuple[RunSettings, LaunchSettings]:
        """The settings of the run and of its server's machine.

        Raises:
            BadInput: `config.json` is damaged.
        """
        settings = self.run.read_config()
        return registry.read_settings([settings]), LaunchSettings.read(settings)


def load_trained(path: Path, *, raw: bool = False) -> Trained:
    """Loads the generator of a finished or running run.

    Args:
        path: the run's folder.
        raw: the generator itself, though the run has averaged it.

    Raises:
        BadInput: not a run, no generator yet, or its dataset file is gone or no longer fits.
    """
    run = RunDirectory.open(path)
    status = run.read_status()
    state, iteration = run.read_generator(raw=raw)
    source = path / status.get("dataset_file", "")
    if not source.is_file():
        raise BadInput(f"{path}: its dataset file {source} is gone; put it back")
    if hashlib.sha256(source.read_bytes()).hexdigest() != status.get("dataset_sha256"):
        _log.warning("warning: %s has changed since the run began", source)
    dataset = load_path(source)
    models = models_of(registry.read_settings([run.read_config()]), dataset)
    generator = models.generator()
    try:
        generator.load_state_dict(state)
    except RuntimeError as error:
        raise BadInput(f"{path}: its generator no longer fits {models.source}") from error
    return Trained(run, dataset, models, generator, iteration)
