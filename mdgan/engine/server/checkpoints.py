"""The server's side of checkpoints: it orders one, trains on, and writes the manifest at last."""

import queue
import shutil
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from mdgan import __version__, messages
from mdgan.engine.hello import Owner
from mdgan.engine.server.kept_states import KeptStates
from mdgan.engine.server.membership import Membership
from mdgan.engine.settings import RunSettings
from mdgan.messages import Message
from mdgan.observe.run_observer import RunObserver
from mdgan.records.values import passed
from mdgan.storage.background import BackgroundWriter
from mdgan.storage.checkpoints import SERVER_FILE, Checkpoints, worker_file
from mdgan.storage.fence import Fence, Fenced
from mdgan.storage.manifest import SERVER, Manifest
from mdgan.storage.state_file import Damaged, StoredFile, write_state
from mdgan.transport.server_end import ServerTransport

_DRAIN_SECONDS = 30.0

_STRAGGLE_SECONDS = 120.0
"""How long a checkpoint waits for live workers that have not written yet. Meanwhile no newer one is
made: an old checkpoint that has every worker is worth more than a new one that lacks some."""


@dataclass(frozen=True)
class Standing:
    """How far the run is, besides what the learners hold.

    Attributes:
        iteration: the last complete one.
        progress: what the algorithm counts, by its own names.
        seconds: since training began.
        shut_out: the workers that may not take part any more.
    """

    iteration: int
    progress: Mapping[str, int]
    seconds: float
    shut_out: Collection[int] = ()


@dataclass
class _Open:
    """A checkpoint that is not yet committed.

    Attributes:
        standing: how far the run is.
        states: what is to be written here, by `server` and the numbers of workers.
        asked: the hosts that were told to save their workers, with these.
        files: what workers have written, by their numbers.
        waiting: the workers that have not reported.
        borrows: whether the files of all other workers are those of the checkpoint before.
        owners: the hosts that the states of workers come from.
        since: when it was ordered, by the monotonic clock.
        delays: whether a later checkpoint was left out because of it.
    """

    standing: Standing
    states: dict[str, Mapping[str, Tensor]]
    asked: Mapping[int, Collection[int]] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    borrows: bool = False
    owners: Mapping[int, Owner] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)
    delays: bool = False


