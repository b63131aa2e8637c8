"""Everything that is checked and read before anything starts."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
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
from mdgan.engine.learners import make_shard
from mdgan.errors import BadInput
from mdgan.families.algorithms import FEDERATED
from mdgan.families.federated.fegan import check_classes
from mdgan.launch.access import is_readable_by_others, read_token
from mdgan.launch.faults import Planned, read_planned
from mdgan.launch.machine import path_of, resolve_device
from mdgan.launch.ranks import LocalRanks, Torchrun, local_ranks
from mdgan.launch.resolve import resolve
from mdgan.metrics.chosen import extractor_identity
from mdgan.observe.tensorboard import check_tensorboard
from mdgan.settings.deployment import Deployment
from mdgan.settings.experiment import Experiment
from mdgan.transport.rendezvous import check_interface


@dataclass(frozen=True)
class Plan:
    """A checked run, as far as this machine is concerned.

    Attributes:
        experiment: what is computed.
        deployment: where this machine takes part.
        dataset: the dataset file.
        ranks: who runs here.
        holdings: for each worker here, the data it draws from and which of it, int64 [m].
        torchrun: set if this is one of torchrun's processes.
        extractor: what network scores are made of; see `extractor_identity`.
        warnings: one line each, worth a look but no reason to stop.
        launched: when the user started it, by the machine's monotonic clock.
        continues: the run to go on with; None for a new one.
        faults: that somebody wants to see survived.
        token: the secret of those who may take part; empty if anybody may.
    """

    experiment: Experiment
    deployment: Deployment
    dataset: DatasetFile
    ranks: LocalRanks
    holdings: Mapping[int, tuple[Partitioner, Tensor]]
    torchrun: Torchrun | None
    extractor: str
    warnings: tuple[str, ...]
    launched: float
    continues: Path | None = None
    faults: Planned = field(default_factory=Planned)
    token: bytes = field(default=b"", repr=False)

    @property
    def identity(self) -> dict[str, Any]:
        """What must be equal on every rank, by name."""
        return {
            "version": __version__,
            **asdict(self.experiment),
            "dataset_sha256": self.dataset.sha256,
            "extractor": self.extractor,
        }

    def shard(self, worker: int) -> Shard:
        """The shard of one of the workers here."""
        source, indices = self.holdings[worker]
        return make_shard(worker, source, indices, self.experiment.seed)


def make_plan(
    *settings: Mapping[str, Any],
    algorithm: str | None = None,
    show_all: bool = False,
    launched: float | None = None,
    continues: Path | None = None,
    joins_as: int | None = None,
) -> Plan:
    """Resolves and checks settings, loads the dataset file, reads the data of the workers here.

    Args:
        settings: flags, then the config file; then come the dataset's defaults, then ours.
        algorithm: whatever the settings say; theirs if not given.
        show_all: read what every worker holds, for `--dry-run`.
        launched: when the user started it, by the machine's monotonic clock; now if not given.
        continues: the run to go on with.
        joins_as: the rank that a running server has given to the one worker here.

    Raises:
        BadInput: anything cannot work; nothing has been started or written.
    """
    faults = read_planned()
    torch.set_num_threads(1)  # the launcher forks: it must not have a pool of threads
    resolved = resolve(settings, algorithm)
    deployment, torchrun = resolved.deployment, resolved.torchrun
    dataset = dataset_file.load(resolved.experiment.dataset, deployment.datasets_dir)
    experiment = resolved.with_defaults(dataset.defaults)
    if joins_as is None:
        ranks = local_ranks(experiment, deployment, torchrun)
    else:
        ranks = LocalRanks(serves=False, hosts=((joins_as,),), everyone=False)
    _check_machine(deployment, ranks, torchrun)
    _check_group(experiment, deployment)
    token = read_token(deployment)
    if deployment.tensorboard:
        check_tensorboard()
    dataset_file.check_models(dataset)
    if experiment.algorithm == "standalone":
        holdings = _hold_everything(experiment, deployment, dataset)
    else:
        wanted = list(range(1, experiment.world_size)) if show_all else ranks.workers()
        holdings = _hold(experiment, deployment, dataset, wanted)
        if len(holdings) == experiment.num_workers and experiment.sampling is not None:
            check_classes(experiment.sampling, experiment.clusters, _class_counts(holdings))
    return Plan(
        experiment,
        deployment,
        dataset,
        ranks,
        holdings,
        torchrun,
        extractor_identity(deployment, dataset.shape),
        _warnings(experiment, deployment, holdings),
        time.monotonic() if launched is None else launched,
        continues,
        faults,
        token,
    )


def _check_machine(deployment: Deployment, ranks: LocalRanks, torchrun: Torchrun | None) -> None:
    resolve_device(deployment.device, 0)
    if deployment.network_interface is not None:
        check_interface(deployment.network_interface)
    if deployment.master_port == 0 and not ranks.everyone and torchrun is None:
        raise BadInput("--master-port 0: ranks on other machines could not know the port; name one")


def _check_group(experiment: Experiment, deployment: Deployment) -> None:
    for name in ("vectorize", "tune"):
        if getattr(deployment, name) and experiment.algorithm in FEDERATED:
            raise BadInput(
                f"--{name}: {experiment.algorithm} trains the clients of a host one by one; leave "
                "it out"
            )


def data_dir(deployment: Deployment, dataset: DatasetFile, rank: int) -> Path:
    """The folder that holds one worker's data."""
    given = deployment.data_dir or f"data/{dataset.name}"
    return path_of(given.replace("{rank}", str(rank)))


