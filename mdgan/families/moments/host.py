"""A host of DP-MERF: each of its workers sends one noisy sum over its samples, and is done."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from mdgan.data.shard import Shard
from mdgan.engine.host.protocol import Turn
from mdgan.engine.host_keys import NotMasked
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.engine.stages.contract import HostPath, Leaving
from mdgan.engine.stages.noise_parts import OF_ANSWERS, least_noise, parts_of_noise
from mdgan.errors import BadInput
from mdgan.families.contract import HostNeeds, NothingKept
from mdgan.families.moments.contract import Statistic
from mdgan.families.moments.settings import MomentsSettings
from mdgan.gan.labels import Samples
from mdgan.messages import Message
from mdgan.privacy.budget import Budget
from mdgan.privacy.canaries import most_canaries
from mdgan.privacy.spending import Spending
from mdgan.spelling import flag, key
from mdgan.transport.host_end import HostTransport

ASK = "MOMENTS"  # server → host: send the sums of your workers
_AT_ONCE = 256
_ALONE = 32  # an audit makes the sum of one sample in 32 alone, to measure what it adds


@dataclass(frozen=True)
class SumTeller(NothingKept):
    """Makes the noisy sum of one worker, and charges its budget."""

    shard: Shard
    statistic: Statistic
    budget: Budget | None
    part: float = 1.0  # the factor of its noise, where other workers add the rest
    asked: str = ""  # all that the sums follow from besides the samples

    def tell(self) -> Tensor:
        """The sums with noise, of the statistic's shape.

        They are float32; or float64 with a part of the noise, which must stay on its lattice.
        """
        sums = self.statistic.sums(self._pieces())
        if self.budget is None:
            return sums.float()
        canaries, total = self.budget.canaries, sums.clone()
        noise = self.budget.noise * self.part
        # A part of the noise must never be sent twice: the second sum of all workers would show it.
        may_repeat = canaries is None and self.part == 1
        question = b""
        if may_repeat and (releases := self.budget.releases) is not None:
            digest = sha256(sums.numpy().tobytes()).hexdigest()
            # With a question of the sums' digest alone a server that asks in another way would
            # learn whether the sums are the same.
            about = {"asked": self.asked, "sums": digest, "noise": noise}
            question = releases.question("moments", **about)
            if (again := releases.told(question)) is not None:
                return again
        if self.budget.over:
            raise BadInput(
                "the samples here have told other sums with this epsilon before, by another seed "
                "or other features",
                way_out=f"give more {flag('dp_epsilon')}, or the settings of before",
            )
        if canaries is not None:
            flat = total.view(-1) / self.statistic.length
            canaries.add_to(flat, self.budget.key("canaries"))
            total = (flat * self.statistic.length).view_as(sums)
        released = self.statistic.noisy(total, noise, self.budget.key("moments"))
        released = released if self.part != 1 else released.float()
        if canaries is not None:
            units, each = self.budget.units, torch.arange(len(self.shard))
            unit_of_sample = each if units is None else units.unit_of_sample
            longest = _longest(self.statistic, self._pieces(), unit_of_sample)
            canaries.direct.measured(longest=longest)
            noisy, exact = (values.flatten().double() for values in (released, sums))
            canaries.watch(noisy / self.statistic.length, exact / self.statistic.length)
            canaries.taken()
        self.budget.advance()
        if question:
            self.budget.keep(question, released)
        return released

    def _pieces(self) -> Iterator[tuple[Samples, Tensor]]:
        """All readable samples, and their weights; with noise those of a unit add up to 1."""
        units = None if self.budget is None else self.budget.units
        weights = torch.ones(len(self.shard)) if units is None else units.weights
        for places in torch.split(torch.arange(len(self.shard)), _AT_ONCE):
            piece = self.shard.taken(places)
            if len(piece) == len(places):
                yield piece, weights[places]
                continue
            for place in torch.split(places, 1):  # `taken` does not say which it could not read
                one = self.shard.taken(place)
                yield one, weights[place][: len(one)]


class MomentsHost(HostPart):
    """Answers the server's one question with the sums of its workers."""

    begins = ASK
    rules: Mapping[str, Turn] = {ASK: Turn(most=10, above={ASK: 0})}  # each answer is the same

    def __init__(
        self, needs: HostNeeds[MomentsSettings], path: HostPath, statistic: Statistic
    ) -> None:
        self._needs = needs
        self.path = path
        self._statistic = statistic
        self._asked_with: Mapping[str, Any] | None = None
        self._spending = Spending(needs.budgets)
        self._noises = {rank: budget.noise for rank, budget in needs.budgets.items()}
        # In a masked sum each worker adds a part of the noise: the server sees only the whole.
        self._is_shared = needs.settings.shares_noise and path.hides_answers
        self.learners: Mapping[int, SumTeller] = {
            rank: SumTeller(shard, statistic, needs.budgets.get(rank))
            for rank, shard in needs.shards.items()
        }

    def handlers(self) -> Mapping[str, HostHandler]:
        return {ASK: self._tell_sums}

    def tell(self) -> dict[str, Any]:
        """σ of each worker, from its account."""
        return {OF_ANSWERS: {str(rank): noise for rank, noise in self._noises.items()}}

    def _tell_sums(self, question: Message, transport: HostTransport) -> None:
        if question.fields.get("features") != self._statistic.identity:
            raise BadInput(
                key("feature_network"), "not the server's file", "give every rank the same"
            )
        ranks = [rank for rank in self.learners if self._spending.lets(rank)]
        if not ranks:  # the server asked before it knew that budgets are spent
            return
        if self._is_shared and len(ranks) < len(self.learners):  # others count on their noise
            spent = ",".join(str(rank) for rank in self.learners if rank not in ranks)
            raise BadInput(
                f"rank(s) {spent} cannot tell any more", way_out="start this host without"
            )
        statistic = self._asked(question)
        ending = self._spending.ending(dict.fromkeys(ranks, 1))
        noises = self._noises if self._is_shared else {}
        sums, parts = {}, parts_of_noise(question, self.path, noises)
        kind, shape = self._needs.kind, self._needs.models.shape
        asked = f"{statistic.meaning} {shape} {kind.meaning if kind else ''}"
        for rank in ranks:
            with self._needs.tracer.of_worker(rank)("embed"):
                teller = replace(self.learners[rank], statistic=statistic, asked=asked)
                sums[rank] = replace(teller, part=parts.get(rank, 1.0)).tell()
        with self._needs.tracer.span("send") as span:
            text = f"moments {statistic.identity} {statistic.fields()} {least_noise(question)!r}"
            about = sha256(text.encode()).digest()
            answer = self.path.pack(Leaving.in_one_sum(question, sums, about))
            ending.tell(question.iteration, transport.send)
            span.num_bytes = transport.send(answer)

    def _asked(self, question: Message) -> Statistic:
        """The statistic that the server asks for.

        Raises:
            NotMasked: its question makes no sense, or differs from its earlier one.
        """
        try:
            statistic = self._statistic.asked(question.fields)
        except ValueError as error:
            raise NotMasked(f"it asks for {error}") from error
        if self._asked_with is None:
            self._asked_with, self.path.form = statistic.fields(), statistic.form
        elif self._asked_with != statistic.fields():
            raise NotMasked("it asks for other sums than before")
        check_canaries(self._needs.settings.privacy.audit_canaries, statistic)
        return statistic


