"""Checks and reads everything before any process starts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mdgan import __version__
from mdgan.data import dataset_file
from mdgan.data.dataset_file import DatasetFile
from mdgan.data.partition import partition
from mdgan.data.partitioner import Partitioner
from mdgan.data.shard import Shard
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.contract import Algorithm, Builder
from mdgan.gan.randomness import generator_for
from mdgan.launch.faults import Planned, read_planned
from mdgan.launch.machine import resolve_device
from mdgan.launch.ranks import LocalRanks, Torchrun, local_ranks
from mdgan.launch.resolve import Resolved, resolve
from mdgan.launch.settings import LaunchSettings, is_readable_by_others, read_token
from mdgan.metrics.chosen import extractor_identity
from mdgan.observe.tensorboard import check_tensorboard
from mdgan.transport.rendezvous import check_interface

Holdings = Mapping[int, tuple[Partitioner, Tensor]]
"""For each worker, the data that it draws from and which of it, int64 [m]."""


@dataclass(frozen=True)
class Prepared:
    """A checked run, with what this machine has to know.

    Attributes:
        settings: of the run.
        launch: of this machine.
        dataset: the dataset file.
        ranks: which ranks run here.
        holdings: of the workers here.
        torchrun: set if this is one of torchrun's processes.
        extractor: the network that scores use; see `extractor_identity`.
        warnings: one line each; no reason to stop.
        launched: when the user started it, by the machine's monotonic clock.
        continues: the run to go on with; None for a new one.
        faults: the planned ones.
        token: the secret that every process knows; empty if any process may take part.
    """

    settings: RunSettings
    launch: LaunchSettings
    dataset: DatasetFile
    ranks: LocalRanks
    holdings: Holdings
    torchrun: Torchrun | None
    extractor: str
    warnings: tuple[str, ...]
    launched: float
    continues: Path | None = None
    faults: Planned = field(default_factory=Planned)
    token: bytes = field(default=b"", repr=False)

    @cached_property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm's entry."""
        return registry.algorithm(self.settings.algorithm)

    @cached_property
    def builder(self) -> Builder[Any]:
        """Makes the algorithm's parts."""
        return self.algorithm.build()

    @property
    def identity(self) -> dict[str, Any]:
        """What must be equal on every rank, by name; what decides most comes first."""
        shared = self.settings.as_json(shared=True)
        first = {name: shared.pop(name) for name in ("algorithm", "dataset", "world_size")}
        return {
            "version": __version__,
            **first,
            **shared,
            "dataset_sha256": self.dataset.sha256,
            "extractor": self.extractor,
        }

    @property
    def config(self) -> dict[str, Any]:
        """All settings as JSON values that `--config` takes back, without the run's folder."""
        both = {**self.settings.as_json(), **self.launch.as_json()}
        ordered = dict.fromkeys([*registry.declared_settings(), *both])
        return {name: both[name] for name in ordered if name in both and name != "out"}

    def shard(self, worker: int) -> Shard:
        """The shard of one of the workers here."""
        source, indices = self.holdings[worker]
        return Shard(source, indices, generator_for(self.settings.seed, "shard", worker))


def prepare(
    *layers: Mapping[str, Any],
    algorithm: str | None = None,
    show_all: bool = False,
    launched: float | None = None,
    continues: Path | None = None,
    joins_as: int | None = None,
) -> Prepared:
    """Resolves and checks settings, loads the dataset file, reads the data of the workers here.

    Args:
        layers: flags, then the config file; then come the algorithm's and the dataset's defaults.
        algorithm: overrides the layers'.
        show_all: read what every worker holds, for `--dry-run`.
        launched: when the user started it, by the machine's monotonic clock; now if not given.
        continues: the run to go on with.
        joins_as: the rank that a running server has given to the one worker here.

    Raises:
        BadInput: anything cannot work; nothing has been started or written.
    """
    faults = read_planned()
    torch.set_num_threads(1)  # the launcher forks: it must not have a pool of threads
    resolved = resolve(layers, algorithm)
    dataset = load_dataset(resolved)
    settings, launch = resolved.with_defaults(dataset.defaults), resolved.launch
    entry = registry.algorithm(settings.algorithm)
    if not entry.has_hosts:
        ranks = LocalRanks(serves=True, hosts=(), complete=True)
    elif joins_as is None:
        ranks = local_ranks(settings, launch, resolved.torchrun)
    else:
        ranks = LocalRanks(serves=False, hosts=((joins_as,),), complete=False)
    _check_machine(launch, ranks, resolved.torchrun)
    token = read_token(launch)
    if settings.tensorboard:
        check_tensorboard()
    dataset_file.check_models(dataset)
    holdings = _holdings(entry, settings, dataset, ranks, show_all=show_all)
    return Prepared(
        settings,
        launch,
        dataset,
        ranks,
        holdings,
        resolved.torchrun,
        extractor_identity(settings, dataset.shape),
        _warnings(entry, settings, launch, holdings),
        time.monotonic() if launched is None else launched,
        continues,
        faults,
        token,
    )