def _hold(
    experiment: Experiment, deployment: Deployment, dataset: DatasetFile, workers: list[int]
) -> dict[int, tuple[Partitioner, Tensor]]:
    if not workers:
        return {}
    sources: dict[Path, Partitioner] = {}
    for worker in workers:
        folder = data_dir(deployment, dataset, worker)
        if folder not in sources:
            sources[folder] = dataset.open(folder)
            _check_batch(experiment, sources[folder], folder)
    if experiment.partition == "none":
        own = {worker: sources[data_dir(deployment, dataset, worker)] for worker in workers}
        return {worker: (source, torch.arange(len(source))) for worker, source in own.items()}
    if len(sources) > 1:
        raise BadInput(
            f"--partition {experiment.partition}: divides one folder, but --data-dir "
            f"{deployment.data_dir} gives each rank its own; use --partition none"
        )
    (source,) = sources.values()
    parts = partition(source.labels, experiment.partition, experiment.num_workers, experiment.seed)
    everything = torch.arange(len(source))  # for who came later: nothing was set aside for it
    return {
        worker: (source, parts[worker - 1] if worker <= len(parts) else everything)
        for worker in workers
    }


def _class_counts(holdings: Mapping[int, tuple[Partitioner, Tensor]]) -> dict[int, list[int]]:
    """How many samples of each class workers hold, of all classes that the data have."""
    return {
        worker: torch.bincount(
            source.labels[indices], minlength=int(source.labels.max()) + 1
        ).tolist()
        for worker, (source, indices) in holdings.items()
    }


def _hold_everything(
    experiment: Experiment, deployment: Deployment, dataset: DatasetFile
) -> dict[int, tuple[Partitioner, Tensor]]:
    folder = data_dir(deployment, dataset, 1)
    source = dataset.open(folder)
    _check_batch(experiment, source, folder)
    return {1: (source, torch.arange(len(source)))}


def _check_batch(experiment: Experiment, source: Partitioner, folder: Path) -> None:
    if experiment.batch_size > len(source):
        raise BadInput(
            f"--batch-size {experiment.batch_size}: larger than the whole data set of "
            f"{len(source)} samples ({experiment.dataset} in {folder})"
        )


def _warnings(
    experiment: Experiment,
    deployment: Deployment,
    holdings: Mapping[int, tuple[Partitioner, Tensor]],
) -> tuple[str, ...]:
    warnings = []
    if is_readable_by_others(deployment):
        token = deployment.join_token
        warnings.append(f"others on this machine can read {token}; chmod 600 {token}")
    small = [
        worker for worker, (_, indices) in holdings.items() if len(indices) < experiment.batch_size
    ]
    if not small or experiment.algorithm in FEDERATED:  # whose batches are no larger than data
        return tuple(warnings)
    ranks = ", ".join(map(str, small[:10])) + (", …" if len(small) > 10 else "")
    warnings.append(
        f"{len(small)} worker(s) hold fewer samples than a batch of {experiment.batch_size}, so "
        f"their batches repeat samples: rank(s) {ranks}"
    )
    return tuple(warnings)
