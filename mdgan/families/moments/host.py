"""The hosts' share of DP-MERF: each worker adds up its samples' features, once."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from mdgan.data.shard import Shard
from mdgan.engine.host.protocol import Turn
from mdgan.engine.host_keys import NotMasked
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.engine.stages.contract import HostPath, Leaving
from mdgan.errors import BadInput
from mdgan.families.contract import HostNeeds, NothingKept
from mdgan.families.moments.message import SampleFeatures, noisy
from mdgan.families.moments.settings import MomentsSettings
from mdgan.gan.labels import Samples
from mdgan.messages import Message
from mdgan.privacy.budget import Budget
from mdgan.privacy.shared_noise import variance_of_part
from mdgan.privacy.spending import Spending
from mdgan.transport.host_end import HostTransport

ASK = "MOMENTS"  # server → host: tell the sums
_AT_ONCE = 256
_ALONE = 32  # the sum of one in so many samples is made alone, to see what it adds


@dataclass(frozen=True)
class SumTeller(NothingKept):
    """One worker: its samples, and what they may spend."""

    shard: Shard
    features: SampleFeatures
    budget: Budget | None
    part: float = 1.0  # by what its noise is multiplied, where others add the rest

    def tell(self) -> Tensor:
        """Σ φ(x) by class with noise, [K, 1 + D].

        It is float32, or float64 with a part of the noise: that must stay on its lattice.
        """
        sums = self.features.sums(self._pieces())
        if self.budget is None:
            return sums.float()
        canaries, total = self.budget.canaries, sums.clone()
        noise = self.budget.noise * self.part
        # Parts of the noise are never told again: sums of other workers would show them.
        may_repeat = canaries is None and self.part == 1
        question = b""
        if may_repeat and (releases := self.budget.releases) is not None:
            digest = sha256(sums.numpy().tobytes()).hexdigest()
            question = releases.question("moments", sums=digest, noise=noise)
            if (again := releases.told(question)) is not None:
                return again
        if self.budget.over:
            raise BadInput(
                "the samples here have told other sums with this epsilon before, by another seed "
                "or other features; give more --dp-epsilon, or the settings of before"
            )
        if canaries is not None:
            canaries.add_to(total.view(-1), self.budget.key("canaries"))
        told = noisy(total, noise, self.budget.key("moments"))
        told = told if self.part != 1 else told.float()
        if canaries is not None:
            units, own = self.budget.units, torch.arange(len(self.shard))
            unit_of_sample = own if units is None else units.unit_of_sample
            canaries.measured(longest=_longest(self.features, self._pieces(), unit_of_sample))
            canaries.watch(told.flatten().double(), sums.flatten())
            canaries.taken()
        self.budget.advance()
        if question:
            self.budget.keep(question, told)
        return told

    def _pieces(self) -> Iterator[tuple[Samples, Tensor]]:
        """All samples that can be read, and their weights: under noise those of a unit share 1."""
        units = None if self.budget is None else self.budget.units
        weights = torch.ones(len(self.shard)) if units is None else units.weights
        for places in torch.split(torch.arange(len(self.shard)), _AT_ONCE):
            piece = self.shard.taken(places)
            if len(piece) == len(places):
                yield piece, weights[places]
                continue
            for place in torch.split(places, 1):  # some cannot be read, and it is not told which
                one = self.shard.taken(place)
                yield one, weights[place][: len(one)]


class MomentsHost(HostPart):
    """Tells the sums of its workers when it is asked, and has nothing else to do."""

    begins = ASK
    rules: Mapping[str, Turn] = {ASK: Turn(most=10, above={ASK: 0})}  # again, it tells the same

    def __init__(
        self, needs: HostNeeds[MomentsSettings], path: HostPath, features: SampleFeatures
    ) -> None:
        self._needs = needs
        self.path = path
        self._identity = features.identity
        self._spending = Spending(needs.budgets)
        # A part of the noise is enough in a sum alone: what the server can see has all of it.
        self._is_shared = needs.settings.shares_noise and path.hides_answers
        self._tellers = {
            rank: SumTeller(shard, features, needs.budgets.get(rank))
            for rank, shard in needs.shards.items()
        }

    @property
    def learners(self) -> Mapping[int, SumTeller]:
        return self._tellers

    def handlers(self) -> Mapping[str, HostHandler]:
        return {ASK: self._tell_sums}

    def tell(self) -> dict[str, Any]:
        """How much noise the account of each worker takes."""
        budgets = self._needs.budgets
        return {"noise": {str(rank): budget.noise for rank, budget in budgets.items()}}

    def _tell_sums(self, question: Message, transport: HostTransport) -> None:
        if question.fields.get("features") != self._identity:
            raise BadInput("--set feature_network: not the server's file; give every rank the same")
        ranks = [rank for rank in self._tellers if self._spending.lets(rank)]
        if not ranks:  # asked before the server knew
            return
        if self._is_shared and len(ranks) < len(self._tellers):  # others count on its noise
            spent = ",".join(str(rank) for rank in self._tellers if rank not in ranks)
            raise BadInput(f"rank(s) {spent} cannot tell any more; start this host without")
        ending = self._spending.ending(dict.fromkeys(ranks, 1))
        sums, parts = {}, self._parts_of_noise(question)
        for rank in ranks:
            with self._needs.tracer.of_worker(rank)("embed"):
                sums[rank] = replace(self._tellers[rank], part=parts.get(rank, 1.0)).tell()
        with self._needs.tracer.span("send") as span:
            said = f"moments {self._identity} {_least_noise(question)!r}"
            about = sha256(said.encode()).digest()
            answer = self.path.pack(Leaving.in_one_sum(question, sums, about))
            ending.tell(question.iteration, transport.send)
            span.num_bytes = transport.send(answer)

    def _parts_of_noise(self, question: Message) -> dict[int, float]:
        """By rank; all of this host together add what one of M sharers adds.

        All hosts of a sum are told the same least noise of others, and each has as much itself.
        """
        budgets = self._needs.budgets
        if not self._is_shared or not budgets:
            return {}
        most, least = max(budget.noise for budget in budgets.values()), _least_noise(question)
        if not 0 <= least <= most:
            raise NotMasked(
                f"it says that others add noise of {least:g} at least, and not {most:g}"
            )
        variance = variance_of_part(most, least, self.path.num_sharers(question)) / len(budgets)
        return {rank: sqrt(variance) / budget.noise for rank, budget in budgets.items()}


def _longest(
    features: SampleFeatures, pieces: Iterable[tuple[Samples, Tensor]], unit_of_sample: Tensor
) -> float:
    """What a unit adds at most: by φ of its samples, and by sums of some samples alone.

    Args:
        pieces: as they are added up.
        unit_of_sample: the number of the unit of each sample in turn, int64 [n].
    """
    units, place, alone = torch.zeros(len(unit_of_sample)), 0, [0.0]
    for piece, weights in pieces:
        lengths = features.of(piece.images.to(features.frequencies.device)).norm(dim=1).cpu()
        owners = unit_of_sample[torch.arange(place, place + len(piece)) % len(units)]
        units.index_add_(0, owners, lengths.nan_to_num(0.0, 0.0, 0.0) * weights.float())
        place += len(piece)
        for one in range(0, len(piece), _ALONE):
            alone.append(float(features.sums([(piece[[one]], weights[[one]])]).norm()))
    return max(float(units.max()), *alone)


def _least_noise(question: Message) -> float:
    least = question.fields.get("least_noise")
    return float(least) if isinstance(least, int | float) else 0.0
