"""The states of workers that the server keeps, and which host may have each of them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

from mdgan.engine.hello import Owner
from mdgan.engine.server.peers import Peers
from mdgan.gan.model_state import State
from mdgan.storage.checkpoints import Checkpoints
from mdgan.storage.manifest import Manifest


class _Committed(NamedTuple):
    """A checkpoint, and the hosts that the states of its workers came from, as far as known."""

    manifest: Manifest
    owners: dict[int, Owner]


@dataclass
class KeptStates:
    """Keeps what workers left when they went, and knows the newest checkpoint.

    A worker's whole state tells which samples it has seen, and its optimizer's moments what it has
    learnt from the last ones. So it goes back to the host that it came from and to no other that
    takes the rank. When a run goes on from a checkpoint, all of its processes are new: until
    training begins, the first host that comes with a rank is believed.

    Attributes:
        believes_first: whether such a host is believed. A server that takes over from one that died
            finds hosts that still hold their own states, so it believes none that lacks one.
    """

    store: Checkpoints
    peers: Peers
    committed: InitVar[Manifest | None]
    believes_first: bool
    _left: dict[int, tuple[State, Owner | None]] = field(default_factory=dict, init=False)

    def __post_init__(self, committed: Manifest | None) -> None:
        # One value, since the background thread that writes checkpoints replaces it.
        self._committed = None if committed is None else _Committed(committed, {})

    @property
    def newest(self) -> Manifest | None:
        """The newest checkpoint that is written."""
        return None if self._committed is None else self._committed.manifest

    def keep(self, states: Mapping[int, State]) -> None:
        """Keeps states that are for whichever hosts come without any, until they have them."""
        self._left.update({worker: (state, None) for worker, state in states.items()})

    def leave(self, states: Mapping[int, State]) -> None:
        """Keeps what workers that go have left."""
        for worker, state in states.items():
            self._left[worker] = state, self.peers.owner(worker)

    def hold(self, workers: Iterable[int]) -> None:
        """Workers have states again: forgets what they left here when they went."""
        for worker in workers:
            self._left.pop(worker, None)
            self._believe(worker, self.peers.owner(worker))

    def left(self) -> dict[str, State]:
        """By the worker's number, what is kept besides the checkpoint."""
        return {str(worker): state for worker, (state, _) in self._left.items()}

    def owners(self, workers: Iterable[int]) -> dict[int, Owner]:
        """Where the states come from that these workers are about to send, and those `left`."""
        known = {worker: owner for worker, (_, owner) in self._left.items()}
        known |= {worker: self.peers.owner(worker) for worker in workers}
        return {worker: owner for worker, owner in known.items() if owner is not None}

    def commit(
        self, manifest: Manifest, owners: Mapping[int, Owner], borrowed: Collection[str]
    ) -> None:
        """A thread has written a checkpoint, with states of these owners or of the last one."""
        before = {} if self._committed is None else self._committed.owners
        lent = {n: owner for n, owner in before.items() if str(n) in borrowed}
        new = {n: owner for n, owner in owners.items() if str(n) not in borrowed}
        self._committed = _Committed(manifest, {**lent, **new})

    def state_for(self, worker: int) -> State | None:
        """What is kept for a worker, if anything is, whichever host it came from."""
        if worker in self._left:
            return self._left[worker][0]
        newest = self.newest
        stored = None if newest is None else newest.files.get(str(worker))
        if newest is None or stored is None:
            return None
        return self.store.find(newest.iteration, stored)

    def may_have(self, worker: int) -> bool:
        """Whether the host that has come with a worker's rank may have the worker's whole state."""
        taker = self.peers.owner(worker)
        if worker in self._left:
            _, owner = self._left[worker]
            return owner is None or owner.is_same(taker)
        self._believe(worker, taker)
        owner = None if self._committed is None else self._committed.owners.get(worker)
        return owner is not None and owner.is_same(taker)

    def _believe(self, worker: int, taker: Owner | None) -> None:
        if self.believes_first and not self.peers.has_begun and taker and self._committed:
            self._committed.owners.setdefault(worker, taker)
