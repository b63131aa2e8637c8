"""A run that can begin: `check` has checked its machine, models, data and budgets."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from mdgan.credentials.identity import Identity, OwnIdentity
from mdgan.credentials.permit import permit_of
from mdgan.data.fetching import Fetcher
from mdgan.data.handed import content_to_pass_on, take_over
from mdgan.data.shard import ClientShards, Shard
from mdgan.engine.host.held_samples import HeldSamples
from mdgan.engine.message_sizes import MessageSizes
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.gan.randomness import generator_for
from mdgan.launch.addresses import Sockets, check_interface, check_reachable
from mdgan.launch.beginning import Beginning, read_beginning
from mdgan.launch.budget_checks import check_budgets
from mdgan.launch.faults import Planned
from mdgan.launch.given import Given
from mdgan.launch.holdings import Holdings, read_data
from mdgan.launch.machine import default_host_size, resolve_device
from mdgan.launch.models import tried_models
from mdgan.launch.ranks import LocalRanks, local_ranks, ranks_elsewhere
from mdgan.launch.requirements import check_certificates, check_delta, check_required
from mdgan.launch.same_samples import overlap_warning
from mdgan.launch.settings import LaunchSettings, read_identity, read_revocations
from mdgan.launch.settled import Settled, load, settle
from mdgan.metrics.chosen import extractor_identity
from mdgan.observe.trackers import check_trackers
from mdgan.privacy.contents import Contents
from mdgan.settings.machine import check_cores
from mdgan.spelling import flag, key
from mdgan.timeouts import Timeouts

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Checked(Settled):
    """A run that can begin: its ranks, data and credentials on this machine."""

    ranks: LocalRanks
    holdings: Holdings
    extractor: str = ""  # the network that scores use; see `extractor_identity`
    warnings: tuple[str, ...] = ()
    is_rehearsed: bool = False  # whether `mdgan plan` runs it, with noise as data
    # Reads this machine's certificate, and whom it trusts, from its files; None without TLS.
    own_identity: OwnIdentity | None = field(default=None, repr=False)
    # The models of `--init-from`; None for weights from the seed.
    beginning: Beginning | None = field(default=None, repr=False)
    # The sockets of a running server of this machine, which this worker joins.
    sockets: Sockets | None = None
    clients: ClientShards | None = None  # the shards of placed clients
    contents: Mapping[int, Contents] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process prepares the run again: what users write has no copies in bytes."""
        given = {each.name: getattr(self, each.name) for each in fields(Given)}
        here = {"ranks": self.ranks, "sockets": self.sockets}
        return _prepared_again, (given, self.launch, here, content_to_pass_on())

    @property
    def credentials(self) -> Identity | None:
        """This machine's certificate now, and whom it trusts; None without TLS."""
        return None if self.own_identity is None else self.own_identity()

    @property
    def timeouts(self) -> Timeouts:
        """The time limits; in a single process, a lost host cannot come back."""
        limits = self.launch.links.timeouts()
        return replace(limits, patience=0.0) if self.is_one_process else limits

    @property
    def message_sizes(self) -> MessageSizes:
        """The largest sizes that messages of this run can have."""
        sizes = self.builder.message_sizes(self.settings, self.models)
        kind = self.dataset.kind
        return replace(sizes, num_counts=max(kind.num_counts, kind.num_noisy_counts))

    @property
    def identity(self) -> dict[str, Any]:
        """The values that must be equal on every rank, by name; the most important come first."""
        placed = {} if self.clients is None else {"data_sha256": self.clients.digest()}
        return {**self.asked(self.extractor), **placed}

    @property
    def config(self) -> dict[str, Any]:
        """All settings as JSON values that `--config` takes back, without the run's folder."""
        both = {**self.settings.as_json(), **self.launch.as_json()}
        ordered = dict.fromkeys([*registry.declared_settings(), *both])
        return {name: both[name] for name in ordered if name in both and name != "out"}

    def fetcher(self) -> Fetcher:
        """Makes the threads that read the samples of one process ahead."""
        hosts, workers = len(self.ranks.hosts) or 1, len(self.ranks.workers()) or 1
        settings = self.settings
        return Fetcher.of(settings.data, settings.num_reals, self.dataset.shape, hosts, workers)

    def shard(self, worker: int, fetcher: Fetcher | None = None) -> Shard:
        """Makes the shard of a worker here; a fetcher reads its samples ahead, if it trains."""
        source, indices = self.holdings[worker]
        generator = generator_for(self.settings.training.seed, "shard", worker)
        return Shard(source, indices, generator, fetcher)


