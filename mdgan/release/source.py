"""What the files of a bundle are made from: at the server its run, at a reader the bundle itself.

A reader makes the generator again from weights that hosts have signed, with models of mdgan's own
or of a dataset file that the reader names. Nothing that the bundle brings is run.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from mdgan.data.dataset_file import load_path
from mdgan.data.find import find_all
from mdgan.data.settings import KEPT_SCHEMA
from mdgan.engine.counting import published
from mdgan.errors import BadInput, printable, reason_of
from mdgan.gan.labels import even_labels, label_counts, num_classes_of
from mdgan.gan.model_state import digest_of
from mdgan.inspect.trained import TrainedRun
from mdgan.launch.models import models_of
from mdgan.records.run_directory import ENCODING_FILE
from mdgan.release.evidence import RunEvidence
from mdgan.samples.contract import SampleKind

GENERATOR_FILE = "generator.safetensors"


@dataclass(frozen=True)
class Source:
    """A generator, and how what it makes is read.

    Attributes:
        label_counts: how often samples of each class are made, int64 [K]; None without classes.
        counts: what all sites have counted, as strangers may know it; None if nothing.
        keeps: files that say how samples are read, such as a schema.
    """

    generator: nn.Module
    z_dim: int
    shape: tuple[int, ...]
    kind: SampleKind
    label_counts: Tensor | None
    counts: Tensor | None = None
    keeps: Mapping[str, bytes] = field(default_factory=dict)

    def labels(self, number: int) -> Tensor | None:
        """The classes of so many samples, int64 [n]."""
        return None if self.label_counts is None else even_labels(self.label_counts, number)


def _source(
    generator: nn.Module,
    z_dim: int,
    shape: tuple[int, ...],
    kind: SampleKind,
    evidence: RunEvidence,
    counts: Tensor | None,
    keeps: Mapping[str, bytes],
) -> Source:
    if counts is not None:
        kind.learn(counts)
    number, classes = num_classes_of(generator), None
    if number is not None:
        as_data = evidence.run_terms.settings.training.label_prior == "data"
        known = kind.class_counts
        shares = evidence.label_shares if known is None else known.tolist()
        classes = label_counts(number, [shares] if as_data else ())
    return Source(generator, z_dim, shape, kind, classes, counts, keeps)


def source_of_run(trained: TrainedRun, evidence: RunEvidence) -> Source:
    """At the server."""
    kind, counts, models = trained.dataset.kind, None, trained.models
    if kind.num_counts:
        noisy = evidence.run_terms.settings.privacy.covers_samples
        told = trained.run.read_tensors(ENCODING_FILE)[0]["counts"]
        counts = published(kind, told, noisy=noisy)
    about = trained.generator, models.z_dim, models.shape, kind, evidence, counts
    return _source(*about, trained.dataset.keeps)


def source_of_bundle(bundle: Path, evidence: RunEvidence, datasets_dir: str | None) -> Source:
    """At a reader.

    Raises:
        BadInput: the generator is not that of the evidence, or cannot be made here; says why.
    """
    terms, settings = evidence.terms, evidence.run_terms.settings
    name = settings.data.dataset
    path = find_all(datasets_dir).get(name)
    if path is None or _sha256(path) != terms.get("dataset_sha256"):
        there = "is not among mdgan's" if path is None else "is another one here"
        raise BadInput(
            f"cannot be made again: its dataset file {printable(name, 60)}.py {there}; name the "
            "folder of the one that the run was trained with by --datasets-dir, if you trust it"
        )
    if (schema := bundle / KEPT_SCHEMA).exists():
        settings = settings.but(schema=str(schema))
    dataset = load_path(path).prepared(settings.data)
    for what, agreed in dataset.agreed.items():
        if agreed != terms.get(what):
            raise BadInput(f"is not read as the terms say: {what} is another one")
    models = models_of(settings, dataset)
    generator, counts = models.generator(), None
    try:
        generator.load_state_dict(load_file(bundle / GENERATOR_FILE))
        if digest_of(generator.state_dict()) != evidence.generator:
            raise BadInput("is another one than that of the evidence")
        if dataset.kind.num_counts:
            counts = load_file(bundle / ENCODING_FILE)["counts"]
            if digest_of({"counts": counts}) != evidence.learnt:
                raise BadInput("is not written by the counts of the evidence")
        about = generator, models.z_dim, models.shape, dataset.kind, evidence, counts
        return _source(*about, dataset.keeps)
    except BadInput:
        raise
    except (OSError, RuntimeError, SafetensorError, KeyError, ValueError) as error:
        raise BadInput(f"cannot be made again: {reason_of(error)}") from error


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
