"""The server in a ring of hosts: it adds nothing, and so has the mean that they have.

Before gradients are added up, hosts tell how long they are. So the server refuses what no mean can
use, as it does in a star, and knows that every host is ready: then a sum takes only as long as its
bytes. Nothing is asked after it: a host that missed the sum says so when the next question comes.
What cannot be added up in whole steps, and whatever a broken ring leaves undone, the server
asks for once more and adds up itself.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.engine.parts import ServerHandler
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts
from mdgan.families.data_parallel.reference_replica import ReferenceReplica
from mdgan.families.data_parallel.replica import Reduction
from mdgan.families.data_parallel.ring_messages import (
    DONE,
    LARGEST,
    MEMBER,
    NORMS,
    add_up,
    norm_form,
    places,
    ring,
)
from mdgan.families.data_parallel.sums import Sums
from mdgan.gan.weighted_mean import MOST_EXACT
from mdgan.messages import Message
from mdgan.transport.collective import Collective

_LEAST_WORKERS = 2
"""The gradient of a single worker is its own mean, and needs no sum."""


@dataclass(frozen=True)
class _Told:
    """What a host has told since it was last asked.

    Attributes:
        place: where it listens.
        connected: whether it is connected with all other members.
        digest: of its replica, after it has stepped with the mean.
    """

    place: bytes = b""
    connected: bool = False
    digest: str = ""


class Ring:
    """The server's part in the ring, which is built anew when hosts come or go.

    Args:
        replica: what is stepped.
        sums: what is added up.
    """

    forms = (*(norm_form(reduction) for reduction in NORMS), DONE)
    """How hosts answer."""

    def __init__(self, replica: ReferenceReplica, sums: Sums) -> None:
        self._replica = replica
        self._sums = sums
        self._collective: Collective | None = None
        self._hosts: frozenset[int] = frozenset()
        self._cannot: frozenset[int] = frozenset()
        self._told: dict[int, _Told] = {}

    def handlers(self) -> Mapping[str, ServerHandler]:
        """By kind of message, what takes it in."""
        return {MEMBER: self._hear}

    def on_lost(self, here: Collection[int]) -> None:
        """Some hosts are gone: a ring with one of them is broken."""
        if not self._hosts <= set(here):
            self._drop()

    def stands(self, asked: Hosts) -> bool:
        """Whether these hosts, and no others, are members, with workers enough to add up."""
        num_workers = sum(map(len, asked.values()))
        is_whole = self._collective is not None and self._hosts == asked.keys()
        return is_whole and num_workers >= _LEAST_WORKERS

    def build(self, i: int, asked: Hosts, engine: Engine) -> None:
        """Builds a ring of some hosts, unless there is one, or these could not connect before."""
        hosts = frozenset(asked)
        num_workers = sum(map(len, asked.values()))
        if self.stands(asked) or hosts == self._cannot or num_workers < _LEAST_WORKERS:
            return
        self._drop()
        own = Collective(0, len(hosts) + 1, engine.own_address)
        ranks = {host: rank for rank, host in enumerate(sorted(hosts), start=1)}
        size, num_threads = len(ranks) + 1, torch.get_num_threads()
        with engine.span("ring"):
            self._ask(i, hosts, lambda host: ring(i, ranks[host], size, num_threads), engine)
            found = [own.place, *(self._told[host].place for host in ranks)]
            message = places(i, found)
            connected = self._ask(
                i, hosts, lambda _: message, engine, meanwhile=lambda: own.connect(found)
            )
        if connected and all(told.connected for told in self._told.values()):
            self._collective, self._hosts = own, hosts
            return
        own.close()
        if hosts <= engine.peers.hosts().keys():
            self._cannot = hosts
            engine.note(
                "not all hosts can connect with each other: gradients go through the server, with "
                "the same result, until hosts come or go"
            )

    def mean(
        self,
        i: int,
        reduction: Reduction,
        answers: Answers,
        weights: Mapping[int, float],
        engine: Engine,
        *,
        wants_digest: bool,
    ) -> Sequence[Tensor] | None:
        """The mean of the gradients that hosts have told of; members have stepped with it, too.

        Args:
            i: the iteration.
            reduction: which gradients.
            answers: how long they are.
            weights: of all workers in their mean.
            engine: asks hosts, and waits for them.
            wants_digest: whether hosts tell the digests of their replicas after the step.

        Returns:
            What `GradientVector.write` takes; None if it must be found in another way.
        """
        counted = {worker: weights[worker] for worker in sorted(answers.losses)}
        largest = answers.beside.get(LARGEST, {})
        most = sum(weight * float(largest[worker]) for worker, weight in counted.items())
        if self._collective is None or len(counted) < _LEAST_WORKERS or most >= MOST_EXACT:
            return None
        message = add_up(i, counted, wants_digest=wants_digest)
        sums = self._sums.addends(self._replica.vector(reduction), {}, counted)
        collective = self._collective

        def join_in() -> bool:
            with engine.span("reduce"):
                return collective.add_up(*sums)

        if wants_digest:
            is_whole = self._ask(i, self._hosts, lambda _: message, engine, meanwhile=join_in)
        else:
            for host in self._hosts:
                engine.tell(host, message)
            is_whole = join_in()
        if is_whole:
            return self._sums.mean(sums, counted)
        engine.note("the ring broke: the server adds up what its members have found")
        self._drop()
        return None

    @property
    def members(self) -> frozenset[int]:
        """The hosts that have the mean that was found last, but for those that say BEHIND."""
        return self._hosts

    def different(self, digest: str) -> set[int]:
        """The hosts among them whose replica is not the server's any more.

        Args:
            digest: of the server's replica.
        """
        return {host for host, told in self._told.items() if told.digest not in ("", digest)}

    def _drop(self) -> None:
        if self._collective is not None:
            self._collective.close()
        self._collective, self._hosts = None, frozenset()

    def _ask(
        self,
        i: int,
        hosts: Collection[int],
        question: Callable[[int], Message],
        engine: Engine,
        meanwhile: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Asks hosts, does its own share meanwhile, and waits until they are done.

        Returns:
            What came of the server's own share.
        """
        self._told = dict.fromkeys(hosts, _Told())
        free = engine.peers.free()
        asked: dict[int, list[int]] = {host: [] for host in hosts if host in free}
        engine.ask(i, asked, question)
        succeeds = meanwhile()
        engine.collect(i, asked, form=DONE)
        return succeeds

    def _hear(self, _engine: Engine, host: int, message: Message) -> None:
        told = message.fields
        if host in self._told:
            self._told[host] = _Told(
                bytes.fromhex(str(told.get("place", ""))),
                told.get("connected") is True,
                str(told.get("digest", "")),
            )
