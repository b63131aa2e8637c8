"""Opens the data folders and decides which samples each worker or client holds."""

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
"""For each worker, the source of its samples and the indices of those it holds, int64 [m]."""


def read_data(
    settings: RunSettings, dataset: DatasetFile, workers: Sequence[int]
) -> tuple[ClientShards | None, Holdings]:
    """Opens the data of some workers; BadInput if the folders do not fit the settings.

    Returns:
        The shards of all clients if the run places clients, else None; and the holdings of the
        workers. An algorithm without hosts has one worker with all data.
    """
    if settings.num_placed is None:
        return None, _holdings(settings, dataset, workers)
    clients = _clients(settings, dataset, settings.num_placed)
    return clients, {rank: clients.described_by(rank, settings.num_workers) for rank in workers}


def _clients(settings: RunSettings, dataset: DatasetFile, number: int) -> ClientShards:
    """Makes the shards of placed clients. Every rank opens the whole data, also the server's."""
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
    """Gives each worker its folder, or its part of the one folder that all divide."""
    if not workers:
        return {}
    folders = {worker: settings.data.data_folder(dataset.name, worker) for worker in workers}
    is_own, names = not settings.data.partition.divides, dict.fromkeys(folders.values())
    sources = {each: _open(settings, dataset, each, is_own=is_own) for each in names}
    if is_own:
        return {n: (sources[f], torch.arange(len(sources[f]))) for n, f in folders.items()}
    if len(sources) > 1:
        data_dir = flag("data_dir", settings.data.data_dir)
        why = f"divides one folder, but {data_dir} gives each rank its own"
        way_out = f"use {flag('partition', 'none')}"
        raise BadInput(flag("partition", settings.data.partition), why, way_out)
    (source,) = sources.values()
    holders = [worker for worker in range(1, settings.world_size) if settings.holds_data(worker)]
    part_of = dict(zip(holders, _parts(settings, source, len(holders)), strict=True))
    everything = torch.arange(len(source))  # for workers that join later, for which no part exists
    return {worker: (source, part_of.get(worker, everything)) for worker in workers}


def _parts(settings: RunSettings, source: Partitioner, number: int) -> list[Tensor]:
    scheme, seed = settings.data.partition, settings.training.seed
    return partition(source.labels, scheme, number, seed, _groups(settings, source))


def _groups(settings: RunSettings, source: Partitioner) -> Tensor | None:
    """The group of each sample, int64 [n]; one worker holds a whole group. None: no groups."""
    if not settings.privacy.hides_samples:
        return source.groups
    everything = Shard(source, torch.arange(len(source)), generator_for(0))
    units = Contents.of(everything).unit_of_sample
    if source.groups is None or units is None:
        return units
    from scipy.sparse import coo_array  # takes half a second to import
    from scipy.sparse.csgraph import connected_components

    # Patients with equal samples stay together: components of a graph of patients and samples.
    numbers = torch.unique(source.groups, return_inverse=True)[1]
    size = max(int(numbers.max()), int(units.max())) + 1
    links = coo_array((torch.ones(len(units)), (numbers, units + size)), shape=(2 * size,) * 2)
    return torch.from_numpy(connected_components(links, directed=False)[1]).long()[numbers]


def _open(
    settings: RunSettings, dataset: DatasetFile, folder: Path, *, is_own: bool = False
) -> Partitioner:
    """Opens a folder, which must hold a batch, unless it is a single worker's (`is_own`)."""
    source = dataset.open(folder, strict=settings.data.strict_data)
    may_be_small = is_own or settings.tells_once  # such a worker draws no batches
    if not may_be_small and settings.training.batch_size > len(source):
        why = f"larger than the whole data set ({dataset.name} in {folder})"
        way_out = f"take at most its {len(source):,} samples"
        raise BadInput(flag("batch_size", settings.training.batch_size), why, way_out)
    return source
