"""Secure sums, the server's side: it asks hosts for masked answers, and unmasks only whole sums.

See `mask_host.py` for the protocol (Bonawitz et al. 2017, figure 4). A sum consists of the hosts
whose masked answers have arrived, even if a host is lost afterwards. If all have arrived, the
server asks each host for its shares at once. If not, the survivors first confirm their list to each
other. The server drops a sum that fewer than three, or than two thirds, of its hosts survive, and a
sum that makes no sense; `privacy/spoilers.py` finds the host that spoils it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.server.engine import AllWorkersLost, Engine
from mdgan.engine.server.hosts import Hosts
from mdgan.engine.server.peers import Peers
from mdgan.engine.stages import mask
from mdgan.engine.stages.contract import AskedHosts, ServerPath
from mdgan.engine.stages.mask_parties import heed_refusals, hosts_for_sums, least_of, least_parties
from mdgan.engine.stages.screen import limit_of
from mdgan.errors import BadInput
from mdgan.gan.exact_sum import PartialSum
from mdgan.messages import Kind, Message
from mdgan.privacy.masks import (
    PRIME,
    SECRET_BYTES,
    Limbs,
    Mask,
    put_together,
    sign_between,
    threshold,
    without_masks,
)
from mdgan.privacy.secure_settings import LEAST_PARTIES
from mdgan.privacy.shared_noise import NoiseSharing
from mdgan.privacy.spoilers import SpoilerSearch, UsualSums
from mdgan.records.values import in_words
from mdgan.spelling import flag

_MOST_VAIN, _MOST_VAIN_IN_SEARCH = 3, 30  # questions in a row without a sum before a run ends

Masked = Mapping[int, Mapping[int, mask.MaskedSum]]  # the addends, by host and sum


@dataclass(frozen=True, eq=False)
class _Sum:
    """One sum of a question, once hosts have answered it."""

    group: int  # its number
    parties: Sequence[int]  # the hosts that the server has asked
    survivors: Sequence[int]  # the hosts whose masked answers have arrived
    workers: tuple[int, ...]  # of the survivors

    @property
    def num_lost(self) -> int:
        return len(self.parties) - len(self.survivors)


@dataclass(eq=False, kw_only=True)
class ServerMask(ServerPath):
    """Asks hosts for masked addends, and unmasks their sums with the hosts' help."""

    # Whether the question tells hosts to which sum each answer belongs (`groups`).
    divides: bool = False
    # Whether hosts answer only once, so that the server cannot ask again for a spoiled sum.
    is_once: bool = False
    # What a sum must have if answers, or counts, have only a part of the noise.
    sharing: NoiseSharing | None = None
    hides_answers = True

    def __post_init__(self) -> None:
        shared = self.sharing
        self._of_answers = None if shared is None or shared.counts_alone else shared
        # If the noise needs all workers, the server cannot search with smaller sums.
        self._searches = self._of_answers is None or self._of_answers.given is not None
        self._question = mask.SumQuestion(0, {})
        self._num_in_vain = 0  # questions in a row without a sum
        self._search = SpoilerSearch(divides=self.divides)
        self._parts: list[list[int]] = []
        self._left_out = set[int]()
        self._usual: dict[str, UsualSums] = {}

    def begin(self, members: Peers) -> None:
        """Refuses a run with too few hosts, or too little noise, to hide answers in a sum."""
        num_hosts = len(members.hosts())
        if num_hosts < LEAST_PARTIES:
            why = f"the workers are on {num_hosts} host(s), and a sum takes {LEAST_PARTIES}"
            way_out = f"use {flag('workers_per_host', 1)}, or more machines"
            raise BadInput(flag("secure_aggregation"), why, way_out)
        if self._of_answers is not None:
            self._of_answers.check(members.num_sharers(members.hosts()))

    def lacking(self, members: Peers, workers: Collection[int]) -> str:
        host_of = members.host_of()
        hosts = {host_of.get(worker, worker) for worker in workers}
        if len(parties := hosts_for_sums(members, hosts)) < LEAST_PARTIES:
            number, least = len(parties) or len(hosts), least_of(hosts, members)
            return f"all but {number} of the {least} hosts that a sum takes"
        sharing = self._of_answers
        return sharing.lacking(len(workers), members.num_sharers(hosts)) if sharing else ""

    def num_sharers(self, hosts: Collection[int], members: Peers) -> int:
        return 1 if self.sharing is None else self.sharing.among(members.num_sharers(hosts))

    def hosts_to_ask(self, hosts: Hosts, members: Peers) -> Hosts:
        """The hosts that can be in a sum; in a search for spoilers, in one of the search's sums.

        A search leaves out the few hosts that want the largest sums, so that it can use small ones.
        """
        parties = hosts_for_sums(members, hosts)
        if new := hosts.keys() - parties.keys() - self._left_out:
            self._left_out |= new
            members.observer.note(
                f"host(s) {in_words(sorted(new))} take part in no sum for now: they have told no "
                "key, or want more hosts in each sum than there are"
            )
        if self._search.is_on and parties:
            least = max(LEAST_PARTIES, sorted(parties.values())[2 * len(parties) // 3])
            owners = {h: members.identity(h) for h, size in parties.items() if size <= least}
            self._parts = self._search.sums_of(owners, least)
            parties = {host: 0 for part in self._parts for host in part}
        return {host: hosts[host] for host in sorted(parties)}

    def look_closer(self) -> None:
        self._search.begin(LEAST_PARTIES)

    def gives_up_search(self) -> bool:
        was_on = self._search.is_on
        self._search.pause()
        return was_on

    def most_groups(self, wanted: int, hosts: Hosts, members: Peers) -> int:
        """As many sums as have enough hosts each; one in a search."""
        most = 1 if self._search.is_on else len(hosts) // least_parties(members)
        return max(1, min(wanted, most))

    def ask(self, hosts: Hosts, groups: Mapping[int, int], engine: Engine) -> AskedHosts:
        """Chooses the hosts of each sum; leaves out groups with too few hosts.

        Fields are `sums`, a `SumQuestion`, and `groups`: worker → the sum of its answer.
        """
        candidates = hosts_for_sums(engine.peers, hosts)
        if self._search.is_on:
            part_of = {host: part for part, its in enumerate(self._parts) for host in its}
            groups = {n: part_of.get(h, 0) for h, workers in hosts.items() for n in workers}
        parties: dict[int, list[int]] = {}
        for host, workers in sorted(hosts.items()):
            for group in sorted({groups[n] for n in workers} if host in candidates else ()):
                parties.setdefault(group, []).append(host)
        enough = {g: its for g, its in parties.items() if len(its) >= least_of(its, engine.peers)}
        chosen = sorted({host for its in enough.values() for host in its})
        asked = {host: hosts[host] for host in chosen}
        engine.peers.tell_keys(asked)
        self._question = mask.SumQuestion(self._question.number + 1, enough)
        of_sums = {str(n): groups[n] for workers in asked.values() for n in workers}
        return AskedHosts(asked, groups, {**mask.as_fields(self._question), "groups": of_sums})

    def collect(
        self,
        iteration: int,
        asked: AskedHosts,
        engine: Engine,
        weights: Mapping[int, float] | None = None,
        form: AnswerForm | None = None,
    ) -> Answers:
        """Waits for the masked addends, and unmasks their sums.

        Each worker gets the mean losses of its sum. There are no answers if too few hosts are left,
        or if no sum makes sense.

        Raises:
            AllWorkersLost: several questions in a row have led to no sum.
        """
        form = form or self.form
        read = partial(mask.read_masked, form=form, parties=self._question.parties)
        replies = engine.collector.collect(iteration, asked.hosts, read=read).masked
        refusing = {h: reply for h, reply in replies.items() if isinstance(reply, mask.Refusal)}
        heed_refusals(refusing, set(replies), engine)
        masked: Masked = {host: reply for host, reply in replies.items() if host not in refusing}
        sums, shared = [], self.sharing if form.kind == Kind.COUNTS else self._of_answers
        for group, parties in self._question.parties.items():
            survivors = [host for host in parties if group in masked.get(host, {})]
            of_sum = [n for h in survivors for n in asked.hosts[h] if asked.groups[n] == group]
            least = max(least_of(survivors, engine.peers), threshold(len(parties)))
            if shared is not None and shared.given is None:  # fewer hosts add too little noise
                least = len(parties)
            if len(survivors) >= least:
                sums.append(_Sum(group, parties, survivors, workers=tuple(of_sum)))
        revealed = (
            self._unmask(iteration, asked, sums, masked=masked, engine=engine) if sums else {}
        )
        totals: dict[_Sum, Tensor | None] = {}
        for sum_ in sums:
            addends = {host: masked[host][sum_.group].total for host in sum_.survivors}
            shares = {h: rows[sum_.group] for h, rows in revealed.items() if sum_.group in rows}
            if len(shares) >= threshold(len(sum_.parties)):
                totals[sum_] = total_of(sum_.parties, addends, shares)
        for host in self._silent(masked, sums, revealed):
            engine.peers.blame(host, "it leaves out its part of a masked sum")
        answers, spoiled = self._screened(totals, weights or {}, form)
        self._look_for_spoilers(spoiled, answers, engine)
        return answers

    def _unmask(
        self,
        iteration: int,
        asked: AskedHosts,
        sums: Sequence[_Sum],
        masked: Masked,
        engine: Engine,
    ) -> dict[int, dict[int, Limbs]]:
        """The shares that hosts reveal, by host and sum (rounds 3 and 4)."""
        codes = dict[int, dict[int, Tensor]]()

        def ask(
            kind: Kind, wanted: Sequence[_Sum], name: str, shapes: Mapping[int, tuple[int, ...]]
        ) -> dict[int, Any]:
            """Asks the survivors of some sums that are still members."""
            sums_of = {host: [s for s in wanted if host in s.survivors] for host in asked.hosts}
            live = [h for h, its in sums_of.items() if its and engine.peers.member(h) is not None]
            hosts = {host: asked.hosts[host] for host in live}

            def order(host: int) -> Message:
                its, tensors = sums_of[host], dict[str, Tensor]()
                if kind == Kind.UNMASK:
                    # A host reveals nothing of a sum whose survivors it has not confirmed.
                    its = [s for s in its if not s.num_lost or s.group in codes.get(host, {})]
                    for sum_ in its:
                        tensors |= _passed_on(host, sum_, masked, codes=codes)
                lists = {sum_.group: list(sum_.survivors) for sum_ in its}
                fields = mask.as_fields(mask.Survivors(self._question.number, lists))
                return Message(kind, iteration, fields, tensors=tensors)

            engine.ask(iteration, hosts, order)
            read = partial(mask.read_tensors, name=name, shapes=shapes, dtype=torch.uint8)
            return engine.collector.collect(iteration, hosts, read=read, again=True).masked

        if incomplete := [sum_ for sum_ in sums if sum_.num_lost]:
            sizes = {sum_.group: (len(sum_.survivors) - 1, mask.CODE_BYTES) for sum_ in incomplete}
            codes |= ask(Kind.SURVIVORS, incomplete, "codes", shapes=sizes)
            confirmed = [group for by_sum in codes.values() for group in by_sum]
            sums = [  # hosts reveal nothing of a list with too few confirmations
                sum_
                for sum_ in sums
                if not sum_.num_lost or confirmed.count(sum_.group) >= threshold(len(sum_.parties))
            ]
        shapes = {s.group: (len(s.survivors), 1 + s.num_lost, SECRET_BYTES) for s in sums}
        revealed = ask(Kind.UNMASK, sums, "revealed", shapes=shapes)
        return {
            host: {g: shares.numpy().view("<u2").astype(np.uint16) for g, shares in by_sum.items()}
            for host, by_sum in revealed.items()
        }

    def _silent(
        self, masked: Masked, sums: Sequence[_Sum], revealed: Mapping[int, Collection[int]]
    ) -> set[int]:
        """The hosts that have answered, but left out a sum that every honest host answers."""
        asked = [(h, g) for g, parties in self._question.parties.items() for h in parties]
        silent = {h for h, g in asked if g not in masked.get(h, {g})}
        whole = [(h, s.group) for s in sums if not s.num_lost for h in s.survivors]
        return silent | {h for h, g in whole if g not in revealed.get(h, {g})}

    def _screened(
        self, totals: Mapping[_Sum, Tensor | None], weights: Mapping[int, float], form: AnswerForm
    ) -> tuple[Answers, list[_Sum]]:
        """The sums that make sense, and the spoiled ones: absurd, or None since shares misfit."""
        result, answers, norms = Answers(), dict[_Sum, Tensor](), dict[_Sum, float]()
        for sum_, total in totals.items():
            result.hosts.update(sum_.survivors)
            if total is None:
                continue
            answer = total[: -mask.NUM_LOSSES].double() / form.arithmetic.scale
            # A larger sum has an answer above the form's limit, which no host adds up.
            if answer.abs().max() <= form.arithmetic.largest * len(sum_.workers):
                weight = sum(weights.get(worker, 1.0) for worker in sum_.workers)
                answers[sum_] = answer
                norms[sum_] = float(torch.linalg.vector_norm(answer)) / (weight or 1.0)
        absurd = self._usual.setdefault(form.kind, UsualSums()).absurd(norms)
        limit = limit_of(norms.values(), form.most_usual)
        for sum_, answer in answers.items():
            total = totals[sum_]
            if sum_ not in absurd and total is not None:
                part = PartialSum(sum_.workers, answer.view(form.shape))
                if norms[sum_] > limit:
                    part = part._replace(total=part.total * (limit / norms[sum_]))
                result.sums.append(part)
                losses = total[-mask.NUM_LOSSES :].double() / mask.LOSS_STEPS
                mean = (losses / len(sum_.workers)).float()
                result.losses.update(dict.fromkeys(sum_.workers, mean))
        return result, [sum_ for sum_ in totals if sum_ not in answers or sum_ in absurd]

    def _look_for_spoilers(self, spoiled: Sequence[_Sum], answers: Answers, engine: Engine) -> None:
        """Blames a host if sums show that it spoils them; begins or ends the search otherwise."""
        peers, has_found = engine.peers, False
        for sum_ in spoiled:
            what = (
                f"the sum of rank(s) {in_words(sum_.workers)} makes no sense: one of them does not "
                "mask its answers as agreed, or answers absurdly"
            )
            if self.is_once:
                raise AllWorkersLost(f"{what}; it tells once alone, so begin anew without it")
            if self._searches and not self._search.is_on:
                engine.note(f"{what}; sums of others will tell which")
            owners = {peers.identity(host): host for host in sum_.survivors}
            if (guilty := self._search.guilty(owners)) is None:
                continue
            has_found = True
            workers = list(peers.admission.carried(owners[guilty]))
            peers.blame(owners[guilty], "three or more sums made no sense that had it in common")
            if all(map(peers.strikes.is_out, workers)):
                self._search.forget(guilty)
        engine.handle_losses()
        parties = hosts_for_sums(peers, peers.taking_part())
        if self._searches:
            self._search.note(len(parties), LEAST_PARTIES, any_spoiled=bool(spoiled))
        self._num_in_vain = 0 if answers.sums or has_found else self._num_in_vain + 1
        can_search = self._searches and spoiled and len(parties) > LEAST_PARTIES
        if self._num_in_vain >= (_MOST_VAIN_IN_SEARCH if can_search else _MOST_VAIN):
            raise AllWorkersLost(
                f"{self._num_in_vain} times in a row there was no sum: too few of its hosts were "
                "left to take the masks off, or some do not mask their answers as agreed"
            )


def _passed_on(
    host: int, sum_: _Sum, masked: Masked, codes: Mapping[int, Mapping[int, Tensor]]
) -> dict[str, Tensor]:
    """The tensors of other survivors for a host: shares and, if a host is lost, codes."""
    group, survivors = sum_.group, sum_.survivors
    shares = {other: masked[other][group].shares for other in survivors}
    passed = {f"shares.{group}": _rows_for(host, sum_.parties, shares)}
    if sum_.num_lost:
        no_codes = torch.zeros(len(survivors) - 1, mask.CODE_BYTES, dtype=torch.uint8)
        confirmed = {other: codes.get(other, {}).get(group, no_codes) for other in survivors}
        passed[f"codes.{group}"] = _rows_for(host, survivors, confirmed)
    return passed


def _rows_for(host: int, readers: Sequence[int], rows_by: Mapping[int, Tensor]) -> Tensor:
    """The rows for one host; each writer has written a row for every other host of `readers`."""
    place = readers.index(host)
    writers = (other for other in rows_by if other != host)
    return torch.stack([rows_by[n][place - (place > readers.index(n))] for n in writers])


def total_of(
    parties: Sequence[int], totals: Mapping[int, Tensor], shares: Mapping[int, Limbs]
) -> Tensor | None:
    """The sum of the survivors' addends without masks, int64 (round 4).

    It is None if fewer than t hosts have revealed valid shares.

    Args:
        parties: the hosts that the server has asked, in the order of the question.
        totals: by survivor, its masked addend.
        shares: by host, the shares that it has revealed; see `HostMask.reveal`.
    """
    needed, survivors = threshold(len(parties)), [host for host in parties if host in totals]
    holders = [host for host, its in sorted(shares.items()) if (its < PRIME).all()][:needed]
    if len(holders) < needed:
        return None
    points = [1 + parties.index(holder) for holder in holders]
    seeds = put_together(np.stack([shares[holder] for holder in holders]), points)
    lost = [host for host in parties if host not in totals]
    masks = [
        Mask(seed, sign_between(host, other))
        for host, its in zip(survivors, seeds, strict=True)
        for seed, other in zip(its, [host, *lost], strict=True)
    ]
    return without_masks(totals, masks)
