"""The server in a ring of hosts: it adds nothing, and so has the mean that they have.

Before gradients are added up, hosts tell how long they are. So the server refuses what no mean can
use, and knows that every host is ready. A host that missed the sum says so when the next question
comes. What cannot be added up in whole steps, and whatever a broken ring leaves undone, the server
asks for once more and adds up itself.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.parts import ServerHandler
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, in_words
from mdgan.families.data_parallel.messages import TrainQuestion
from mdgan.families.data_parallel.reference_replica import ReferenceReplica, SentWeights
from mdgan.families.data_parallel.ring_messages import (
    BEHIND,
    DONE,
    LARGEST,
    MEMBER,
    NORMS,
    add_up,
    norm_form,
    places,
    ring,
)
from mdgan.families.data_parallel.server import Average, Star, keeping_up
from mdgan.families.data_parallel.sums import Sums
from mdgan.gan.weighted_mean import MOST_EXACT
from mdgan.messages import Message
from mdgan.transport.collective import Collective

_LEAST_WORKERS = 2
"""The gradient of a single worker is its own mean, and needs no sum."""


@dataclass(frozen=True)
class _MemberReport:
    """What a host has reported since it was last asked."""

    place: bytes = b""
    """Where it listens."""
    connected: bool = False
    """Whether it is connected with all other members."""
    digest: str = ""
    """Of its replica, after it has stepped with the mean."""


class Ring(Star):
    """The server's part in the ring, which is built anew when hosts come or go."""

    def __init__(self, replica: ReferenceReplica, sent: SentWeights, sums: Sums) -> None:
        super().__init__(replica, sent)
        self._replica = replica
        self._sums = sums
        self._collective: Collective | None = None
        self._hosts: frozenset[int] = frozenset()
        self._cannot: frozenset[int] = frozenset()
        self._reports: dict[int, _MemberReport] = {}

    @property
    def forms(self) -> Sequence[AnswerForm]:
        """See `Star`."""
        return [*super().forms, *map(norm_form, NORMS), DONE]

    def handlers(self) -> Mapping[str, ServerHandler]:
        """See `Star`."""
        return {MEMBER: self._note_report, BEHIND: self._ask_anew}

    def settle(self, hosts: Collection[int]) -> None:
        """See `Star`: a ring with one that is gone is broken."""
        if not self._hosts <= set(hosts):
            self._drop()

    def prepare(self, i: int, asked: Hosts, engine: Engine) -> None:
        """Builds a ring of some hosts, unless there is one, or these could not connect before."""
        hosts = frozenset(asked)
        num_workers = sum(map(len, asked.values()))
        if self._stands(asked) or hosts == self._cannot or num_workers < _LEAST_WORKERS:
            return
        self._drop()
        collective = Collective(0, len(hosts) + 1, engine.own_address)
        ranks = {host: rank for rank, host in enumerate(sorted(hosts), start=1)}
        size, num_threads = len(ranks) + 1, torch.get_num_threads()
        with engine.span("ring"):
            self._order(i, hosts, lambda host: ring(i, ranks[host], size, num_threads), engine)
            by_rank = [collective.place, *(self._reports[host].place for host in ranks)]
            message = places(i, by_rank)
            connected = self._order(
                i, hosts, lambda _: message, engine, meanwhile=lambda: collective.connect(by_rank)
            )
        if connected and all(report.connected for report in self._reports.values()):
            self._collective, self._hosts = collective, hosts
            return
        collective.close()
        if hosts <= engine.peers.hosts().keys():
            self._cannot = hosts
            engine.note(
                "not all hosts can connect with each other: gradients go through the server, with "
                "the same result, until hosts come or go"
            )

    def reduce(
        self, i: int, question: TrainQuestion, hosts: Hosts, engine: Engine
    ) -> Average | None:
        """The mean by the ring, if there is one and it does not break; else by the server."""
        asked = keeping_up(hosts, question.shares, engine)
        if self._stands(asked):
            answers = self.ask(i, question, asked, norm_form(question.reduction), engine)
            mean = self._mean(i, question, answers, engine)
            if mean is not None:
                return Average(mean, answers, self._hosts)
            usable = {n: share for n, share in question.shares.items() if n in answers.losses}
            question = replace(question, shares=usable, is_again=True)
        return super().reduce(i, question, hosts, engine)

    def compare(self, i: int, stepped: Collection[int], engine: Engine) -> None:
        """Names hosts whose replica is another than the server's; they get the server's again."""
        if not stepped or not engine.checkpoint_due(i - 1, i):
            return
        digest = self._replica.digest()
        different = [n for n, report in self._reports.items() if report.digest not in ("", digest)]
        for host in sorted(different):
            self._sent.forget(host)
            workers = engine.peers.hosts().get(host, [])
            engine.event("replica", i, workers=workers)
            engine.note(
                f"the replica of rank(s) {in_words(workers)} is not the server's any more (broken "
                "memory, or another kind of machine?); it gets the server's again"
            )

    def _stands(self, asked: Hosts) -> bool:
        """Whether these hosts, and no others, are members, with workers enough to add up."""
        num_workers = sum(map(len, asked.values()))
        is_whole = self._collective is not None and self._hosts == asked.keys()
        return is_whole and num_workers >= _LEAST_WORKERS

    def _mean(
        self, i: int, question: TrainQuestion, answers: Answers, engine: Engine
    ) -> Sequence[Tensor] | None:
        """The mean of gradients of known length, with which members step, too; None if by none."""
        weights = question.weights
        counted = {worker: weights[worker] for worker in sorted(answers.losses)}
        largest = answers.beside.get(LARGEST, {})
        most = sum(weight * float(largest[worker]) for worker, weight in counted.items())
        collective = self._collective
        if collective is None or len(counted) < _LEAST_WORKERS or most >= MOST_EXACT:
            return None
        wants_digest = question.reduction.last and engine.checkpoint_due(i - 1, i)
        message = add_up(i, counted, wants_digest=wants_digest)
        sums = self._sums.addends(self._replica.vector(question.reduction), {}, counted)

        def join_in() -> bool:
            with engine.span("reduce"):
                return collective.add_up(*sums)

        if wants_digest:
            is_whole = self._order(i, self._hosts, lambda _: message, engine, meanwhile=join_in)
        else:
            for host in self._hosts:
                engine.tell(host, message)
            is_whole = join_in()
        if is_whole:
            return self._sums.mean(sums, counted)
        engine.note("the ring broke: the server adds up what its members have found")
        self._drop()
        return None

    def _drop(self) -> None:
        if self._collective is not None:
            self._collective.close()
        self._collective, self._hosts = None, frozenset()

    def _order(
        self,
        i: int,
        hosts: Collection[int],
        order: Callable[[int], Message],
        engine: Engine,
        meanwhile: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Orders hosts to do something, does its own share meanwhile, and waits for them."""
        self._reports = dict.fromkeys(hosts, _MemberReport())
        free = engine.peers.free()
        asked: dict[int, list[int]] = {host: [] for host in hosts if host in free}
        engine.ask(i, asked, order)
        succeeds = meanwhile()
        engine.collect(i, asked, form=DONE)
        return succeeds

    def _note_report(self, _engine: Engine, host: int, message: Message) -> None:
        report = message.fields
        if host in self._reports:
            self._reports[host] = _MemberReport(
                bytes.fromhex(str(report.get("place", ""))),
                report.get("connected") is True,
                str(report.get("digest", "")),
            )

    def _ask_anew(self, engine: Engine, host: int, _message: Message) -> None:
        """A host has missed the last sum: it gets the replica, and the same question."""
        self._sent.forget(host)
        engine.tell(host, self.message(host))
