"""Checks and reads everything before any process starts."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from mdgan.credentials.identity import Identity, OwnIdentity
from mdgan.credentials.permit import permit_of
from mdgan.data import dataset_file
from mdgan.data.dataset_file import DatasetFile
from mdgan.data.fetching import Fetcher
from mdgan.data.shard import ClientShards, Shard
from mdgan.engine.message_sizes import MessageSizes
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.contract import Algorithm, Builder
from mdgan.gan.build import Models
from mdgan.gan.randomness import generator_for
from mdgan.launch.addresses import Sockets, check_interface
from mdgan.launch.beginning import Beginning, read_beginning
from mdgan.launch.budget_checks import check_budgets
from mdgan.launch.faults import Planned, read_planned
from mdgan.launch.folder import with_folder
from mdgan.launch.holdings import Holdings, read_data
from mdgan.launch.host_size import default_host_size
from mdgan.launch.machine import resolve_device
from mdgan.launch.models import models_of, settings_with_defaults, tried_models
from mdgan.launch.privacy import counted, read_contents
from mdgan.launch.ranks import LocalRanks, local_ranks, ranks_elsewhere
from mdgan.launch.requirements import check_certificates, check_delta, check_required
from mdgan.launch.resolve import Resolved, resolve
from mdgan.launch.settings import LaunchSettings, read_guards
from mdgan.launch.task import LaunchedTask, Launcher, RayCluster
from mdgan.metrics.chosen import extractor_identity
from mdgan.observe.trackers import check_trackers
from mdgan.privacy.contents import Contents
from mdgan.records.run_directory import RunDirectory
from mdgan.settings.machine import check_cores
from mdgan.version import __version__

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """A checked run, with what this machine has to know."""

    settings: RunSettings
    launch: LaunchSettings
    dataset: DatasetFile
    ranks: LocalRanks
    holdings: Holdings
    # Set if another program has started this process beside others of the run.
    task: LaunchedTask | None
    extractor: str  # the network that scores use; see `extractor_identity`
    launched: float  # when the user started it, by the machine's monotonic clock
    warnings: tuple[str, ...] = ()
    continues: Path | None = None  # the run to go on with
    resumes_or_starts: bool = False  # whether to go on with the run in `--out` if there is one
    scaled_from: str = ""  # the file whose `paper_scale` holds, if the user chose it
    ray: RayCluster | None = None  # the cluster on which all ranks run
    is_rehearsed: bool = False  # whether the data are noise, of which nothing is secret
    faults: Planned = field(default_factory=Planned)
    # Gives what this machine shows to others, and whom it trusts, as its files say now; None
    # without TLS.
    own_identity: OwnIdentity | None = field(default=None, repr=False)
    # What training begins with instead of weights from the seed.
    beginning: Beginning | None = field(default=None, repr=False)
    # Those of a running server of this machine that this worker joins.
    sockets: Sockets | None = None
    clients: ClientShards | None = None  # the shards of placed clients
    contents: Mapping[int, Contents] = field(default_factory=dict, repr=False)

    @property
    def credentials(self) -> Identity | None:
        """What this machine shows to others now, and whom it trusts; None without TLS."""
        return None if self.own_identity is None else self.own_identity()

    @cached_property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm's entry."""
        return registry.algorithm(self.settings.algorithm)

    @cached_property
    def builder(self) -> Builder[Any]:
        """Makes the algorithm's parts."""
        return self.algorithm.build()

    @cached_property
    def models(self) -> Models:
        """What makes G and D."""
        return models_of(self.settings, self.dataset)

    @property
    def message_sizes(self) -> MessageSizes:
        """How large messages of this run can be."""
        sizes = self.builder.message_sizes(self.settings, self.models)
        return replace(sizes, num_counts=self.dataset.kind.num_counts)

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
            **self.dataset.agreed,
            "extractor": self.extractor,
            **({} if self.clients is None else {"data_sha256": self.clients.digest()}),
        }

    @property
    def link_settings(self) -> LaunchSettings:
        """The settings of this machine; the server is where the launcher says, if one does."""
        if self.task is None:
            return self.launch
        address, port = self.task.master_addr, self.task.master_port
        return self.launch.but(master_addr=address, master_port=port)

    @property
    def config(self) -> dict[str, Any]:
        """All settings as JSON values that `--config` takes back, without the run's folder."""
        both = {**self.settings.as_json(), **self.launch.as_json()}
        ordered = dict.fromkeys([*registry.declared_settings(), *both])
        return {name: both[name] for name in ordered if name in both and name != "out"}

    def fetcher(self) -> Fetcher:
        """What reads the samples of one process ahead."""
        hosts, workers = len(self.ranks.hosts) or 1, len(self.ranks.workers()) or 1
        settings = self.settings
        return Fetcher.of(settings.data, settings.num_reals, self.dataset.shape, hosts, workers)

    def shard(self, worker: int, fetcher: Fetcher | None = None) -> Shard:
        """The shard of one of the workers here, and what reads its samples ahead, if it trains."""
        source, indices = self.holdings[worker]
        generator = generator_for(self.settings.training.seed, "shard", worker)
        return Shard(source, indices, generator, fetcher)


