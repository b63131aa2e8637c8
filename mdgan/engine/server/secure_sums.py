"""Sums of answers of which the server sees no part: it asks, and takes masks off whole sums.

The server's side of Bonawitz et al. 2017, figure 4; see `masked_answers.py`. In a sum are the
hosts whose masked answers have come, whether they are there afterwards or not. If all have come,
each is asked for its shares at once. If not, those that are left first confirm to each other which
have. A sum that two thirds of its hosts, or three, do not survive is left out.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.pairwise_masks import Mask, sign_between, unmasked
from mdgan.engine.parts import ServerPart
from mdgan.engine.secret_sharing import PRIME, Limbs, put_together
from mdgan.engine.secure_settings import LEAST_PARTIES, threshold
from mdgan.engine.server.engine import AllWorkersLost, Engine
from mdgan.engine.server.hosts import Hosts, in_words
from mdgan.engine.server.keys_told import tell_keys
from mdgan.engine.server.peers import Peers
from mdgan.engine.sum_messages import (
    LOSS_STEPS,
    NUM_LOSSES,
    MaskedSum,
    SumQuestion,
    Survivors,
    order_for,
    read_codes,
    read_masked,
    read_revealed,
)
from mdgan.errors import BadInput
from mdgan.gan.exact_sum import PartialSum
from mdgan.messages import Kind, Message

_MOST_VAIN = 3


@dataclass(frozen=True)
class SumsAsked:
    """What hosts were asked for.

    Attributes:
        hosts: each with its workers.
        groups: by worker, the sum that its answer belongs to.
        question: says which hosts take part in which sum.
    """

    hosts: Hosts
    groups: Mapping[int, int]
    question: SumQuestion


def check_hosts(members: Peers, form: AnswerForm) -> None:
    """Checks that a run begins with enough hosts.

    Raises:
        BadInput: a sum would tell what a host has answered.
    """
    num_hosts = len(members.hosts())
    if form.steps and num_hosts < LEAST_PARTIES:
        raise BadInput(
            f"--secure-aggregation: the workers are on {num_hosts} host(s), and a sum takes "
            f"{LEAST_PARTIES}; use --workers-per-host 1, or more machines"
        )


def least_parties(members: Peers) -> int:
    """How many hosts a sum takes: as many as the host that insists on most."""
    found = (members.member(host) for host in members.hosts())
    return max([LEAST_PARTIES, *(int(m.key.get("least", 0)) for m in found if m is not None)])


def sums_to_ask(engine: Engine, hosts: Hosts, groups: Mapping[int, int]) -> SumsAsked:
    """Which sums hosts can be asked for, in a question of its own.

    Args:
        engine: counts questions, and knows the hosts' keys.
        hosts: each with its workers.
        groups: by worker, the sum that its answer belongs to; those of which fewer than
            `least_parties` hosts have a part are not asked for.
    """
    parties: dict[int, list[int]] = {}
    for host, workers in sorted(hosts.items()):
        if (member := engine.peers.member(host)) is None or not member.key:
            continue  # others would end if they were to mask with it
        for group in sorted({groups[worker] for worker in workers}):
            parties.setdefault(group, []).append(host)
    least = least_parties(engine.peers)
    enough = {group: each for group, each in parties.items() if len(each) >= least}
    asked = {host: hosts[host] for host in sorted({h for each in enough.values() for h in each})}
    tell_keys(engine.peers, engine.tell, asked)
    engine.num_sum_questions += 1
    return SumsAsked(asked, groups, SumQuestion(engine.num_sum_questions, enough))


def collect_sums(engine: Engine, iteration: int, asked: SumsAsked, form: AnswerForm) -> Answers:
    """Waits for sums that hosts were asked for, and has the masks taken off.

    Args:
        engine: asks hosts, and waits for them.
        iteration: i.
        asked: `engine.ask` has told the hosts.
        form: how they answer.

    Returns:
        A sum of the workers of each group whose answers have come, and their losses: the mean of
        the group. Empty if too few hosts are left, or if no sum makes sense.

    Raises:
        AllWorkersLost: there was no sum several times in a row.
    """
    read = partial(read_masked, form=form, parties=asked.question.parties)
    masked: Masked = engine.collect(iteration, asked.hosts, read=read).masked
    least = least_parties(engine.peers)
    sums = [
        _Sum(group, parties, survivors)
        for group, parties in asked.question.parties.items()
        if len(survivors := [host for host in parties if group in masked.get(host, {})])
        >= max(least, threshold(len(parties)))
    ]
    revealed = _unmask(engine, iteration, asked, sums, masked) if sums else {}
    found = Answers()
    for sum_ in sums:
        totals = {host: masked[host][sum_.group].total for host in sum_.survivors}
        shares = {h: own[sum_.group] for h, own in revealed.items() if sum_.group in own}
        if (total := total_of(sum_.parties, totals, shares)) is not None:
            _add(found, asked, sum_, total, form, engine)
    engine.vain_sums = 0 if found.sums else engine.vain_sums + 1
    if engine.vain_sums == _MOST_VAIN:
        raise AllWorkersLost(
            f"{_MOST_VAIN} times in a row there was no sum: too few of its hosts were left to take "
            "the masks off, or one does not mask its answers as agreed, and sums do not tell which"
        )
    return found


def lacking_for_sums(part: ServerPart, members: Peers, workers: Collection[int]) -> str:
    """As `ServerPart.lacking`, where a sum takes several hosts."""
    gone, host_of = part.lacking(workers), members.host_of()
    num_hosts = len({host_of.get(worker, worker) for worker in workers})
    return gone or ("" if num_hosts >= least_parties(members) else f"all but {num_hosts} host(s)")


Masked = Mapping[int, Mapping[int, MaskedSum]]
"""What hosts have answered, by host and sum."""


@dataclass(frozen=True)
class _Sum:
    """One sum.

    Attributes:
        group: its number.
        parties: the hosts that were asked.
        survivors: those whose masked answers have come, in the same order.
    """

    group: int
    parties: Sequence[int]
    survivors: Sequence[int]

    @property
    def lost(self) -> list[int]:
        """The other hosts."""
        return [host for host in self.parties if host not in self.survivors]


def _unmask(
    engine: Engine, iteration: int, asked: SumsAsked, sums: Sequence[_Sum], masked: Masked
) -> Mapping[int, Mapping[int, Limbs]]:
    """What hosts reveal, by host and sum (rounds 3 and 4)."""
    number = asked.question.number
    codes: Mapping[int, Any] = {}

    def ask(
        order: Callable[[int, list[_Sum]], Message],
        wanted: Sequence[_Sum],
        read: Callable[[Message], Any],
    ) -> Mapping[int, Any]:
        """Asks the survivors of some sums, as far as they are there."""
        own = {host: [sum_ for sum_ in wanted if host in sum_.survivors] for host in asked.hosts}
        hosts = {
            host: asked.hosts[host]
            for host, its in own.items()
            if its and engine.peers.member(host) is not None
        }
        engine.ask(iteration, hosts, lambda host: order(host, own[host]))
        return engine.collect(iteration, hosts, read=read, again=True).masked

    def survivors(_host: int, own: list[_Sum]) -> Message:
        lists = {sum_.group: list(sum_.survivors) for sum_ in own}
        return order_for(Kind.SURVIVORS, iteration, Survivors(number, lists), {})

    def unmask(host: int, own: list[_Sum]) -> Message:
        # A host that has confirmed nothing reveals nothing.
        own = [sum_ for sum_ in own if not sum_.lost or sum_.group in codes.get(host, {})]
        lists = {sum_.group: list(sum_.survivors) for sum_ in own}
        for_host = {sum_.group: _codes_for(host, sum_, codes) for sum_ in own if sum_.lost}
        shares = {sum_.group: _shares_for(host, sum_, masked) for sum_ in own}
        return order_for(Kind.UNMASK, iteration, Survivors(number, lists, for_host), shares)

    if lacking := [sum_ for sum_ in sums if sum_.lost]:
        lists = {sum_.group: sum_.survivors for sum_ in lacking}
        codes = ask(survivors, lacking, partial(read_codes, survivors=lists))
        sums = [sum_ for sum_ in sums if not sum_.lost or _is_confirmed(sum_, codes)]
    shapes = {sum_.group: (len(sum_.survivors), 1 + len(sum_.lost)) for sum_ in sums}
    return ask(unmask, sums, partial(read_revealed, shapes=shapes))


def _row(of: Sequence[int], giver: int, reader: int) -> int:
    """The row for a host in what another one gives to all others."""
    place = of.index(reader)
    return place - (place > of.index(giver))


def _is_confirmed(sum_: _Sum, codes: Mapping[int, Mapping[int, Tensor]]) -> bool:
    """Whether enough hosts confirm who has survived; fewer would reveal nothing."""
    return sum(sum_.group in its for its in codes.values()) >= threshold(len(sum_.parties))


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
    """The sum of the survivors' addends, without masks (round 4).

    Args:
        parties: the hosts that were asked, in the order of the question.
        totals: of those that have survived, what they have masked, int64.
        shares: by host, what it has revealed; see `MaskedAnswers.reveal`.

    Returns:
        int64; None if fewer than t hosts have revealed all that it takes.
    """
    needed, survivors = threshold(len(parties)), [host for host in parties if host in totals]
    holders = [host for host, its in sorted(shares.items()) if (its < PRIME).all()][:needed]
    if len(holders) < needed:
        return None
    points = [1 + parties.index(holder) for holder in holders]
    seeds = put_together(np.stack([shares[holder] for holder in holders]), points)
    lost = [host for host in parties if host not in totals]
    left = [
        Mask(seed, sign)
        for host, its in zip(survivors, seeds, strict=True)
        for seed, sign in zip(its, [1, *(sign_between(host, d) for d in lost)], strict=True)
    ]
    return unmasked(totals, left)


def _add(
    found: Answers,
    asked: SumsAsked,
    sum_: _Sum,
    total: Tensor,
    form: AnswerForm,
    engine: Engine,
) -> None:
    """Adds a sum, if it makes sense."""
    found.hosts.update(sum_.survivors)
    workers = [
        n for host in sum_.survivors for n in asked.hosts[host] if asked.groups[n] == sum_.group
    ]
    if not _makes_sense(total, form, len(workers)):
        if tuple(workers) not in engine.senseless_sums:
            engine.senseless_sums.add(tuple(workers))
            engine.note(
                f"the sum of rank(s) {in_words(workers)} makes no sense: one of them does not "
                "mask its answers as agreed; as long as that is so, training goes on without"
            )
        return
    answer = total[:-NUM_LOSSES].view(form.shape).double() / form.steps
    found.sums.append(PartialSum(tuple(workers), answer))
    mean = (total[-NUM_LOSSES:].double() / LOSS_STEPS / len(workers)).float()
    found.losses.update(dict.fromkeys(workers, mean))


def _makes_sense(total: Tensor, form: AnswerForm, num_workers: int) -> bool:
    """Whether each worker's part can have been below the form's limit."""
    answer = total[:-NUM_LOSSES].double() / form.steps
    return bool(answer.abs().max() <= form.most * num_workers)
