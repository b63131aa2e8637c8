"""Sums of which the server learns no part: it asks for them, and takes masks off whole sums.

The server's half of Bonawitz et al. 2017, figure 4; see `mask_host.py`. In a sum are the hosts
whose masked answers have come, whether they are there afterwards or not. If all have come, each is
asked for its shares at once. If not, those that are left first confirm to each other which have. A
sum that two thirds of its hosts, or three, do not survive is left out.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.server.engine import AllWorkersLost, Engine
from mdgan.engine.server.hosts import Hosts, in_words
from mdgan.engine.server.peers import Peers
from mdgan.engine.settings import LEAST_PARTIES, threshold
from mdgan.engine.stages.contract import AskedHosts, ServerPath
from mdgan.engine.stages.mask import (
    CODE_BYTES,
    LOSS_STEPS,
    NUM_LOSSES,
    MaskedSum,
    SumQuestion,
    Survivors,
    as_fields,
    order_for,
    read_masked,
    read_tensors,
)
from mdgan.engine.stages.mask_arithmetic import (
    PRIME,
    SECRET_BYTES,
    Limbs,
    Mask,
    put_together,
    sign_between,
    without_masks,
)
from mdgan.errors import BadInput
from mdgan.gan.exact_sum import PartialSum
from mdgan.messages import Kind, Message

_MOST_VAIN = 3

Masked = Mapping[int, Mapping[int, MaskedSum]]
"""What hosts have answered, by host and sum."""


def least_parties(members: Peers) -> int:
    """How many hosts a sum takes: as many as the host that insists on most."""
    hosts = (members.member(host) for host in members.hosts())
    return max([LEAST_PARTIES, *(int(m.key.get("least", 0)) for m in hosts if m is not None)])


@dataclass(frozen=True)
class _Sum:
    """One sum: its number, the hosts that were asked, and those whose masked answers have come."""

    group: int
    parties: Sequence[int]
    survivors: Sequence[int]

    @property
    def num_lost(self) -> int:
        return len(self.parties) - len(self.survivors)


class ServerMask(ServerPath):
    """Asks for masked sums of answers of a form, and has the masks taken off."""

    hides_answers = True

    def __init__(self, form: AnswerForm) -> None:
        super().__init__(form)
        self._question = SumQuestion(0, {})
        self._num_in_vain = 0
        self._senseless: set[tuple[int, ...]] = set()

    def begin(self, members: Peers) -> None:
        """Checks that a sum does not tell what a host has answered."""
        num_hosts = len(members.hosts())
        if num_hosts < LEAST_PARTIES:
            raise BadInput(
                f"--secure-aggregation: the workers are on {num_hosts} host(s), and a sum takes "
                f"{LEAST_PARTIES}; use --workers-per-host 1, or more machines"
            )

    def lacking(self, members: Peers, workers: Collection[int]) -> str:
        """A sum takes several hosts."""
        host_of = members.host_of()
        num_hosts = len({host_of.get(worker, worker) for worker in workers})
        return "" if num_hosts >= least_parties(members) else f"all but {num_hosts} host(s)"

    def most_groups(self, wanted: int, hosts: Hosts, members: Peers) -> int:
        """Each sum is of as many hosts as it takes."""
        return max(1, min(wanted, len(hosts) // least_parties(members)))

    def ask(self, hosts: Hosts, groups: Mapping[int, int], engine: Engine) -> AskedHosts:
        """Leaves out groups in which too few hosts have a part.

        Fields are `sums`, a `SumQuestion`, and `groups`: worker → the sum of its answer.
        """
        parties: dict[int, list[int]] = {}
        for host, workers in sorted(hosts.items()):
            if (member := engine.peers.member(host)) is None or not member.key:
                continue  # others would end if they were to mask with it
            for group in sorted({groups[worker] for worker in workers}):
                parties.setdefault(group, []).append(host)
        least = least_parties(engine.peers)
        enough = {group: each for group, each in parties.items() if len(each) >= least}
        chosen = sorted({host for each in enough.values() for host in each})
        asked = {host: hosts[host] for host in chosen}
        engine.peers.tell_keys(asked)
        self._question = SumQuestion(self._question.number + 1, enough)
        of_sums = {str(n): groups[n] for workers in asked.values() for n in workers}
        return AskedHosts(asked, groups, {**as_fields(self._question), "groups": of_sums})

    def collect(
        self,
        iteration: int,
        asked: AskedHosts,
        engine: Engine,
        weights: Mapping[int, float] | None = None,
        form: AnswerForm | None = None,
    ) -> Answers:
        """Waits for the sums that hosts were asked for, and has the masks taken off.

        The losses of workers are the mean of their group. There are no answers if too few hosts are
        left, or if no sum makes sense.

        Raises:
            AllWorkersLost: there was no sum several times in a row.
        """
        del weights  # hosts have multiplied by them, and no single answer is judged
        form = form or self.form
        read = partial(read_masked, form=form, parties=self._question.parties)
        masked: Masked = engine.collect(iteration, asked.hosts, read=read).masked
        least = least_parties(engine.peers)
        sums = [
            _Sum(group, parties, survivors)
            for group, parties in self._question.parties.items()
            if len(survivors := [host for host in parties if group in masked.get(host, {})])
            >= max(least, threshold(len(parties)))
        ]
        revealed = self._unmask(iteration, asked, sums, masked, engine) if sums else {}
        answers = Answers()
        for sum_ in sums:
            totals = {host: masked[host][sum_.group].total for host in sum_.survivors}
            shares = {h: own[sum_.group] for h, own in revealed.items() if sum_.group in own}
            if (total := total_of(sum_.parties, totals, shares)) is not None:
                self._add(answers, asked, sum_, total, engine, form)
        self._num_in_vain = 0 if answers.sums else self._num_in_vain + 1
        if self._num_in_vain == _MOST_VAIN:
            raise AllWorkersLost(
                f"{_MOST_VAIN} times in a row there was no sum: too few of its hosts were left to "
                "take the masks off, or one does not mask its answers as agreed, and sums do not "
                "tell which"
            )
        return answers

    def _unmask(
        self,
        iteration: int,
        asked: AskedHosts,
        sums: Sequence[_Sum],
        masked: Masked,
        engine: Engine,
    ) -> dict[int, dict[int, Limbs]]:
        """What hosts reveal, by host and sum (rounds 3 and 4)."""
        number, codes = self._question.number, dict[int, dict[int, Tensor]]()

        def ask(
            wanted: Sequence[_Sum],
            order: Callable[[int, list[_Sum]], Message],
            read: Callable[[Message], dict[int, Tensor]],
        ) -> dict[int, Any]:
            """Asks the survivors of some sums, as far as they are there."""
            own = {host: [s for s in wanted if host in s.survivors] for host in asked.hosts}
            there = [h for h, its in own.items() if its and engine.peers.member(h) is not None]
            hosts = {host: asked.hosts[host] for host in there}
            engine.ask(iteration, hosts, lambda host: order(host, own[host]))
            return engine.collect(iteration, hosts, read=read, again=True).masked

        def survivors(_host: int, own: list[_Sum]) -> Message:
            lists = {sum_.group: list(sum_.survivors) for sum_ in own}
            return order_for(Kind.SURVIVORS, iteration, Survivors(number, lists), {})

        def unmask(host: int, own: list[_Sum]) -> Message:
            # A host that has confirmed nothing reveals nothing.
            own = [s for s in own if not s.num_lost or s.group in codes.get(host, {})]
            lists = {sum_.group: list(sum_.survivors) for sum_ in own}
            for_host = {s.group: _codes_for(host, s, codes) for s in own if s.num_lost}
            shares = {sum_.group: _shares_for(host, sum_, masked) for sum_ in own}
            return order_for(Kind.UNMASK, iteration, Survivors(number, lists, for_host), shares)

        if incomplete := [sum_ for sum_ in sums if sum_.num_lost]:
            sizes = {sum_.group: (len(sum_.survivors) - 1, CODE_BYTES) for sum_ in incomplete}
            codes |= ask(incomplete, survivors, _reader("codes", sizes))
            confirmed = [group for given in codes.values() for group in given]
            sums = [
                sum_
                for sum_ in sums
                if not sum_.num_lost
                or confirmed.count(sum_.group) >= threshold(len(sum_.parties))  # else none reveals
            ]
        shapes = {s.group: (len(s.survivors), 1 + s.num_lost, SECRET_BYTES) for s in sums}
        revealed = ask(sums, unmask, _reader("revealed", shapes))
        return {
            host: {g: given.numpy().view("<u2").astype(np.uint16) for g, given in own.items()}
            for host, own in revealed.items()
        }

    def _add(
        self,
        answers: Answers,
        asked: AskedHosts,
        sum_: _Sum,
        total: Tensor,
        engine: Engine,
        form: AnswerForm,
    ) -> None:
        """Adds a sum, if each worker's part can have been below the form's limit."""
        answers.hosts.update(sum_.survivors)
        hosts = asked.hosts
        of_sum = [n for h in sum_.survivors for n in hosts[h] if asked.groups[n] == sum_.group]
        workers = tuple(of_sum)
        answer = total[:-NUM_LOSSES].double() / form.arithmetic.scale
        if not answer.abs().max() <= form.arithmetic.largest * len(workers):
            if workers not in self._senseless:
                self._senseless.add(workers)
                engine.note(
                    f"the sum of rank(s) {in_words(workers)} makes no sense: one of them does not "
                    "mask its answers as agreed; as long as that is so, training goes on without"
                )
            return
        answers.sums.append(PartialSum(workers, answer.view(form.shape)))
        mean = (total[-NUM_LOSSES:].double() / LOSS_STEPS / len(workers)).float()
        answers.losses.update(dict.fromkeys(workers, mean))


def _reader(name: str, shapes: Mapping[int, tuple[int, ...]]) -> Callable[[Message], Any]:
    return partial(read_tensors, name=name, shapes=shapes, dtype=torch.uint8)


def _row(of: Sequence[int], giver: int, reader: int) -> int:
    """The row for a host in what another one gives to all others."""
    place = of.index(reader)
    return place - (place > of.index(giver))


def _codes_for(host: int, sum_: _Sum, codes: Mapping[int, Mapping[int, Tensor]]) -> dict[int, str]:
    """What the other survivors have confirmed to a host."""
    return {
        other: given[sum_.group][_row(sum_.survivors, other, host)].numpy().tobytes().hex()
        for other, given in codes.items()
        if other != host and sum_.group in given
    }


def _shares_for(host: int, sum_: _Sum, masked: Masked) -> Tensor:
    """What the other survivors have encrypted for a host."""
    return torch.stack(
        [
            masked[other][sum_.group].shares[_row(sum_.parties, other, host)]
            for other in sum_.survivors
            if other != host
        ]
    )


def total_of(
    parties: Sequence[int], totals: Mapping[int, Tensor], shares: Mapping[int, Limbs]
) -> Tensor | None:
    """The sum of the survivors' addends without masks, int64 (round 4).

    It is None if fewer than t hosts have revealed all that it takes.

    Args:
        parties: the hosts that were asked, in the order of the question.
        shares: by host, what it has revealed; see `HostMask.reveal`.
    """
    needed, survivors = threshold(len(parties)), [host for host in parties if host in totals]
    holders = [host for host, its in sorted(shares.items()) if (its < PRIME).all()][:needed]
    if len(holders) < needed:
        return None
    points = [1 + parties.index(holder) for holder in holders]
    seeds = put_together(np.stack([shares[holder] for holder in holders]), points)
    lost = [host for host in parties if host not in totals]
    masks = [
        Mask(seed, sign)
        for host, its in zip(survivors, seeds, strict=True)
        for seed, sign in zip(its, [1, *(sign_between(host, d) for d in lost)], strict=True)
    ]
    return without_masks(totals, masks)