class ServerCheckpoints:
    """The server's side of checkpoints.

    Args:
        store: the checkpoints of the run.
        settings: how often, and where workers write.
        config: all settings of the run as JSON values, for the manifest.
        fence: says whether this server is still the one that may write.
        members: the hosts and workers that take part.
        observer: is told of what could not be written.
        committed: the checkpoint that the run goes on from.
        believes_first: see `KeptStates`.

    Attributes:
        ordered: the iteration of the checkpoint that hosts were last asked for.
    """

    def __init__(
        self,
        store: Checkpoints,
        settings: RunSettings,
        config: Mapping[str, Any],
        fence: Fence,
        members: Membership,
        observer: RunObserver,
        committed: Manifest | None = None,
        *,
        believes_first: bool = True,
    ) -> None:
        self._store = store
        self._settings = settings
        self._config = config
        self._fence = fence
        self._members = members
        self._observer = observer
        self._writer = BackgroundWriter()
        self._problems: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._open: _Open | None = None
        self._kept = KeptStates(store, members, committed, believes_first=believes_first)
        self.ordered = None if committed is None else committed.iteration

    def due(self, before: int, iteration: int, *, ends: bool = False) -> bool:
        """Whether there is to be a checkpoint after an iteration.

        Args:
            before: the last iteration that was asked about; −1 for the start.
            iteration: the last that is done.
            ends: whether training ends here although more iterations were planned.
        """
        settings = self._settings
        if not settings.checkpoints.checkpoint_interval:
            return False
        passes = passed(settings.checkpoints.checkpoint_interval, before, iteration)
        last = ends or iteration == settings.training.iterations
        return last or (passes and settings.makes_checkpoints)

    def order(
        self,
        standing: Standing,
        state: Mapping[str, Tensor],
        hosts: Mapping[int, Collection[int]],
        transport: ServerTransport,
    ) -> None:
        """Begins a checkpoint, unless workers of free hosts are still writing the one before.

        After two minutes the one before is made without the workers that have not written.

        Args:
            standing: how far the run is.
            state: the server's, a copy.
            hosts: those that are free, with their workers.
            transport: the server's end.
        """
        if self._is_delayed(standing.iteration, hosts):
            return
        self._close_open()
        counting = self._counting(standing.iteration)
        if counting is None:
            return
        asked = {host: frozenset(carried) for host, carried in hosts.items()}
        waiting = {worker for carried in asked.values() for worker in carried}
        states, owners = {**self._kept.left(), SERVER: state}, self._kept.owners(waiting)
        self._open = _Open(standing, states, asked, waiting=waiting, owners=owners)
        self.ordered = standing.iteration
        order = messages.checkpoint(
            standing.iteration, counting, to_server=self._settings.checkpoints.checkpoint_to_server
        )
        for host in hosts:
            transport.send(host, order)
        self._commit_if_complete()

    def save_alone(self, standing: Standing, state: Mapping[str, Tensor]) -> None:
        """Makes a checkpoint while all workers are gone; their files are those of the one before.

        No worker trains meanwhile, so the server waits until the one before is written.
        """
        self._close_open()
        if (
            not self._settings.checkpoints.checkpoint_interval
            or self._counting(standing.iteration) is None
        ):
            return
        self._writer.drain(_DRAIN_SECONDS)
        states = {**self._kept.left(), SERVER: state}
        self._open = _Open(standing, states, borrows=True, owners=self._kept.owners(()))
        self._commit_if_complete()

    def note(self, host: int, message: Message) -> None:
        """Takes in a CHECKPOINTED message.

        Args:
            host: its sender; what it says of workers that it does not carry is ignored.
            message: from that host.

        Raises:
            Damaged: it names a file that no worker writes.
        """
        reason, opened = str(message.fields["reason"]), self._open
        files = {int(n): StoredFile.from_record(r) for n, r in message.fields["files"].items()}
        for worker, stored in files.items():
            if stored.name != worker_file(worker):
                raise Damaged(f"{stored.name} is no file of worker {worker}")
        if reason:
            what = f"a worker could not write its checkpoint: {reason:.200}"
            self._problems.put((message.iteration, what))
        if opened is None or message.iteration != opened.standing.iteration:
            return
        carried = opened.asked.get(host, ())
        for worker in files.keys() & carried:
            opened.files[str(worker)] = files[worker]
        self._reported(carried if reason else files.keys() & carried)

    def note_states(self, host: int, message: Message) -> None:
        """Takes in the states that workers sent instead of writing them, or before they leave.

        Args:
            host: its sender; states of workers that it does not carry are ignored.
            message: a STATE message from that host.
        """
        states, opened = messages.by_worker(message), self._open
        if message.fields["purpose"] == "leave":
            carried = states.keys() & self._members.hosts().get(host, [])
            self._kept.leave({worker: states[worker] for worker in carried})
            return
        if opened is None or message.iteration != opened.standing.iteration:
            return
        own = states.keys() & opened.asked.get(host, ())
        opened.states.update({str(worker): states[worker] for worker in own})
        self._reported(own)

    def keep(self, states: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Keeps states for workers that will come without any, until they have them."""
        self._kept.keep(states)

    def hold(self, workers: Collection[int]) -> None:
        """Workers have states again: forgets what they left here when they went."""
        self._kept.hold(workers)

    def settle(self) -> None:
        """Hosts are gone: a checkpoint does not wait for their workers any more."""
        if self._open is not None:
            self._open.waiting.intersection_update(self._members.workers())
            self._commit_if_complete()

    def _reported(self, workers: Collection[int]) -> None:
        """Some workers have saved their states, or cannot."""
        if self._open is not None:
            self._open.waiting -= set(workers)
            self._commit_if_complete()

    def state_for(self, worker: int) -> Mapping[str, Tensor] | None:
        """What is kept here for a worker that lacks a state of its own, if anything is."""
        return self._kept.state_for(worker)

    def may_have(self, worker: int) -> bool:
        """Whether the host that has come with a worker's rank may have all of that."""
        return self._kept.may_have(worker)

    def newest(self) -> dict[str, Any] | None:
        """`whereabouts` of the newest checkpoint, if there is one."""
        return None if self._kept.newest is None else whereabouts(self._kept.newest)

    @property
    def last(self) -> int | None:
        """The iteration of the newest checkpoint that is written; None if there is none."""
        return None if self._kept.newest is None else self._kept.newest.iteration

    def complete(self) -> bool:
        """Whether every worker has reported."""
        return self._open is None or not self._open.waiting

    def waits_for(self, hosts: Mapping[int, Collection[int]]) -> bool:
        """Whether some hosts, given with their workers, may still report on a checkpoint."""
        opened = self._open
        if opened is None or time.monotonic() - opened.since > _STRAGGLE_SECONDS:
            return False
        return not opened.waiting.isdisjoint(n for carried in hosts.values() for n in carried)

    def poll(self) -> None:
        """Tells the user what went wrong in the background."""
        while not self._problems.empty():
            iteration, problem = self._problems.get()
            self._observer.note(f"warning: {problem}; training goes on")
            self._observer.event("unsaved", iteration, reason=problem)

    def check_fence(self) -> None:
        """Makes sure that no later server has taken over.

        Raises:
            Fenced: one has.
        """
        self._fence.check()

    def close(self, timeout_seconds: float) -> None:
        """Commits what there is and waits until it is written.

        Raises:
            Fenced: a later server has taken over.
        """
        self._close_open()
        self._writer.drain(timeout_seconds)
        self._writer.close(timeout_seconds)
        self.poll()

    def _is_delayed(self, iteration: int, hosts: Mapping[int, Collection[int]]) -> bool:
        opened = self._open
        if opened is None or not self.waits_for(hosts):
            return False
        if not opened.delays:
            behind = f"workers are still writing that of iteration {opened.standing.iteration}"
            self._problems.put((iteration, f"no checkpoint of iteration {iteration}: {behind}"))
        opened.delays = True
        return True

    def _counting(self, iteration: int) -> list[int] | None:
        """The checkpoints that count so far; None if the run's folder cannot be read now.

        Raises:
            Fenced: it is another server's.
        """
        try:
            self.check_fence()
            return self._store.committed()
        except OSError as error:
            self._could_not_write(iteration, error)
            return None

    def _could_not_write(self, iteration: int, error: OSError) -> None:
        what = f"the checkpoint of iteration {iteration} could not be written"
        self._problems.put((iteration, f"{what}: {error.strerror or error}"))

    def _close_open(self) -> None:
        if self._open is not None:
            self._open.waiting.clear()
            self._commit_if_complete()

    def _commit_if_complete(self) -> None:
        if self._open is None or self._open.waiting:
            return
        opened, self._open = self._open, None
        iteration = opened.standing.iteration

        def failed(error: OSError) -> None:
            self._could_not_write(iteration, error)
            self._store.discard(iteration)

        self._writer.submit_newest(lambda: self._commit(opened), failed)

    def _commit(self, opened: _Open) -> None:
        """Writes what is written here, and the manifest last; runs in the background."""
        store, standing, before = self._store, opened.standing, self._kept.newest
        try:
            self.check_fence()
        except Fenced:
            return  # the main thread will find out, too
        states, borrowed = opened.states, {}
        if before is not None and opened.borrows:
            again = before.iteration == standing.iteration  # then only what it lacks is written
            states = {key: s for key, s in states.items() if not (again and key in before.files)}
            borrowed = {key: f for key, f in before.files.items() if again or key != SERVER}
        if not states:
            return
        reach = self._observer.tracer.reach
        reach("write", standing.iteration)
        folder = store.make_folder_of(standing.iteration)
        if before is not None:
            _lend(store.folder_of(before.iteration), folder, borrowed.values())
        files = {**borrowed, **opened.files}
        for key, state in states.items():
            name = SERVER_FILE if key == SERVER else worker_file(int(key))
            files[key] = write_state(folder, name, state)
        elsewhere = [key for key, stored in files.items() if not (folder / stored.name).exists()]
        manifest = Manifest(
            iteration=standing.iteration,
            generation=self._fence.generation,
            progress=dict(standing.progress),
            seconds=standing.seconds,
            workers=tuple(sorted(int(key) for key in files if key != SERVER)),
            files=files,
            elsewhere=tuple(sorted(map(int, elsewhere))),
            settings=self._config,
            version=__version__,
            shut_out=tuple(sorted(standing.shut_out)),
        )
        reach("manifest", standing.iteration)
        store.commit(manifest)
        self._kept.commit(manifest, opened.owners, borrowed.keys() - states.keys())


def _lend(old: Path, new: Path, files: Iterable[StoredFile]) -> None:
    """Puts files of an earlier checkpoint into a later one, too."""
    for stored in files:
        if old != new and (old / stored.name).exists():
            (new / stored.name).unlink(missing_ok=True)
            try:
                (new / stored.name).hardlink_to(old / stored.name)
            except OSError:  # a file system without links
                shutil.copyfile(old / stored.name, new / stored.name)


def whereabouts(manifest: Manifest) -> dict[str, Any]:
    """What hosts need to find their own files of a checkpoint: JSON values."""
    files = {name: stored.as_record() for name, stored in manifest.files.items()}
    return {"iteration": manifest.iteration, "files": files}