def check_canaries(number: int, statistic: Statistic) -> None:
    """Refuses, by BadInput, more canaries than the sums have numbers for."""
    if number > (most := most_canaries(statistic.most_numbers)):
        way_out = "give at most that"
        raise BadInput(flag("audit_canaries", number), f"sums have room for {most}", way_out)


def _longest(
    statistic: Statistic, pieces: Iterable[tuple[Samples, Tensor]], unit_of_sample: Tensor
) -> float:
    """The most that a unit adds, in units of `Statistic.length`: an audit measures it.

    It is the larger of two: the lengths of all samples, added up by unit; and the length of the sum
    of a single sample, for one sample in `_ALONE`. `unit_of_sample` has unit numbers, int64 [n].
    """
    units = torch.zeros(len(unit_of_sample))
    place = 0
    alone = [0.0]
    for piece, weights in pieces:
        lengths = statistic.lengths(piece)
        owners = unit_of_sample[torch.arange(place, place + len(piece)) % len(units)]
        units.index_add_(0, owners, lengths.nan_to_num(0.0, 0.0, 0.0) * weights.float())
        place += len(piece)
        for one in range(0, len(piece), _ALONE):
            alone.append(float(statistic.sums([(piece[[one]], weights[[one]])]).norm()))
    return max(float(units.max()), *alone) / statistic.length
