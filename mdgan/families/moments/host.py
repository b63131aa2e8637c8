"""The hosts' share of DP-MERF: each worker adds up its samples' features, once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from mdgan.data.shard import Shard
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.engine.stages.contract import HostPath, Leaving
from mdgan.errors import BadInput
from mdgan.families.contract import HostNeeds, NothingKept
from mdgan.families.moments.features import SampleFeatures
from mdgan.families.moments.settings import MomentsSettings
from mdgan.gan.labels import Samples
from mdgan.messages import Message
from mdgan.privacy.budget import Budget
from mdgan.privacy.noise import with_noise
from mdgan.privacy.spending import Spending
from mdgan.transport.host_end import HostTransport

ASK = "MOMENTS"
"""Server → host: tell the sums."""
_AT_ONCE = 256
_NO_LOSSES = torch.zeros(2)


@dataclass(frozen=True)
class SumTeller(NothingKept):
    """One worker: its samples, and what they may spend."""

    shard: Shard
    features: SampleFeatures
    budget: Budget | None
    num_sharers: int

    @property
    def noise(self) -> float:
        """The standard deviation of the noise in each value that it tells."""
        return 0.0 if self.budget is None else self.budget.noise / sqrt(self.num_sharers)

    def tell(self) -> Tensor:
        """Σ φ(x) by class with noise, [K, 1 + D].

        It is float32, or float64 with a part of the noise: that must stay on its lattice.
        """
        sums = self.features.sums(self._pieces())
        if self.budget is None:
            return sums.float()
        canaries, total = self.budget.canaries, sums.flatten().clone()
        if canaries is not None:
            canaries.add_to(total, self.budget.key("canaries"))
        noisy = with_noise(total, 1.0, self.noise, self.budget.key("moments"))
        told = noisy if self.num_sharers > 1 else noisy.float()
        if canaries is not None:
            canaries.measured(longest=self.features.longest(self._pieces()))
            canaries.watch(told.double(), sums.flatten())
            canaries.taken()
        self.budget.advance()
        return told.view_as(sums)

    def _pieces(self) -> Iterator[Samples]:
        for places in torch.split(torch.arange(len(self.shard)), _AT_ONCE):
            yield self.shard.taken(places)


class MomentsHost(HostPart):
    """Tells the sums of its workers when it is asked, and has nothing else to do."""

    begins = ASK

    def __init__(
        self, needs: HostNeeds[MomentsSettings], path: HostPath, features: SampleFeatures
    ) -> None:
        self._needs = needs
        self.path = path
        self._identity = features.identity
        self._spending = Spending(needs.budgets)
        # A part of the noise is enough in a sum alone: what the server can see has all of it.
        self._num_sharers = needs.settings.num_sharers if path.hides_answers else 1
        self._tellers = {
            rank: SumTeller(shard, features, needs.budgets.get(rank), self._num_sharers)
            for rank, shard in needs.shards.items()
        }

    @property
    def learners(self) -> Mapping[int, SumTeller]:
        """By rank."""
        return self._tellers

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""
        return {ASK: self._tell_sums}

    def tell(self) -> dict[str, Any]:
        """How much noise each worker adds."""
        return {"noise": {str(rank): teller.noise for rank, teller in self._tellers.items()}}

    def _tell_sums(self, question: Message, transport: HostTransport) -> None:
        if question.fields.get("features") != self._identity:
            raise BadInput("--set feature_network: not the server's file; give every rank the same")
        ranks = [rank for rank in self._tellers if self._spending.lets(rank)]
        if not ranks:  # asked before the server knew
            return
        if self._num_sharers > 1 and len(ranks) < len(self._tellers):  # others count on its noise
            spent = ",".join(str(rank) for rank in self._tellers if rank not in ranks)
            raise BadInput(f"rank(s) {spent} cannot tell any more; start this host without")
        ending = self._spending.ending(dict.fromkeys(ranks, 1))
        sums = {}
        for rank in ranks:
            with self._needs.tracer.of_worker(rank)("embed"):
                sums[rank] = self._tellers[rank].tell()
        with self._needs.tracer.span("send") as span:
            answer = self.path.pack(
                Leaving(
                    question,
                    sums,
                    dict.fromkeys(sums, _NO_LOSSES),
                    dict.fromkeys(sums, 0),
                    about=lambda: {0: sha256(f"moments {self._identity}".encode()).digest()},
                )
            )
            ending.tell(question.iteration, transport.send)
            span.num_bytes = transport.send(answer)
