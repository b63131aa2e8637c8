"""Reads the data of workers: what each holds, or what any client owns."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.partition import partition
from mdgan.data.partitioner import NoSamples, Partitioner
from mdgan.data.shard import ClientShards, Shard
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.gan.randomness import generator_for
from mdgan.privacy.contents import Contents
from mdgan.spelling import flag

Holdings = Mapping[int, tuple[Partitioner, Tensor]]
"""For each worker, the data that it draws from and which of it, int64 [m]."""


def read_data(
    settings: RunSettings, dataset: DatasetFile, workers: Sequence[int]
) -> tuple[ClientShards | None, Holdings]:
    """Reads the data that some workers need.

    Returns:
        The shards of placed clients, if there are such; and what the workers hold: all data, if
        the algorithm has no hosts.
    """
    if settings.num_placed is None:
        return None, _holdings(settings, dataset, workers)
    clients = _clients(settings, dataset, settings.num_placed)
    return clients, {rank: clients.described_by(rank, settings.num_workers) for rank in workers}


def _clients(settings: RunSettings, dataset: DatasetFile, number: int) -> ClientShards:
    """The shards of placed clients; every rank reads the data, the server's too."""
    folder = settings.data.data_folder(dataset.name, 1)
    if folder != settings.data.data_folder(dataset.name, 2):
        why = f"gives each rank its own data, but {flag('clients')} may be trained by any rank"
        raise BadInput(flag("data_dir", settings.data.data_dir), why, "name one folder")
    source = _open(settings, dataset, folder)
    clients = ClientShards(source, _parts(settings, source, number), settings.training.seed)
    registry.algorithm(settings.algorithm).build().check_holdings(settings, clients.class_counts())
    return clients


def _holdings(settings: RunSettings, dataset: DatasetFile, wanted: Sequence[int]) -> Holdings:
    entry = registry.algorithm(settings.algorithm)
    if not entry.has_hosts:
        source = _open(settings, dataset, settings.data.data_folder(dataset.name, 1))
        return {1: (source, torch.arange(len(source)))}
    held = _divide(settings, dataset, [*filter(settings.holds_data, wanted)])
    nothing = NoSamples(), torch.empty(0, dtype=torch.int64)
    holdings = {worker: held.get(worker, nothing) for worker in wanted}
    if len(held) == settings.num_workers:
        counts = {worker: held[0].class_counts(held[1]) for worker, held in holdings.items()}
        entry.build().check_holdings(settings, counts)
    return holdings


def _divide(settings: RunSettings, dataset: DatasetFile, workers: Sequence[int]) -> Holdings:
    if not workers:
        return {}
    folders = {worker: settings.data.data_folder(dataset.name, worker) for worker in workers}
    is_own, names = not settings.data.partition.divides, dict.fromkeys(folders.values())
    sources = {each: _open(settings, dataset, each, is_own=is_own) for each in names}
    if is_own:
        own = {worker: sources[folder] for worker, folder in folders.items()}
        return {worker: (source, torch.arange(len(source))) for worker, source in own.items()}
    if len(sources) > 1:
        raise BadInput(
            flag("partition", settings.data.partition),
            f"divides one folder, but {flag('data_dir', settings.data.data_dir)} gives each rank "
            "its own",
            f"use {flag('partition', 'none')}",
        )
    (source,) = sources.values()
    holders = [worker for worker in range(1, settings.world_size) if settings.holds_data(worker)]
    part_of = dict(zip(holders, _parts(settings, source, len(holders)), strict=True))
    everything = torch.arange(len(source))  # for newcomers: they have no part
    return {worker: (source, part_of.get(worker, everything)) for worker in workers}


def _parts(settings: RunSettings, source: Partitioner, number: int) -> list[Tensor]:
    scheme, seed = settings.data.partition, settings.training.seed
    return partition(source.labels, scheme, number, seed, _groups(settings, source))


def _groups(settings: RunSettings, source: Partitioner) -> Tensor | None:
    """Which samples go to one worker; where noise hides samples, those that count as one, too."""
    if not settings.privacy.hides_samples:
        return source.groups
    everything = Shard(source, torch.arange(len(source)), generator_for(0))
    units = Contents.of(everything).unit_of_sample
    if source.groups is None or units is None:
        return units
    from scipy.sparse import coo_array  # takes half a second to import
    from scipy.sparse.csgraph import connected_components

    # Patients who share a unit go together, too.
    numbers = torch.unique(source.groups, return_inverse=True)[1]
    size = max(int(numbers.max()), int(units.max())) + 1
    links = coo_array((torch.ones(len(units)), (numbers, units + size)), shape=(2 * size,) * 2)
    return torch.from_numpy(connected_components(links, directed=False)[1]).long()[numbers]


def _open(
    settings: RunSettings, dataset: DatasetFile, folder: Path, *, is_own: bool = False
) -> Partitioner:
    """Opens a folder; one that is a site's own may hold fewer samples than a batch."""
    source = dataset.open(folder, strict=settings.data.strict_data)
    may_be_small = is_own or settings.tells_once  # who tells once draws no batch
    if not may_be_small and settings.training.batch_size > len(source):
        whole = f"the whole data set of {len(source)} samples ({dataset.name} in {folder})"
        raise BadInput(flag("batch_size", settings.training.batch_size), f"larger than {whole}")
    return source
