"""Loads what an audit attacks: a finished run's generator, its discriminators and its samples."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mdgan.data.dataset_file import NO_SUCH_FOLDER
from mdgan.data.digests import shared_samples
from mdgan.data.partitioner import Partitioner
from mdgan.data.readable import Readable
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.gan.labels import Samples
from mdgan.inspect.trained import TrainedRun, load_trained
from mdgan.launch.beginning import State, discriminator_in
from mdgan.launch.holdings import Holdings, read_data
from mdgan.records.recorded_run import RecordedRun
from mdgan.spelling import command, count, flag
from mdgan.storage.checkpoints import Checkpoints

_log = logging.getLogger(__name__)

_MOST_OF_A_SHARD, _MOST_IN_ALL, _FEWEST = 2000, 20_000, 100
FEWEST_HELD_OUT = 20


class NotHeldOut(BadInput):
    """Workers trained on the held-out samples, so that these cannot judge an attack."""


_PLACES = ("data_dir", "map")
CHANGES = (*_PLACES, "held_out")  # settings of a run that its audit may replace


@dataclass(frozen=True)
class Target:
    """A finished run and what an audit needs to attack it."""

    trained: TrainedRun
    recorded: RecordedRun
    settings: RunSettings  # with the folders of this machine
    holdings: Holdings
    held_out: Samples
    # Of the newest checkpoint, by the worker that holds them; 0 is the server.
    discriminators: Mapping[int, State]
    states: Mapping[int, State]
    checkpoint: int | None  # the iteration of that checkpoint; None if there is none

    def samples_of(self, worker: int) -> Samples:
        """Evenly chosen samples of a worker, up to a limit; only one of each person."""
        source, indices = self.holdings[worker]
        a_worker = max(_FEWEST, _MOST_IN_ALL // len(self.holdings))
        return _some(source, _one_of_each(source, indices), min(_MOST_OF_A_SHARD, a_worker))

    def pieces(self) -> Iterator[Tensor]:
        """All samples that any worker trained on, piece by piece."""
        for source, indices in self.holdings.values():
            for part in torch.split(indices, _MOST_OF_A_SHARD):
                yield Readable(source, part).images(torch.arange(len(part)))


def load_target(path: Path, changes: Mapping[str, str]) -> Target:
    """Loads a run, everything that an insider could have, and samples to judge attacks by."""
    trained = load_trained(path, places={n: changes[n] for n in _PLACES if n in changes})
    recorded = RecordedRun.read(path)
    if recorded.under_way:
        way_out = f"wait for its end, or go on with `{command('resume', path)}` if it died"
        raise BadInput(path, f"is not over ({recorded.status.get('state')})", way_out)
    settings = trained.changed_settings(changes)
    store = Checkpoints(path / "checkpoints", keep=1)
    manifest, damaged = store.newest()
    for line in damaged:
        _log.warning("warning: %s: %s", path, line)
    holdings = _holdings(trained, settings)
    held_out = _held_out(path, trained, settings, holdings=holdings)
    states = {} if manifest is None else dict(store.states_of(manifest))
    model = trained.models.discriminator()
    by_owner = {owner: discriminator_in(state, model) for owner, state in states.items()}
    discriminators = {owner: weights for owner, weights in by_owner.items() if weights is not None}
    return Target(
        trained,
        recorded,
        settings,
        holdings=holdings,
        held_out=held_out,
        discriminators=_without_copies(discriminators),
        states=states,
        checkpoint=None if manifest is None else manifest.iteration,
    )


def _held_out(
    path: Path, trained: TrainedRun, settings: RunSettings, holdings: Holdings
) -> Samples:
    source = trained.held_out(settings)
    if source is None:
        raise BadInput(
            path,
            f"{flag('dataset', trained.dataset.name)} has no held-out samples here, "
            "without which no attack can be judged",
            f"give {flag('held_out', 'DIR')} with samples that no worker trained on",
        )
    if len(source) < FEWEST_HELD_OUT:
        why = f"{count(len(source), 'held-out sample')} cannot judge an attack"
        raise BadInput(path, why, f"give at least {FEWEST_HELD_OUT} with {flag('held_out', 'DIR')}")
    everything = torch.arange(len(source))
    trained_on = {group for shard in holdings.values() for group in _groups(*shard)}
    if shared := len(trained_on & {*_groups(source, everything)}):
        why = (
            f"{count(shared, 'person')} of the held-out samples were trained on, too, "
            "so no attack can be judged"
        )
        raise BadInput(path, why, f"give {flag('held_out', 'DIR')} with samples of other persons")
    if not (overlap := shared_samples(holdings.values(), source, reads_all=True)).is_chance:
        way_out = f"give {flag('held_out', 'DIR')} with samples that no worker trained on"
        raise NotHeldOut(path, f"{overlap}, so no attack can be judged", way_out)
    return _some(source, _one_of_each(source, everything), _MOST_OF_A_SHARD)


def _groups(source: Partitioner, indices: Tensor) -> list[int]:
    """The person of each sample, as a number; empty if the data set knows no persons."""
    return [] if source.groups is None else source.groups[indices].tolist()


def _one_of_each(source: Partitioner, indices: Tensor) -> Tensor:
    """The first sample of each person, int64 [m]; all if the data set knows no persons."""
    if source.groups is None:
        return indices
    first: dict[int, int] = {}
    for place, group in enumerate(_groups(source, indices)):
        first.setdefault(group, place)
    return indices[list(first.values())]


def _holdings(trained: TrainedRun, settings: RunSettings) -> Holdings:
    """The samples of each worker; if the run divided no data, all samples as those of worker 1."""
    if settings.num_placed is not None or not registry.algorithm(settings.algorithm).has_hosts:
        source = trained.dataset.open(settings.data.data_folder(trained.dataset.name, 1))
        return {1: (source, torch.arange(len(source)))}
    workers = [n for n in range(1, settings.world_size) if settings.holds_data(n)]
    groups = [workers] if settings.data.partition.divides else [[worker] for worker in workers]
    holdings: dict[int, tuple[Partitioner, Tensor]] = {}
    refused: list[BadInput] = []
    for group in groups:
        try:
            _, held = read_data(settings, trained.dataset, group)
            holdings.update(held)
        except BadInput as error:
            refused.append(error)
    if not holdings and refused[0].for_others.endswith(NO_SUCH_FOLDER):
        why = "samples that workers trained on are needed, and are not on this machine"
        where = f"where they are, do `{command('audit', 'RUN')}` with a copy of the run's folder"
        raise BadInput(
            refused[0].what, why, f"{where}, or name them with {flag('data_dir', 'DIR')}"
        )
    if not holdings:
        raise refused[0]
    if refused:
        _log.warning(
            "warning: %s left out whose data are not here: %s",
            count(len(refused), "worker"),
            refused[0],
        )
    return holdings


def _without_copies(discriminators: Mapping[int, State]) -> dict[int, State]:
    """Drops discriminators of workers that equal the server's, bit for bit."""
    common = discriminators.get(0)
    return {
        worker: state
        for worker, state in discriminators.items()
        if not worker or common is None or any(not state[n].equal(common[n]) for n in state)
    }


def _some(source: Partitioner, indices: Tensor, most: int) -> Samples:
    places = torch.linspace(0, len(indices) - 1, min(most, len(indices)), dtype=torch.float64)
    return Readable(source, indices).samples(places.long())