def load_dataset(resolved: Resolved) -> DatasetFile:
    """The dataset file that the settings name, with its DEFAULTS checked."""
    settings = resolved.settings
    dataset = dataset_file.load(settings.dataset, settings.datasets_dir)
    declared = registry.declared_settings()
    dataset_file.check_defaults(
        dataset, [name for name, item in declared.items() if item.metadata["shared"]]
    )
    return dataset


def _check_machine(launch: LaunchSettings, ranks: LocalRanks, torchrun: Torchrun | None) -> None:
    resolve_device(launch.device, 0)
    if launch.network_interface is not None:
        check_interface(launch.network_interface)
    if launch.master_port == 0 and not ranks.complete and torchrun is None:
        raise BadInput("--master-port 0: ranks on other machines could not know the port; name one")


def _holdings(
    entry: Algorithm[Any],
    settings: RunSettings,
    dataset: DatasetFile,
    ranks: LocalRanks,
    *,
    show_all: bool,
) -> Holdings:
    """What the workers here hold; all data, if the algorithm has no hosts."""
    if not entry.has_hosts:
        source = _open(settings, dataset, settings.data_folder(dataset.name, 1))
        return {1: (source, torch.arange(len(source)))}
    wanted = list(range(1, settings.world_size)) if show_all else ranks.workers()
    holdings = _divide(settings, dataset, wanted)
    if len(holdings) == settings.num_workers:
        counts = {worker: _class_counts(*held) for worker, held in holdings.items()}
        entry.build().check_holdings(settings, counts)
    return holdings


def _divide(settings: RunSettings, dataset: DatasetFile, workers: Sequence[int]) -> Holdings:
    if not workers:
        return {}
    folders = {worker: settings.data_folder(dataset.name, worker) for worker in workers}
    sources = {
        folder: _open(settings, dataset, folder) for folder in dict.fromkeys(folders.values())
    }
    if not settings.partition.divides:
        own = {worker: sources[folder] for worker, folder in folders.items()}
        return {worker: (source, torch.arange(len(source))) for worker, source in own.items()}
    if len(sources) > 1:
        raise BadInput(
            f"--partition {settings.partition}: divides one folder, but --data-dir "
            f"{settings.data_dir} gives each rank its own; use --partition none"
        )
    (source,) = sources.values()
    parts = partition(source.labels, settings.partition, settings.num_workers, settings.seed)
    everything = torch.arange(len(source))  # for newcomers: they have no part
    return {
        worker: (source, parts[worker - 1] if worker <= len(parts) else everything)
        for worker in workers
    }


def _open(settings: RunSettings, dataset: DatasetFile, folder: Path) -> Partitioner:
    source = dataset.open(folder)
    if settings.batch_size > len(source):
        raise BadInput(
            f"--batch-size {settings.batch_size}: larger than the whole data set of "
            f"{len(source)} samples ({dataset.name} in {folder})"
        )
    return source


def _class_counts(source: Partitioner, indices: Tensor) -> list[int]:
    """How many samples of each class a worker holds, of all classes that the data have."""
    num_classes = int(source.labels.max()) + 1
    counts: list[int] = torch.bincount(source.labels[indices], minlength=num_classes).tolist()
    return counts


def _warnings(
    entry: Algorithm[Any], settings: RunSettings, launch: LaunchSettings, holdings: Holdings
) -> tuple[str, ...]:
    warnings = []
    if is_readable_by_others(launch):
        token = launch.join_token
        warnings.append(f"others on this machine can read {token}; chmod 600 {token}")
    small = [n for n, (_, indices) in holdings.items() if len(indices) < settings.batch_size]
    if small and entry.lets_batches_repeat:
        ranks = ", ".join(map(str, small[:10])) + (", …" if len(small) > 10 else "")
        warnings.append(
            f"{len(small)} worker(s) hold fewer samples than a batch of {settings.batch_size}, so "
            f"their batches repeat samples: rank(s) {ranks}"
        )
    return tuple(warnings)
