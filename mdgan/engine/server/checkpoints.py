"""The server's side of checkpoints: has hosts write their files, then writes the manifest."""

import queue
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any, NamedTuple

from msgspec import structs

from mdgan import messages
from mdgan.engine.hello import Owner
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.engine.server.peers import Peers
from mdgan.engine.settings import RunSettings
from mdgan.gan.model_state import State
from mdgan.messages import Message
from mdgan.records.values import passed
from mdgan.storage.background import BackgroundWriter
from mdgan.storage.checkpoints import SERVER_FILE, Checkpoints, worker_file
from mdgan.storage.fence import Fence, Fenced
from mdgan.storage.manifest import SERVER, Manifest
from mdgan.storage.state_file import Damaged, StoredFile, write_state
from mdgan.version import __version__


class _Committed(NamedTuple):
    """A written checkpoint, and for each worker the host that sent its state, where it is known."""

    manifest: Manifest
    owners: dict[int, Owner]


@dataclass
class KeptStates:
    """Keeps the states that leaving workers sent, and finds states in the newest checkpoint.

    A worker's whole state shows which samples it has drawn, and its optimizer's moments show what
    it learnt from the last ones. So the server gives a state only to the host that sent it, not to
    another host that takes the rank. A run that is resumed has only new processes. Until training
    begins, the server takes the first host that comes with a rank for the host that had it.

    Attributes:
        believes_first: whether the server does so. A server that replaces a dead one does not: the
            hosts of the run are still there and hold their own states.
    """

    store: Checkpoints
    peers: Peers
    committed: InitVar[Manifest | None]
    believes_first: bool
    _left_states: dict[int, tuple[State, Owner | None]] = field(default_factory=dict, init=False)

    def __post_init__(self, committed: Manifest | None) -> None:
        # One value, so that the background thread that writes checkpoints can replace it at once.
        self._committed = None if committed is None else _Committed(committed, {})

    @property
    def newest(self) -> Manifest | None:
        """The manifest of the newest written checkpoint; None if there is none."""
        return None if self._committed is None else self._committed.manifest

    def keep(self, states: Mapping[int, State]) -> None:
        """Keeps states that any host may have that comes with these ranks and lacks states."""
        self._left_states.update({worker: (state, None) for worker, state in states.items()})

    def leave(self, states: Mapping[int, State]) -> None:
        """Keeps the states that leaving workers sent, each for the host that sent it."""
        for worker, state in states.items():
            self._left_states[worker] = state, self.peers.admission.owners.get(worker)

    def hold(self, workers: Iterable[int]) -> None:
        """Forgets the states kept for workers, because live workers have these ranks again."""
        for worker in workers:
            self._left_states.pop(worker, None)
            self._believe(worker, self.peers.admission.owners.get(worker))

    def left(self) -> dict[str, State]:
        """The states kept beside the checkpoint, by the worker's number."""
        return {str(worker): state for worker, (state, _) in self._left_states.items()}

    def owners(self, workers: Iterable[int]) -> dict[int, Owner]:
        """The owners of the states that these workers are about to send, and of those `left`."""
        owners = {worker: owner for worker, (_, owner) in self._left_states.items()}
        owners |= {worker: self.peers.admission.owners.get(worker) for worker in workers}
        return {worker: owner for worker, owner in owners.items() if owner is not None}

    def commit(
        self, manifest: Manifest, owners: Mapping[int, Owner], borrowed: Collection[str]
    ) -> None:
        """Remembers the checkpoint just written; files of `borrowed` are those of the last one."""
        last_owners = {} if self._committed is None else self._committed.owners
        lent = {n: owner for n, owner in last_owners.items() if str(n) in borrowed}
        fresh = {n: owner for n, owner in owners.items() if str(n) not in borrowed}
        self._committed = _Committed(manifest, {**lent, **fresh})

    def state_for(self, worker: int) -> State | None:
        """The state kept for a worker, whichever host sent it; None if there is none."""
        if worker in self._left_states:
            return self._left_states[worker][0]
        newest = self.newest
        stored = None if newest is None else newest.files.get(str(worker))
        if newest is None or stored is None:
            return None
        return self.store.find(newest.iteration, stored)

    def may_have(self, worker: int) -> bool:
        """Whether the host that now has a rank may have the whole state kept for that rank."""
        taker = self.peers.admission.owners.get(worker)
        if worker in self._left_states:
            _, owner = self._left_states[worker]
            return owner is None or owner.is_same(taker)
        self._believe(worker, taker)
        owner = None if self._committed is None else self._committed.owners.get(worker)
        return owner is not None and owner.is_same(taker)

    def _believe(self, worker: int, taker: Owner | None) -> None:
        if self.believes_first and not self.peers.has_begun and taker and self._committed:
            self._committed.owners.setdefault(worker, taker)


_DRAIN_SECONDS = 30.0