def prepare(given: Given, *, show_all: bool = False) -> Checked:
    """Does everything that comes before processes start; `show_all` is as for `check`."""
    return check(settle(load(given.named())), show_all=show_all)


def _prepared_again(
    given: dict[str, Any], launch: LaunchSettings, here: dict[str, Any], content: bytes
) -> Checked:
    """The run of another process of this machine, whose objects have this content."""
    take_over(content)
    named = replace(Given(**given).named(), launch=launch)
    return replace(check(settle(load(named))), **here)


def check(settled: Settled, *, show_all: bool = False) -> Checked:
    """Checks that this machine has what the settings ask for, tries the models, reads the data.

    Args:
        show_all: whether to read the data of every worker, for `--dry-run`.
    """
    settings, launch, dataset = settled.settings, settled.launch, settled.dataset
    check_required(launch.links.require, settings, from_server=settled.joins_as is not None)
    ranks = _ranks_here(settled)
    if settled.ray is None:
        _check_machine(launch)
    own_identity = _credentials(settings, launch, ranks)
    check_trackers(settings.records.trackers() if ranks.serves else ())
    if settled.continues is None:
        dataset.check_folder("data_dir", settings.data.data_dir)
        dataset.check_folder("held_out", settings.scores.held_out)
    models, init_from = tried_models(settings, dataset), settings.training.init_from
    begins = init_from is not None and settled.continues is None and ranks.serves
    beginning = read_beginning(str(init_from), models) if begins else None
    _log.info("reading the data of %s …", dataset.name, extra={"shown": "doing"})
    workers = list(range(1, settings.world_size)) if show_all else ranks.workers()
    clients, holdings = read_data(settings, dataset, workers)
    for note in settled.notes:
        _log.info("%s", note)
    checked = Checked(
        **settled.known,
        ranks=ranks,
        holdings=holdings,
        extractor=extractor_identity(settings.scores, dataset),
        own_identity=own_identity,
        beginning=beginning,
        clients=clients,
    )
    try:
        contents, of_budgets = _look_at_budgets(checked)
    except BadInput as error:
        error.keep_here()
        raise
    warnings = (*_warnings(checked), *overlap_warning(checked), *of_budgets)
    return replace(checked, contents=contents, warnings=warnings)


def _look_at_budgets(checked: Checked) -> tuple[Mapping[int, Contents], list[str]]:
    """The digests of the samples of the workers here, and warnings about their budgets."""
    settings, serves = checked.settings, checked.ranks.serves
    if not settings.privacy.has_dp:
        return {}, []
    shards = {rank: checked.shard(rank) for rank in checked.ranks.workers()}
    clients = checked.clients if serves else None
    samples = HeldSamples.read(settings, shards, clients, checked.dataset)
    sizes = {rank: len(units) for rank, units in samples.units.items()}
    check_delta(checked.launch.links.require, settings, sizes)
    goes_on = checked.continues is not None
    return samples.contents, check_budgets(samples, serves=serves, goes_on=goes_on)


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
    """Reads and checks this machine's certificate; None without TLS."""
    own_identity = read_identity(launch.links)
    if ranks.serves and launch.links.revoked is not None:
        read_revocations(launch.links, own_identity)
    credentials = None if own_identity is None else own_identity()
    if ranks.serves and _role(credentials) == "worker":
        file = flag("credentials", launch.links.credentials or launch.links.certificate)
        why = "is that of a worker, which no other rank lets be the server"
        raise BadInput(file, why, "give rank 0 one that was issued with --role server")
    is_secure = settings.secure.secure_aggregation
    if is_secure and ranks.hosts and (role := _role(credentials)) not in ("", "worker"):
        why = f"the certificate here is that of a {role}, which cannot stand for the workers here"
        way_out = f"start ranks {','.join(map(str, ranks.workers()))} by themselves, with a "
        way_out += "certificate of their own (mdgan credentials issue … --role worker)"
        raise BadInput(flag("secure_aggregation"), why, way_out)
    if credentials is not None and credentials.by_name and not _role(credentials):
        check_certificates(launch.links.require, settings)
    return own_identity


def _role(credentials: Identity | None) -> str:
    return "" if credentials is None else permit_of(credentials.certificate).role or ""


