"""What a host tells while it works: the server what it does when, and the user how far it is."""

import logging
from dataclasses import dataclass

from msgspec import to_builtins

from mdgan import messages
from mdgan.credentials.identity import OwnIdentity
from mdgan.credentials.permit import permit_of
from mdgan.data.fetching import Fetcher
from mdgan.messages import Message
from mdgan.observe.progress import Teller
from mdgan.observe.tracer import Tracer, memory_bytes
from mdgan.privacy.attestation import Statement, attest
from mdgan.privacy.spending import Spending
from mdgan.transport.host_end import HostTransport

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HostReports:
    """What a host tells of its work; the user, if the server does not do so on this machine."""

    tracer: Tracer
    fetcher: Fetcher
    spending: Spending
    teller: Teller | None = None
    own_identity: OwnIdentity | None = None
    has_counted: bool = False  # whether the account has paid for counts as this host started

    def send(self, transport: HostTransport, part_bytes: int, *, at_end: bool = False) -> None:
        """Tells the server what the host did since the last time, has moved, holds and has spent.

        What processes of the algorithm's own hold is `part_bytes`.
        """
        iteration = self.tracer.iteration
        rows = self.tracer.take()
        memory = memory_bytes() if self.tracer.records else 0  # it follows what samples are
        told = messages.spans(
            iteration,
            rows,
            transport.traffic.sent,
            received_bytes=transport.traffic.received,
            memory_bytes=memory + (part_bytes if memory else 0),
            fetching=self.fetcher.tell(at_end=at_end),
            profile=self.tracer.profile(at_end=at_end),
            spent=self.spending.told(exactly=at_end),
        )
        transport.send(told)

    def attest(
        self, transport: HostTransport, stop: Message, known: Statement, workers: list[int]
    ) -> None:
        """Signs what the server says of the run, or tells it and the user why not."""
        said = stop.fields.get("said")
        if self.own_identity is None or not said:
            return
        own = self.own_identity()
        if permit_of(own.certificate).refusal("worker", workers):
            return  # the server's own certificate, of which its signature says enough
        early = self.spending.leaves_early(workers)
        account = self.spending.account(exactly=True)
        answer = attest(own, str(said), known, workers=workers, account=account, leaves_early=early)
        if answer.refusal:
            _log.warning("this host does not sign what is said of the run: %s", answer.refusal)
        transport.send(messages.attest(stop.iteration, to_builtins(answer, str_keys=True)))

    def tell_untrained(self) -> None:
        """Says what a start has cost in which the server asked this host for nothing."""
        account = self.spending.account(exactly=True) if self.has_counted else {}
        for rank, epsilon in account.get("epsilon", {}).items():
            paid = f"its account paid for its counts, and its samples have spent ε = {epsilon:.3g}"
            free = "free at the next start, unless the server got a part of shared noise with them"
            _log.warning("rank %s has not trained; %s in all; they are %s", rank, paid, free)

    def close(self) -> None:
        """The host ends in order."""
        self.fetcher.close()
        self.spending.close()