def prepare(
    *layers: Mapping[str, Any],
    algorithm: str | None = None,
    show_all: bool = False,
    launched: float | None = None,
    continues: Path | None = None,
    joins_as: int | None = None,
    launcher: Launcher | RayCluster = "processes",
    resumes_or_starts: bool = False,
    scaled_from: str = "",
) -> Prepared:
    """Resolves and checks settings, loads the dataset file, reads the data of the workers here.

    Args:
        show_all: read what every worker holds, for `--dry-run`.
        joins_as: the rank that a running server has given to the one worker here.
    """
    faults = read_planned()
    torch.set_num_threads(1)  # the launcher forks: it must not have a pool of threads
    resolved, notes = resolve(layers, algorithm, launcher), list[str]()
    if continues is None and joins_as is None:
        resolved, notes = with_folder(resolved)
    dataset = load_dataset(resolved, continues)
    settings, launch = settings_with_defaults(resolved.layers, dataset), resolved.launch
    entry = registry.algorithm(settings.algorithm)
    check_required(launch.links.require, settings, told=joins_as is not None)
    if joins_as is None:
        ranks = _ranks_here(resolved, settings, dataset, faults)
    else:
        ranks = LocalRanks(serves=False, hosts=((joins_as,),), complete=False)
    if resolved.ray is None:
        _check_machine(launch)
    own_identity = _credentials(settings, launch, ranks)
    check_trackers(settings.records.trackers() if ranks.serves else ())
    if continues is None:
        dataset.check_folder("--data-dir", settings.data.data_dir)
        dataset.check_folder("--held-out", settings.scores.held_out)
    models, given = tried_models(settings, dataset), settings.training.init_from
    is_first = continues is None and ranks.serves
    beginning = read_beginning(given, models) if given is not None and is_first else None
    _log.info("reading the data of %s …", dataset.name, extra={"shown": "doing"})
    clients, holdings = read_data(entry, settings, dataset, ranks, show_all=show_all)
    for note in notes:
        _log.info("%s", note)
    prepared = Prepared(
        *(settings, launch, dataset, ranks, holdings, resolved.task),
        extractor=extractor_identity(settings.scores, dataset),
        launched=time.monotonic() if launched is None else launched,
        continues=continues,
        resumes_or_starts=resumes_or_starts,
        scaled_from=scaled_from,
        ray=resolved.ray,
        faults=faults,
        own_identity=own_identity,
        beginning=beginning,
        clients=clients,
    )
    return _with_warnings(prepared)


def _with_warnings(prepared: Prepared) -> Prepared:
    """The run, after a look at what the samples of the workers here may spend."""
    warnings = _warnings(prepared)
    if not prepared.settings.privacy.has_dp:
        return replace(prepared, warnings=tuple(warnings))
    shards = {rank: prepared.shard(rank) for rank in prepared.ranks.workers()}
    settings, serves = prepared.settings, prepared.ranks.serves
    contents = read_contents(settings, shards, prepared.clients if serves else None)
    sizes = {n: len(counted(settings, shard, contents.get(n))) for n, shard in shards.items()}
    check_delta(prepared.launch.links.require, settings, sizes)
    warnings += check_budgets(
        settings,
        shards,
        contents,
        prepared.dataset,
        serves=serves,
        goes_on=prepared.continues is not None,
    )
    return replace(prepared, warnings=tuple(warnings), contents=contents)


def _check_machine(launch: LaunchSettings) -> None:
    """Checks that this machine has the device, the cores and the interface of the settings."""
    resolve_device(launch.device, 0)
    if launch.core_sets:
        check_cores(launch.cores)
    if launch.links.network_interface is not None:
        check_interface(launch.links.network_interface)


def _credentials(
    settings: RunSettings, launch: LaunchSettings, ranks: LocalRanks
) -> OwnIdentity | None:
    """Gives what this machine shows to others; None without TLS."""
    own_identity = read_guards(launch.links, serves=ranks.serves)
    credentials = None if own_identity is None else own_identity()
    if ranks.serves and _role(credentials) == "worker":
        raise BadInput(
            f"--credentials {launch.links.credentials or launch.links.certificate}: is that of a "
            "worker, which no other rank lets be the server; give rank 0 one that was issued with "
            "--role server"
        )
    is_secure = settings.secure.secure_aggregation
    if is_secure and ranks.hosts and (role := _role(credentials)) not in ("", "worker"):
        raise BadInput(
            f"--secure-aggregation: the certificate here is that of a {role}, which cannot stand "
            f"for the workers here; start ranks {','.join(map(str, ranks.workers()))} by themselves"
            ", with a certificate of their own (mdgan credentials issue … --role worker)"
        )
    if credentials is not None and credentials.by_name and not _role(credentials):
        check_certificates(launch.links.require, settings)
    return own_identity