def _ranks_here(settled: Settled) -> LocalRanks:
    """Decides which ranks run on this machine; BadInput if other machines could not reach them."""
    settings, launch = settled.settings, settled.launch
    if settled.joins_as is not None:
        return LocalRanks(serves=False, hosts=((settled.joins_as,),), complete=False)
    if not settled.algorithm.has_hosts:
        if settled.ray is not None:
            why = f"{settings.algorithm} needs one process alone"
            raise BadInput(flag("launcher", "ray"), why)
        return LocalRanks(serves=True, hosts=(), complete=True)
    if settled.ray is not None:
        return ranks_elsewhere(launch)
    size = 1
    # Planned faults name a host by its first worker, so they fix how workers share processes.
    if settled.task is None and settled.faults == Planned():
        size = default_host_size(settings, launch, settled.models)
    ranks = local_ranks(settings, launch, settled.task, size)
    where = launch.links if settled.task is None else settled.task
    if where.master_port == 0 and not ranks.complete:
        why = "ranks on other machines could not know the port"
        raise BadInput(flag("master_port", 0), why, "name one")
    task = settled.task
    is_alone = ranks.complete if task is None else task.num_processes == task.processes_here
    if ranks.serves and not is_alone:
        check_reachable(where.master_addr.partition(",")[0], launch.links.listen)
    return ranks


def _warnings(checked: Checked) -> list[str]:
    """Warns of links, data and settings that work, but not as the user may expect."""
    settings, holdings, warnings = checked.settings, checked.holdings, []
    credentials, clients = checked.credentials, checked.clients
    if checked.launch.links.insecure:
        warnings.append(
            f"{flag('insecure')}: nothing is encrypted; who reaches the port can take part, and "
            "who is on the way can read and change everything"
        )
    is_secure = settings.secure.secure_aggregation
    is_covered = is_secure or settings.privacy.covers_samples
    if holdings and not (checked.ranks.serves or is_covered):
        warnings.append(
            f"neither {flag('dp_epsilon')} nor {flag('secure_aggregation')}: who runs the server "
            "can reconstruct samples of this machine from what it sends; take part if you trust "
            "them with these"
        )
    if is_secure and credentials is not None and not _role(credentials):
        warnings.append(
            f"{flag('secure_aggregation')}: the certificate here names no role, as in a file that "
            "all machines share, so a server that lies could pass for workers"
            f"{', and each host adds all of the noise' if settings.shares_noise else ''}; against "
            "that, give each host a certificate of its own (mdgan credentials issue)"
        )
    warnings += _same_data(settings, sorted(holdings))
    reads_ahead = any(source.read_one_by_one for source, _ in holdings.values())
    if settings.data.data_threads != "auto" and holdings and not reads_ahead:
        warnings.append(
            f"{key('data_threads', settings.data.data_threads)}: "
            f"{flag('dataset', settings.data.dataset)} reads nothing when it is drawn, so there is "
            "nothing to read ahead"
        )
    batch = settings.training.batch_size
    sizes = [] if clients is None else list(map(sum, clients.class_counts().values()))
    if few := sum(size < batch for size in sizes):
        warnings.append(
            f"{flag('clients', len(sizes))}: {few:,} of them hold fewer samples than a batch of "
            f"{batch}, so their batches repeat samples; take fewer clients, a smaller "
            f"{flag('batch_size')} or a larger data set"
        )
    small = [n for n, (_, indices) in holdings.items() if 0 < len(indices) < batch]
    repeats = checked.algorithm.lets_batches_repeat and not settings.privacy.hides_samples
    matters = repeats or not (settings.data.partition.divides or settings.tells_once)
    if small and matters and clients is None:
        ranks = ", ".join(map(str, small[:10])) + (", …" if len(small) > 10 else "")
        warnings.append(
            f"{len(small)} worker(s) hold fewer samples than a batch of {batch}, so their batches "
            f"{'repeat samples' if repeats else 'are all that they hold'}: rank(s) {ranks}"
        )
    return warnings


def _same_data(settings: RunSettings, ranks: Sequence[int]) -> list[str]:
    """Warns if several workers here read the same folder, which no partition divides."""
    data = settings.data
    if data.partition.name != "none" or data.data_dir is None:
        return []
    folders = Counter(data.data_folder(data.dataset, rank) for rank in ranks)
    if (number := max(folders.values(), default=1)) == 1:
        return []
    return [
        f"{flag('data_dir', data.data_dir)}: {number} workers here read all of it, and hold the "
        f"same samples; say {flag('partition', 'iid')} to divide it, or write {{rank}} for a "
        "folder each"
    ]
