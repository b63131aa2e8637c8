"""A stopped and resumed run ends as if it had never been stopped, bit for bit."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from mdgan.errors import BadInput, Interrupted
from mdgan.families.mdgan.messages import BATCHES
from mdgan.families.mdgan.worker import Worker
from mdgan.messages import Message
from tests.claims.registry import claim
from tests.processes import read_events
from tests.unit.families.mdgan.played import answers_of, feedback_of
from tests.unit.families.mdgan.stage import Stage, as_after, make_worker, same_state

MakeStage = Callable[..., Stage]
SLOW = pytest.mark.slow
ITERATIONS, INTERVAL = 9, 3
ALONE = ((1,), (2,), (3,))
FIVE = ((1, 2), (3,), (4,), (5,))
SETTINGS: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "plain": (ALONE, {"swap_interval": 0}),
    "pairs": (ALONE, {"swap_interval": 2}),
    "a swap at each checkpoint": (ALONE, {"swap_interval": 3, "swap": "derangement"}),
    "several local steps": (ALONE, {"swap_interval": 2, "local_steps": 3}),
    "one batch": (ALONE, {"swap_interval": 4, "kappa": 1}),
    "as many batches as workers": (ALONE, {"swap_interval": 2, "kappa": 3}),
    "several workers a host": (((1, 2), (3,)), {"swap_interval": 1}),
    "all in one host": (((1, 2, 3),), {"swap_interval": 1, "local_steps": 2}),
    "to the server": (ALONE, {"swap_interval": 2, "to_server": True}),
    "two to the server": (((1, 2), (3,)), {"swap_interval": 3, "to_server": True}),
    "median": (ALONE, {"swap_interval": 2, "aggregation": "median"}),
    "two of five": (FIVE, {"num_workers": 5, "participation": 0.4, "swap_interval": 1}),
    "two of five, stale": (
        FIVE,
        {"num_workers": 5, "participation": 0.4, "swap_interval": 2, "stale": 1},
    ),
}


class Outcome:
    """All that a run leaves behind."""

    def __init__(self, made: Stage, workers: Mapping[int, Worker]) -> None:
        self.server = made.learner.state()
        self.workers = {rank: worker.state() for rank, worker in workers.items()}
        self.swaps = [
            (event["iteration"], event["moves"], event["given"], event["exact"])
            for event in read_events(made.folder, "swap")
        ]

    def differs_in(self, other: "Outcome") -> list[str]:
        differing = [] if same_state(self.server, other.server) else ["server"]
        return differing + [
            str(rank)
            for rank, state in self.workers.items()
            if not same_state(state, other.workers[rank])
        ]


def start(
    made: Stage, groups: tuple[tuple[int, ...], ...], disks: Callable[[int], Path] | None = None
) -> dict[int, Worker]:
    steps = made.settings.training.local_steps
    workers = {n: make_worker(n, local_steps=steps) for group in groups for n in group}
    for worker in workers.values():
        made.disk_keeps_up(worker)
    made.begin()
    for group in groups:
        disk = None if disks is None else disks(group[0])
        made.host({n: workers[n] for n in group}, checkpoints=disk)
    return workers


def run(
    made: Stage, groups: tuple[tuple[int, ...], ...], disks: Callable[[int], Path] | None = None
) -> Outcome:
    workers = start(made, groups, disks)
    made.finished()
    return Outcome(made, workers)


def stopped_in(made: Stage, groups: tuple[tuple[int, ...], ...], iteration: int) -> None:
    """Trains until the user asks the server to stop, just before hosts begin an iteration."""
    send = made.network.server.send
    arguments: list[int] = []

    def ask_and_send(host: int, message: Message) -> int:
        if message.iteration == iteration and not arguments:
            made.network.server.interrupt()
            arguments.append(host)
        return send(host, message)

    made.network.server.send = ask_and_send  # type: ignore[method-assign] # of this one alone
    start(made, groups)
    for actor in (made.actor, *made.hosts.values()):
        assert isinstance(actor.over(), Interrupted)


QUICK = {"pairs", "several local steps", "several workers a host", "to the server", "two of five"}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=SLOW) for name in SETTINGS]
)
def test_bit_for_bit(stage: MakeStage, tmp_path: Path, name: str) -> None:
    groups, settings = SETTINGS[name]
    settings = {"num_workers": 3, "iterations": ITERATIONS, "checkpoints": INTERVAL, **settings}
    made = stage(keep=10, **settings)
    whole = run(made, groups)
    assert made.checkpoints.committed() == [0, 3, 6, 9]
    for iteration in (3, 6):
        folder = as_after(made, iteration, tmp_path / f"died-{iteration}")
        again = stage(folder, goes_on=True, **settings)
        resumed = run(again, groups)
        assert not whole.differs_in(resumed)
        later = [swap for swap in whole.swaps if swap[0] > iteration]
        assert resumed.swaps[-len(later) :] == later if later else True


STOPPED = {"pairs", "two of five"}


@pytest.mark.parametrize(
    "name", [n if n in STOPPED else pytest.param(n, marks=SLOW) for n in sorted(QUICK)]
)
@pytest.mark.parametrize("interval", [100, 2])
def test_asked_to_stop_it_saves_and_goes_on_bit_for_bit(
    stage: MakeStage, name: str, interval: int
) -> None:
    """Between two checkpoints, at one, and in a run too short for any."""
    groups, settings = SETTINGS[name]
    settings = {"num_workers": 3, "checkpoints": interval, **settings}
    whole = run(stage(iterations=6, **settings), groups)
    made = stage(iterations=6, **settings)
    stopped_in(made, groups, 4)
    assert made.status()["state"] == "stopped"
    assert made.checkpoints.committed()[-1] == 4
    again = stage(made.folder, goes_on=True, iterations=6, **settings)
    assert again.peers.iteration == 4
    assert not whole.differs_in(run(again, groups))


@pytest.mark.parametrize(
    "name", [n if n in STOPPED else pytest.param(n, marks=SLOW) for n in sorted(QUICK)]
)
@pytest.mark.parametrize("length", [3, 4])
def test_a_run_that_was_done_is_made_longer(stage: MakeStage, name: str, length: int) -> None:
    """A swap after what was the last iteration is made up for."""
    groups, settings = SETTINGS[name]
    settings = {"num_workers": 3, "checkpoints": 100, **settings}
    whole = run(stage(iterations=7, **settings), groups)
    made = stage(iterations=length, **settings)
    run(made, groups)
    longer = run(stage(made.folder, goes_on=True, iterations=7, **settings), groups)
    assert not whole.differs_in(longer)
    assert longer.swaps == whole.swaps


@pytest.mark.parametrize(("died_at", "groups"), [(0, ALONE), (3, ((1, 2, 3),))])
def test_from_the_very_beginning_and_on_other_hosts(
    stage: MakeStage, tmp_path: Path, died_at: int, groups: tuple[tuple[int, ...], ...]
) -> None:
    settings = {"num_workers": 3, "iterations": 6, "checkpoints": 3, "swap_interval": 2}
    made = stage(keep=10, **settings)
    whole = run(made, ALONE)
    folder = as_after(made, died_at, tmp_path / "died")
    assert not whole.differs_in(run(stage(folder, goes_on=True, **settings), groups))


def test_with_disks_of_their_own(stage: MakeStage, tmp_path: Path) -> None:
    settings = {"num_workers": 2, "iterations": 6, "checkpoints": 3, "swap_interval": 2}
    made = stage(keep=10, **settings)
    whole = run(made, ((1,), (2,)), lambda host: tmp_path / f"disk-{host}")
    manifest = made.checkpoints.newest()[0]
    assert manifest is not None
    assert manifest.elsewhere == (1, 2)
    folder = as_after(made, 3, tmp_path / "died")
    again = stage(folder, goes_on=True, **settings)
    assert not whole.differs_in(run(again, ((1,), (2,)), lambda host: tmp_path / f"disk-{host}"))


def test_a_torn_checkpoint_is_passed_over(stage: MakeStage, tmp_path: Path) -> None:
    settings = {"num_workers": 2, "iterations": 6, "checkpoints": 2, "swap_interval": 2}
    made = stage(keep=10, **settings)
    whole = run(made, ((1,), (2,)))
    folder = as_after(made, 4, tmp_path / "died")
    torn = folder / "checkpoints" / "0000004" / "worker-0002.safetensors"
    torn.write_bytes(torn.read_bytes()[:-8])
    again = stage(folder, goes_on=True, **settings)
    assert again.peers.iteration == 2
    assert not whole.differs_in(run(again, ((1,), (2,))))


@pytest.mark.parametrize("num_workers", [1, pytest.param(2, marks=SLOW), 4])
def test_with_fewer_or_more_workers_it_goes_on(
    stage: MakeStage, tmp_path: Path, num_workers: int
) -> None:
    settings = {"iterations": 6, "checkpoints": 3, "swap_interval": 2}
    made = stage(num_workers=3, keep=10, **settings)
    run(made, ALONE)
    folder = as_after(made, 3, tmp_path / "died")
    again = stage(folder, goes_on=True, num_workers=num_workers, **settings)
    run(again, tuple((n,) for n in range(1, num_workers + 1)))
    assert again.status()["iteration"] == 6
    assert [record["workers"] for record in again.metrics()][-3:] == [num_workers] * 3


@pytest.mark.parametrize("lost", [(2,), (1, 2)])
def test_workers_whose_files_are_lost_go_on_with_copies_if_any_is_left(
    stage: MakeStage, tmp_path: Path, lost: tuple[int, ...]
) -> None:
    settings = {"num_workers": 2, "iterations": 4, "checkpoints": 2, "swap_interval": 0}
    made = stage(keep=10, **settings)
    run(made, ((1,), (2,)), lambda host: tmp_path / f"disk-{host}")
    folder = as_after(made, 2, tmp_path / "died")
    for host in lost:
        shutil.rmtree(tmp_path / f"disk-{host}")
    again = stage(folder, goes_on=True, **settings)
    run(again, ((1,), (2,)), lambda host: tmp_path / f"disk-{host}")
    assert len(lost) == 2 or again.network.server.traffic.sent["COPY"] > 0
    assert again.status()["iteration"] == 4


def test_a_successor_goes_on_without_those_who_do_not_come(
    stage: MakeStage, tmp_path: Path
) -> None:
    settings = {"num_workers": 3, "iterations": 6, "checkpoints": 3}
    made = stage(keep=10, **settings)
    run(made, ALONE)
    folder = as_after(made, 3, tmp_path / "died")
    successor = stage(folder, goes_on=True, replaces_another=True, liveness=2.0, **settings)
    run(successor, ((1,), (3,)))
    assert [record["workers"] for record in successor.metrics()][-3:] == [2, 2, 2]
    assert successor.events("resumed")[0]["workers"].keys() == {"1", "3"}


@claim("ranks-of-hosts", "at a standby, by the last checkpoint")
def test_a_successor_lets_no_worker_in_that_was_shut_out(stage: MakeStage, tmp_path: Path) -> None:
    settings = {"num_workers": 3, "iterations": 6, "checkpoints": 3, "strikes": 1}
    made = stage(keep=10, **settings)
    liar = made.play(3).ready()
    start(made, ((1,), (2,)))
    liar.take(BATCHES)
    liar.send(answers_of({3: torch.full_like(feedback_of(3, 1), torch.nan)}, 1))
    made.finished(liar)
    folder = as_after(made, 3, tmp_path / "died")
    successor = stage(folder, goes_on=True, replaces_another=True, **settings)
    with pytest.raises(BadInput, match="rank 3 was shut out"):
        successor.play(3, generation=1)
    run(successor, ((1,), (2,)))
    assert [record["workers"] for record in successor.metrics()][-3:] == [2, 2, 2]


def test_workers_that_lost_their_server_bring_their_own_states_to_its_successor(
    stage: MakeStage, tmp_path: Path
) -> None:
    settings = {"num_workers": 2, "iterations": 6, "checkpoints": 3}
    made = stage(keep=10, **settings)
    run(made, ((1,), (2,)))
    folder = as_after(made, 3, tmp_path / "died")
    successor = stage(folder, goes_on=True, replaces_another=True, **settings)
    late = successor.play(3, generation=1)  # it joined after the last checkpoint
    one, two = successor.play(1, generation=1), successor.play(2, generation=1)
    successor.begin(one, two, late)
    successor.finished(one, two, late)
    assert [record["workers"] for record in successor.metrics()][-3:] in ([3] * 3, [2, 3, 3])
    assert "COPY" not in one.message_kinds() + two.message_kinds()