def _role(credentials: Identity | None) -> str:
    return "" if credentials is None else permit_of(credentials.certificate).role or ""


def _ranks_here(
    resolved: Resolved, settings: RunSettings, dataset: DatasetFile, planned: Planned
) -> LocalRanks:
    if not registry.algorithm(settings.algorithm).has_hosts:
        if resolved.ray is not None:
            raise BadInput(f"--launcher ray: {settings.algorithm} needs one process alone")
        return LocalRanks(serves=True, hosts=(), complete=True)
    if resolved.ray is not None:
        return ranks_elsewhere(resolved.launch)
    size = 1
    # Planned faults strike a host by the number of its first worker.
    if resolved.task is None and planned == Planned():
        size = default_host_size(settings, resolved.launch, models_of(settings, dataset))
    ranks = local_ranks(settings, resolved.launch, resolved.task, size)
    where = resolved.launch.links if resolved.task is None else resolved.task
    if where.master_port == 0 and not ranks.complete:
        raise BadInput("--master-port 0: ranks on other machines could not know the port; name one")
    return ranks


def load_dataset(resolved: Resolved, continues: Path | None = None) -> DatasetFile:
    """The dataset file of the settings, or of the run that goes on, with its DEFAULTS checked."""
    name, folder = resolved.settings.data.dataset, resolved.settings.data.datasets_dir
    kept = None if continues is None else RunDirectory(continues).dataset_file(name)
    if kept is not None and kept.is_file():
        dataset = dataset_file.load_path(kept)
    else:
        dataset = dataset_file.load(name, folder)
    dataset = dataset.prepared(resolved.settings.data)
    declared = registry.declared_settings()
    dataset_file.check_defaults(dataset, [name for name, item in declared.items() if item.shared])
    return dataset


def _warnings(prepared: Prepared) -> list[str]:
    settings, holdings, warnings = prepared.settings, prepared.holdings, []
    credentials, clients = prepared.credentials, prepared.clients
    if prepared.launch.links.insecure:
        warnings.append(
            "--insecure: nothing is encrypted; who reaches the port can take part, and who is on "
            "the way can read and change everything"
        )
    is_secure = settings.secure.secure_aggregation
    is_elsewhere = not prepared.ranks.serves and prepared.launch.links.master_addr is not None
    if is_elsewhere and holdings and not (is_secure or settings.privacy.covers_samples):
        warnings.append(
            "neither --dp-epsilon nor --secure-aggregation: who runs the server can reconstruct "
            "samples of this machine from what it sends; take part if you trust them with these"
        )
    if is_secure and credentials is not None and not _role(credentials):
        warnings.append(
            "--secure-aggregation: the certificate here names no role, as in a file that all "
            "machines share, so a server that lies could pass for workers"
            f"{', and each host adds all of the noise' if settings.shares_noise else ''}; against "
            "that, give each host a certificate of its own (mdgan credentials issue)"
        )
    warnings += _same_data(settings, sorted(holdings))
    reads_ahead = any(source.read_one_by_one for source, _ in holdings.values())
    if settings.data.data_threads != "auto" and holdings and not reads_ahead:
        warnings.append(
            f"--set data_threads={settings.data.data_threads}: --dataset {settings.data.dataset} "
            "reads nothing when it is drawn, so there is nothing to read ahead"
        )
    batch = settings.training.batch_size
    sizes = [] if clients is None else sorted(map(sum, clients.class_counts().values()))
    if few := sum(size < batch for size in sizes):
        warnings.append(
            f"--clients {len(sizes)}: {few:,} of them hold fewer samples than a batch of {batch}, "
            f"{sizes[len(sizes) // 2]:,} in the middle, so their batches repeat samples; take "
            "fewer clients, a smaller --batch-size or a larger data set"
        )
    small = [n for n, (_, indices) in holdings.items() if 0 < len(indices) < batch]
    if small and prepared.algorithm.lets_batches_repeat and clients is None:
        ranks = ", ".join(map(str, small[:10])) + (", …" if len(small) > 10 else "")
        warnings.append(
            f"{len(small)} worker(s) hold fewer samples than a batch of {batch}, so their batches "
            f"repeat samples: rank(s) {ranks}"
        )
    return warnings


def _same_data(settings: RunSettings, ranks: Sequence[int]) -> list[str]:
    """A warning if several workers here hold the same samples, since they are not divided."""
    own = settings.data
    if own.partition.name != "none" or own.data_dir is None:
        return []
    folders = [own.data_folder(own.dataset, rank) for rank in ranks]
    if len(set(folders)) == len(folders):
        return []
    many = max(folders, key=folders.count)
    number = folders.count(many)
    return [
        f"--data-dir {own.data_dir}: {number} workers here read all of it, and hold the "
        "same samples; say --partition iid to divide it, or write {rank} for a folder each"
    ]
