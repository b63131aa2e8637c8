"""The generator and counts from which a bundle's files are made: of a run, or of the bundle itself.

A reader rebuilds the generator from weights that hosts have signed, with models of mdgan's own or
of a dataset file that the reader names. No code of the bundle runs.
"""

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor, nn

from mdgan.data.dataset_file import DatasetFile, load_path
from mdgan.data.find import find_all
from mdgan.data.settings import KEPT_SCHEMA
from mdgan.errors import BadInput, printable, reason_of
from mdgan.gan.build import Models, num_bytes_of
from mdgan.gan.labels import even_labels, label_counts, num_classes_of
from mdgan.gan.model_state import digest_of
from mdgan.inspect.trained import TrainedRun
from mdgan.launch.models import models_of
from mdgan.records.run_directory import ENCODING_FILE
from mdgan.release.evidence import RunEvidence, published_counts
from mdgan.release.signing import digest_of_file
from mdgan.spelling import flag
from mdgan.storage.state_file import load_tensors

GENERATOR_FILE = "generator.safetensors"


@dataclass(frozen=True)
class Source:
    """A generator with its data set, and the `counts` that strangers may know."""

    dataset: DatasetFile
    models: Models
    generator: nn.Module
    evidence: RunEvidence
    counts: Tensor | None

    def __post_init__(self) -> None:
        """Prepares the data set and the generator by the counts."""
        if self.counts is not None:
            self.dataset.kind.learn(self.counts)
            self.dataset.kind.calibrate(self.generator)

    def labels(self, number: int) -> Tensor | None:
        """The classes of `number` samples, int64 [n]; None if the generator is not conditional."""
        num_classes = num_classes_of(self.generator)
        if num_classes is None:
            return None
        known = self.dataset.kind.class_counts
        shares = self.evidence.label_shares if known is None else known.tolist()
        as_data = self.evidence.settings.training.label_prior == "data"
        return even_labels(label_counts(num_classes, [shares] if as_data else ()), number)


def source_of_run(trained: TrainedRun, evidence: RunEvidence) -> Source:
    """The source at the server, from a run's folder."""
    counts = published_counts(trained)
    return Source(
        trained.dataset, trained.models, trained.generator, evidence=evidence, counts=counts
    )


def source_of_bundle(bundle: Path, evidence: RunEvidence, datasets_dir: str | None) -> Source:
    """The source at a reader; raises BadInput if the generator cannot be made, or is another."""
    terms, settings = evidence.terms, evidence.settings
    name = settings.data.dataset
    path = find_all(datasets_dir).get(name)
    if path is None or digest_of_file(path) != terms.get("dataset_sha256"):
        there = "is not among mdgan's" if path is None else "is another one here"
        raise BadInput(
            "cannot be made again",
            f"its dataset file {printable(name, 60)}.py {there}",
            "name the folder of the one that the run was trained with by "
            f"{flag('datasets_dir')}, if you trust it",
        )
    if (schema := bundle / KEPT_SCHEMA).exists():
        settings = settings.but(schema=str(schema))
    dataset = load_path(path).prepared(settings.data)
    for what, agreed in dataset.agreed.items():
        if agreed != terms.get(what):
            raise BadInput("is not read as the terms say", f"{what} is another one")
    models = models_of(settings, dataset)
    most_bytes = (bundle / GENERATOR_FILE).stat().st_size
    if num_bytes_of(models) > most_bytes:  # otherwise terms could ask for any amount of memory
        raise BadInput(f"has {most_bytes:,} bytes, fewer than that of the terms")
    generator = models.generator()
    counts = None
    try:
        generator.load_state_dict(load_tensors(bundle / GENERATOR_FILE))
        if digest_of(generator.state_dict()) != evidence.generator:
            raise BadInput("is another one than that of the evidence")
        if dataset.kind.num_counts:
            counts = load_tensors(bundle / ENCODING_FILE)["counts"]
            if digest_of({"counts": counts}) != evidence.learnt:
                raise BadInput("is not written by the counts of the evidence")
        source = Source(dataset, models, generator, evidence=evidence, counts=counts)
        source.labels(1)  # refuses invalid counts of classes
        return source
    except BadInput:
        raise
    except (OSError, RuntimeError, SafetensorError, KeyError, ValueError) as error:
        raise BadInput("cannot be made again", reason_of(error)) from error