_STRAGGLE_SECONDS = 120.0
"""How long a checkpoint waits for live workers that have not written. Meanwhile the server makes
no newer one: an old checkpoint of every worker is worth more than a new one that lacks some."""


@dataclass
class _Open:
    """A checkpoint that is not committed yet. Keys of states and files: `server`, or a worker."""

    manifest: Manifest  # without files
    states: dict[str, State]  # those that the server writes itself
    owners: Mapping[int, Owner]  # by worker, the host that its state comes from
    asked: Hosts = field(default_factory=dict)  # the hosts, with workers, that were told to save
    waiting: set[int] = field(default_factory=set)  # workers that have not reported
    files: dict[str, StoredFile] = field(default_factory=dict)  # those that workers have written
    borrows: bool = False  # whether it takes all other files from the last checkpoint
    delays: bool = False  # whether the server left out a later checkpoint because of this one
    since: float = field(default_factory=time.monotonic)


@dataclass
class ServerCheckpoints:
    """The server's side of checkpoints; see `KeptStates` for `committed` and `believes_first`.

    Attributes:
        config: all settings as JSON values, for the manifest.
        ordered: the iteration of the checkpoint that hosts were last asked for.
    """

    store: Checkpoints
    settings: RunSettings
    config: Mapping[str, Any]
    fence: Fence
    peers: Peers
    committed: InitVar[Manifest | None] = None
    believes_first: InitVar[bool] = True

    def __post_init__(self, committed: Manifest | None, believes_first: bool) -> None:
        self.kept = KeptStates(self.store, self.peers, committed, believes_first=believes_first)
        self.ordered = None if committed is None else committed.iteration
        self._writer = BackgroundWriter()
        self._problems: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._open: _Open | None = None
        self._to_report: dict[int, int] = {}  # host → iteration of the checkpoint it shall write

    def due(self, before: int, iteration: int, *, ends: bool = False) -> bool:
        """Whether to make a checkpoint after an iteration; `before`: of the last such question."""
        settings = self.settings
        if not settings.checkpoints.checkpoint_interval:
            return False
        passes = passed(settings.checkpoints.checkpoint_interval, before, iteration)
        last = ends or iteration == settings.training.iterations
        return last or (passes and settings.makes_checkpoints)

    def order(self, iteration: int, progress: Mapping[str, int], state: State) -> None:
        """Begins a checkpoint, unless workers of free hosts are still writing the last one.

        After two minutes the server completes the last one without the workers that are missing.
        """
        if (writing := self._open) is not None and self.waits():
            if not writing.delays:
                behind = f"workers are still writing that of iteration {writing.manifest.iteration}"
                self._problems.put((iteration, f"no checkpoint of iteration {iteration}: {behind}"))
            writing.delays = True
            return
        self._close_open()
        counting = self._counting(iteration)
        if counting is None:
            return
        opened = self._begin(iteration, progress, state, hosts=self.peers.free())
        self.ordered = iteration
        to_server = self.settings.checkpoints.checkpoint_to_server
        order = messages.checkpoint(iteration, counting, to_server=to_server)
        self._to_report = dict.fromkeys(opened.asked, iteration)
        for host in opened.asked:
            self.peers.transport.send(host, order)
        self._commit_if_complete()

    def save_alone(self, iteration: int, progress: Mapping[str, int], state: State) -> None:
        """Makes a checkpoint while there are no workers; it takes their files from the last one.

        No worker trains meanwhile, so the server can wait until the last checkpoint is written.
        """
        self._close_open()
        if not self.settings.checkpoints.checkpoint_interval or self._counting(iteration) is None:
            return
        self._writer.drain(_DRAIN_SECONDS)
        self._begin(iteration, progress, state, hosts={}).borrows = True
        self._commit_if_complete()

    def _begin(
        self, iteration: int, progress: Mapping[str, int], state: State, hosts: Hosts
    ) -> _Open:
        """Opens a checkpoint for which these hosts will write the states of their workers."""
        frozen_hosts = {host: frozenset(workers) for host, workers in hosts.items()}
        waiting, standing = set(workers_of(frozen_hosts)), self.peers.admission.standing
        manifest = Manifest(
            iteration=iteration,
            generation=self.fence.generation,
            progress=dict(progress),
            seconds=self.peers.observer.seconds(),
            workers=(),
            files={},
            elsewhere=(),
            settings=self.config,
            version=__version__,
            shut_out=tuple(sorted(self.peers.admission.shut_out)),
            owners={str(n): owner[1:] for n, owner in [*self.peers.admission.owners.items()]},
            strikes={who: dict(counts) for who, counts in [*standing.strikes.items()]},
            named={rank: tuple(sorted(names)) for rank, names in [*standing.named.items()]},
        )
        states = {**self.kept.left(), SERVER: state}
        owners = self.kept.owners(waiting)
        self._open = _Open(manifest, states, owners, asked=frozen_hosts, waiting=waiting)
        return self._open

    def note_written(self, host: int, message: Message) -> None:
        """Takes in CHECKPOINTED: files that a host wrote, or why not; `Damaged` at a wrong name."""
        reason, opened = str(message.fields["reason"]), self._open
        files = {int(n): StoredFile.from_record(r) for n, r in message.fields["files"].items()}
        for worker, stored in files.items():
            if stored.name != worker_file(worker):
                raise Damaged(f"{stored.name} is no file of worker {worker}")
        if reason and self._to_report.get(host) == message.iteration:
            del self._to_report[host]  # the user reads it once for each order
            problem = f"a worker could not write its checkpoint: {reason:.99}"
            self._problems.put((message.iteration, problem))
        if opened is None or message.iteration != opened.manifest.iteration:
            return
        asked_workers = opened.asked.get(host, ())
        reported = files.keys() & asked_workers
        opened.files.update({str(worker): files[worker] for worker in reported})
        opened.waiting.difference_update(asked_workers if reason else reported)
        self._commit_if_complete()

    def note_states(self, host: int, message: Message) -> None:
        """Takes in states of a host's workers: for a checkpoint, or because the host leaves."""
        states, opened = messages.by_worker(message), self._open
        if message.fields["purpose"] == "leave":
            carried = states.keys() & self.peers.hosts().get(host, [])
            self.kept.leave({worker: states[worker] for worker in carried})
        elif opened is not None and message.iteration == opened.manifest.iteration:
            reported = states.keys() & opened.asked.get(host, ())
            opened.states.update({str(worker): states[worker] for worker in reported})
            opened.waiting -= reported
            self._commit_if_complete()

    def on_lost(self) -> None:
        """Stops waiting for files of lost workers."""
        if self._open is not None:
            self._open.waiting.intersection_update(self.peers.workers())
            self._commit_if_complete()

    def newest(self) -> dict[str, Any] | None:
        """`Manifest.whereabouts` of the newest checkpoint, if there is one."""
        return None if self.kept.newest is None else self.kept.newest.whereabouts()

    def complete(self) -> bool:
        """Whether every worker has reported on the open checkpoint; true if none is open."""
        return self._open is None or not self._open.waiting

    def waits(self) -> bool:
        """Whether the open checkpoint still waits for workers of free hosts."""
        opened = self._open
        if opened is None or time.monotonic() - opened.since > _STRAGGLE_SECONDS:
            return False
        return not opened.waiting.isdisjoint(workers_of(self.peers.free()))

    def poll(self) -> None:
        """Logs and records the problems of the thread that writes."""
        while not self._problems.empty():
            iteration, problem = self._problems.get()
            self.peers.observer.note(f"warning: {problem}; training goes on")
            self.peers.observer.event("unsaved", iteration, reason=problem)

    def close(self, timeout_seconds: float) -> None:
        """Commits the open checkpoint as it is, and waits until all is written."""
        self._close_open()
        self._writer.drain(timeout_seconds)
        self._writer.close(timeout_seconds)
        self.poll()

    def _counting(self, iteration: int) -> list[int] | None:
        """The iterations of the committed checkpoints; None if the folder cannot be read now."""
        try:
            self.fence.check()
            return self.store.committed()
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

        def failed(error: OSError) -> None:
            self._could_not_write(opened.manifest.iteration, error)
            self.store.discard(opened.manifest.iteration)

        self._writer.submit_newest(lambda: self._commit(opened), failed)

    def _commit(self, opened: _Open) -> None:
        """Writes the server's files and the manifest; runs in the thread that writes."""
        store, iteration, last = self.store, opened.manifest.iteration, self.kept.newest
        try:
            self.fence.check()
        except Fenced:
            return  # the main thread checks the fence, too
        states, borrowed = opened.states, {}
        if last is not None and opened.borrows:
            again = last.iteration == iteration  # then only the missing files are written
            states = {key: s for key, s in states.items() if not (again and key in last.files)}
            borrowed = {key: f for key, f in last.files.items() if again or key != SERVER}
        if not states:
            return
        reach = self.peers.observer.tracer.reach
        reach("write", iteration)
        folder = store.make_folder_of(iteration)
        if last is not None:
            store.lend(last.iteration, iteration, borrowed.values())
        files = {**borrowed, **opened.files}
        for key, state in states.items():
            name = SERVER_FILE if key == SERVER else worker_file(int(key))
            files[key] = write_state(folder, name, state)
        elsewhere = [key for key, stored in files.items() if not (folder / stored.name).exists()]
        manifest = structs.replace(
            opened.manifest,
            workers=tuple(sorted(int(key) for key in files if key != SERVER)),
            files=files,
            elsewhere=tuple(sorted(map(int, elsewhere))),
        )
        reach("manifest", iteration)
        store.commit(manifest)
        self.kept.commit(manifest, opened.owners, borrowed.keys() - states.keys())
