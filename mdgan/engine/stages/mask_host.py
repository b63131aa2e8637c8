"""Secure sums, the host's side: the server learns only sums of hosts' answers, even if it lies.

Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning", figure
4, with rounds merged, so that a sum takes two rounds of messages:

0. Keys, once for each link. A host makes a key and signs it (`host_keys.py`). Every two hosts u, v
   agree on a secret, from which they derive a new s_uv for each sum.
1. and 2. Shares and masked input, in one message. Host u draws b_u, and sends its addend with the
   masks of b_u and of each s_uv. It adds Shamir's shares of b_u and of each s_uv; any t shares
   reconstruct a secret. It encrypts each host's shares for that host.
3. Consistency, only if a host has dropped out. The server names the survivors. Each host confirms
   at most one list of survivors for a sum, to each other host, by a code that only these two hosts
   can make.
4. Unmasking. The server names the survivors and passes on their encrypted shares, and the codes if
   a host is missing. A host to which t - 1 others have confirmed the same list reveals its shares
   of b_u for every survivor u, and of s_ud for survivors u and lost hosts d. It does so once.

Why the server learns the sum of at least t hosts or nothing, whatever it says:

* A host's addend stays hidden while b_u is unknown, and while s_uv with one honest host v is.
* A host reveals once. So it reveals of a host d either its share of b_d or those of s_ud.
* If c of n hosts help the server, it cannot get t shares of both where 2t > n + c. With
  t = ⌊2n/3⌋ + 1 that holds for c < n/3.
* Hosts reveal shares of s_ud only for a list that t hosts have confirmed; by the same count at most
  one list has t confirmations. It names t hosts or more, and the server learns only their sum. The
  list of all hosts needs no codes, since it reveals no s_uv. If t hosts have confirmed another
  list, too few hosts are left to reveal anything for the list of all.
* Shares and codes are bound to the run, the sum, its hosts and their keys, and to the question
  (`Leaving.about`). If the server asks hosts different questions, they cannot read each other's
  shares.
* A host masks no answer twice, nor an equal one once the server may know its sum (`repeats`). The
  shares of one sum show nothing of the masks of another sum.

In the paper hosts share the key from which all their s_uv follow: a key serves one sum, and hosts
exchange shares before masks. Here they share each s_uv, and shares of survivors are enough.
"""

import json
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from hmac import compare_digest
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from mdgan.engine.answers import AnswerForm
from mdgan.engine.host.protocol import ALWAYS, ARRIVED, Per, Turn
from mdgan.engine.host_keys import SEALED, HostKeys, NotMasked, SignedKey
from mdgan.engine.stages import mask
from mdgan.engine.stages.contract import HostPath, Leaving
from mdgan.gan.model_state import State
from mdgan.messages import Kind, Message, by_worker
from mdgan.observe.tracer import Tracer
from mdgan.privacy.masks import (
    LIMBS,
    SECRET_BYTES,
    Limbs,
    Mask,
    as_secret,
    masked,
    shared,
    sign_between,
    threshold,
)
from mdgan.privacy.secure_settings import LEAST_PARTIES
from mdgan.privacy.shared_noise import NoiseSharing
from mdgan.transport.host_end import HostTransport

if TYPE_CHECKING:
    from mdgan.engine.parts import HostHandler

_log = logging.getLogger(__name__)

_NO_SUMS = "its question does not say whose sums it wants"


@dataclass
class _AnsweredSum:
    """A sum that this host has answered, until it reveals its shares."""

    context: bytes
    parties: tuple[int, ...]
    signed: Mapping[int, SignedKey]  # the keys of then; the server may have sent others since
    shares: Limbs  # this host's shares of its own secrets
    confirmed: tuple[int, ...] | None = None


class HostMask(HostPath):
    """Masks the answers of one host, and helps to unmask sums; it refuses by `NotMasked`.

    Args:
        least: the least number of hosts in a sum, 3 or more.
        repeats: whether the host's answer to a repeated iteration would be the same. Then the host
            answers an iteration only until it has helped to unmask its sum, in this run or another:
            if the second sum lacked one host, the difference of both would be that host's answer.
        tells_once: whether its answer would be the same in any iteration: `repeats` for all.
        sharing: what a sum must have if answers, or counts, have only a part of the noise.
    """

    hides_answers = True
    rules: Mapping[str, Turn] = {
        Kind.KEYS: Turn(ALWAYS, 1000, Per.TEN_MINUTES),
        Kind.ASKCOUNTS: Turn(ARRIVED, 1, Per.PROCESS),  # two sums would show this host's counts
        **{kind: Turn(ARRIVED, above={kind: 0}) for kind in (Kind.SURVIVORS, Kind.UNMASK)},
    }

    def __init__(
        self,
        keys: HostKeys,
        form: AnswerForm,
        least: int = LEAST_PARTIES,
        *,
        repeats: bool = False,
        tells_once: bool = False,
        sharing: NoiseSharing | None = None,
    ) -> None:
        super().__init__(form)
        self.keys = keys
        self.least = max(least, LEAST_PARTIES, 0 if sharing is None else sharing.least_hosts)
        self._repeats, self._sharing = repeats or tells_once, sharing
        self._tells_once = tells_once
        self._host = keys.host
        self._newest_revealed = 0
        self._asked_form = form
        self._number, self._iteration = -1, 0
        self._answered: dict[int, _AnsweredSum] = {}
        self._then: Callable[[], None] | None = None

    def begin(self, run: bytes) -> dict[str, Any]:
        self._number, self._answered = -1, {}
        return {**self.keys.make_key(run), "least": self.least}

    def handlers(self, tracer: Tracer) -> Mapping[str, "HostHandler"]:
        def confirm(order: Message, transport: HostTransport) -> None:
            transport.send(self.confirm(order))

        def unmask(order: Message, transport: HostTransport) -> None:
            with tracer.span("send"):
                transport.send(self.reveal(order))
            then, self._then = self._then, None
            if then is not None:  # no host waits for this one now
                then()

        return {
            Kind.KEYS: lambda message, _: self.keys.learn(message.fields["keys"]),
            Kind.SURVIVORS: confirm,
            Kind.UNMASK: unmask,
        }

    @override
    def num_sharers(self, question: Message) -> int:
        if self._sharing is None:
            return 1
        parties = mask.read_sums(question, mask.SumQuestion, _NO_SUMS).parties.values()
        keys = [self.keys.signed(hosts).values() for hosts in parties]
        return self._sharing.among(min(map(self.keys.num_sharers, keys), default=1))

    def pack(self, leaving: Leaving) -> Message:
        """Host → server: the masked addends of this host (rounds 1 and 2).

        Tensors are `masked.<sum>` and `shares.<sum>`, see `MaskedSum`. The field `abstains` says
        whether an answer is unusable (it has NaN or Inf, or is too large), so that the others sum
        without this host. `refuses` names hosts whose keys are invalid: the host masks no answer to
        a question with one of these.

        Args:
            leaving: answers to a question whose field `sums` names the hosts of each sum.
        """
        about = leaving.about()
        question = leaving.question
        self._asked_form = leaving.form or self.form
        groups = sorted(set(leaving.groups.values()))
        asked = self._read(question, groups)
        all_asked = {host for group in groups for host in asked.parties.get(group, ())}
        refuses = sorted(self.keys.refused & all_asked)
        self._number, self._iteration = asked.number, question.iteration
        self._answered = {}
        totals = [mask.added_up(leaving, group, self._asked_form.arithmetic) for group in groups]
        abstains = any(total is None for total in totals)
        tensors = {}
        for group, total in zip(groups, totals, strict=True):
            if total is not None and not abstains and not refuses and group in asked.parties:
                parties = asked.parties[group]
                carried = {h: key.workers for h, key in self.keys.signed(parties).items()}
                leaving.check(self._host, carried, self.least)
                addend = self._mask(
                    asked.number, tuple(parties), group, total=total, about=about[group]
                )
                tensors[f"masked.{group}"] = addend.total
                tensors[f"shares.{group}"] = addend.shares
        fields = {"workers": list(leaving.answers), "abstains": abstains, "refuses": refuses}
        return Message(self._asked_form.kind, question.iteration, fields, tensors=tensors)

    def when_free(self, then: Callable[[], None]) -> None:
        """Keeps `then` until this host has revealed its shares, for which others wait."""
        self._then = then

    def confirm(self, order: Message) -> Message:
        """Host → server: this host's codes for a list of survivors (round 3).

        Tensors are `codes.<sum>`, uint8 [|survivors| - 1, CODE_BYTES], one for each other survivor.
        """
        codes = {}
        for group, survivors in self._read_survivors(order).survivors.items():
            sum_ = self._check(group, survivors)
            sum_.confirmed = tuple(survivors)
            rows = [self._code(h, self._host, sum_) for h in survivors if h != self._host]
            codes[f"codes.{group}"] = torch.tensor([*map(list, rows)], dtype=torch.uint8)
        return Message(self._asked_form.kind, order.iteration, {}, tensors=codes)

    def reveal(self, order: Message) -> Message:
        """Host → server: the shares that take the masks off the sum of the survivors (round 4).

        Args:
            order: a `Survivors` in `sums`; tensors `shares.<sum>`, uint8 [|survivors| - 1, …]: the
                shares that each other survivor has encrypted for this host; and, if a host is
                missing, `codes.<sum>`, uint8 [|survivors| - 1, CODE_BYTES]: their codes.

        Returns:
            Tensors `revealed.<sum>`, uint8 [|survivors|, 1 + number of lost hosts, SECRET_BYTES]:
            of each survivor u, the share of b_u, then that of s_ud for each d; numbers that are no
            share if this host cannot decrypt u's. A sum is left out if too few hosts confirm its
            list of survivors: some may have crashed since.
        """
        asked, tensors = self._read_survivors(order), {}
        for group, survivors in asked.survivors.items():
            sum_ = self._check(group, survivors)
            del self._answered[group]  # the host never reveals a second time
            if len(survivors) < len(sum_.parties):
                needed = threshold(len(sum_.parties))
                codes = mask.read_rows(order, "codes", group, len(survivors) - 1, mask.CODE_BYTES)
                confirm = self._num_confirming(sum_, survivors, codes)
                if confirm < needed:  # hosts may have crashed, or one may lie: training goes on
                    _log.warning(
                        "a sum is not unmasked: the server says that a host has dropped out, and "
                        f"{confirm} of {needed} hosts that it takes confirm that to this one"
                    )
                    continue
            if self._asked_form is self.form:
                self._newest_revealed = max(self._newest_revealed, self._iteration)
            places = [sum_.parties.index(h) for h in sum_.parties if h not in survivors]
            share_bytes = len(sum_.parties) * SECRET_BYTES + mask.SEAL_BYTES
            sealed = mask.read_rows(order, "shares", group, len(survivors) - 1, share_bytes)
            opened = self._opened(sum_, survivors, sealed)
            rows = [opened[h][[sum_.parties.index(h), *places]].astype("<u2") for h in survivors]
            tensors[f"revealed.{group}"] = torch.from_numpy(np.stack(rows).view(np.uint8))
        return Message(self._asked_form.kind, order.iteration, {}, tensors=tensors)

    @override
    def adopted(self, message: Message) -> Mapping[int, State]:
        # One sealed state may be for several workers of this host.
        if SEALED not in message.tensors:
            if message.tensors:
                # If the server chose the networks of all other workers, sums would show one answer.
                raise NotMasked("it gives states that no host has sealed")
            return {}
        fields = message.fields
        copy: dict[str, Tensor] = {}  # fits no model
        try:
            tensors = self.opened(fields["giver"], Kind.STATE, fields["given"], parcel=message)
            (state,) = by_worker(replace(message, tensors=tensors)).values()
            copy = {name: t for name, t in state.items() if name.startswith(fields["prefix"])}
        except ValueError as error:
            _log.warning("a copy for rank(s) %s is refused: %s", fields["workers"], error)
        return dict.fromkeys(fields["workers"], copy)

    def parcel(self, taker: int, message: Message) -> Message | None:
        if not self.keys.knows(taker):
            return None
        return replace(message, tensors={SEALED: self.keys.seal_message(taker, message)})

    def opened(self, giver: int, kind: str, iteration: int, parcel: Message) -> State:
        sealed = parcel.tensors.get(SEALED, torch.empty(0))
        return self.keys.unseal_message(giver, kind, iteration, sealed=sealed).tensors

    def _mask(
        self, number: int, parties: tuple[int, ...], group: int, total: Tensor, about: bytes
    ) -> mask.MaskedSum:
        """The total with all masks, and the other hosts' shares of the masks' seeds."""
        bound = [number, self._iteration, group, parties, self.keys.keys_of(parties), about.hex()]
        context = sha256(json.dumps(bound).encode()).digest()
        b_u, use = os.urandom(SECRET_BYTES), b"mask of " + context
        seeds = [b_u if host == self._host else self.keys.derived(host, use) for host in parties]
        secrets = np.stack([*map(as_secret, seeds)])
        signs = (sign_between(self._host, host) for host in parties)
        masks = [Mask(secret, sign) for secret, sign in zip(secrets, signs, strict=True)]
        rows = shared(secrets, threshold(len(parties)), len(parties)).astype("<u2")
        sealed = [
            np.frombuffer(self.keys.seal(host, context, row.tobytes()), np.uint8)
            for host, row in zip(parties, rows, strict=True)
            if host != self._host
        ]
        kept, signed = rows[parties.index(self._host)], self.keys.signed(parties)
        self._answered[group] = _AnsweredSum(context, parties, signed, shares=kept)
        return mask.MaskedSum(masked(total, masks), torch.from_numpy(np.stack(sealed)))

    def _read(self, question: Message, groups: Collection[int]) -> mask.SumQuestion:
        """Reads the question's sums; refuses a question whose answer would show more than sums."""
        asked = mask.read_sums(question, mask.SumQuestion, _NO_SUMS)
        if asked.number <= self._number:
            raise NotMasked(f"it asks question {asked.number} a second time")
        is_usual = self._asked_form is self.form
        newest = inf if self._tells_once and self._newest_revealed else self._newest_revealed
        if self._repeats and is_usual and question.iteration <= newest:
            raise NotMasked(
                f"it asks for iteration {question.iteration} again, of which it may have a sum"
            )
        for group in asked.parties.keys() & set(groups):
            parties = asked.parties[group]
            if len(parties) < self.least:
                raise NotMasked(
                    f"it asks for a sum of {len(parties)} hosts' answers, and this host takes part "
                    f"in those of {self.least} or more"
                )
            if self._host not in parties:
                raise NotMasked("it asks for this host's part of a sum of others")
            if self.keys.refused.isdisjoint(parties):
                self.keys.keys_of(parties)
                self._check_noise(parties, self.keys.signed(parties))
        return asked

    def _check_noise(self, hosts: Collection[int], asked: Mapping[int, SignedKey]) -> None:
        """Checks that the noise of these hosts, of those `asked`, is enough for their sum."""
        sharing, of_counts = self._sharing, self._asked_form.kind == Kind.COUNTS
        if sharing is None or (sharing.counts_alone and not of_counts):
            return
        keys = [asked[host] for host in hosts]
        ranks = {rank for key in keys for rank in key.workers}
        number, num_asked = map(self.keys.num_sharers, (keys, asked.values()))
        if lacks := sharing.lacking(len(ranks), number, num_asked):
            raise NotMasked(f"it wants a sum without {lacks}")

    def _read_survivors(self, order: Message) -> mask.Survivors:
        asked = mask.read_sums(order, mask.Survivors, "it does not say whose answers have come")
        if asked.number != self._number:
            raise NotMasked(f"it wants to unmask question {asked.number}, and not the last one")
        return asked

    def _check(self, group: int, survivors: Sequence[int]) -> _AnsweredSum:
        """The sum of a group, if this host may help to unmask it for these survivors."""
        sum_ = self._answered.get(group)
        if sum_ is None:
            raise NotMasked("it wants to unmask a sum that this host has no part in, or a 2nd time")
        if list(survivors) != [host for host in sum_.parties if host in survivors]:
            raise NotMasked("it names survivors that were not asked, or one twice")
        if self._host not in survivors:
            raise NotMasked("it asks this host to unmask a sum without it")
        if len(survivors) < (least := max(self.least, threshold(len(sum_.parties)))):
            raise NotMasked(
                f"it wants to unmask a sum of {len(survivors)} of {len(sum_.parties)} hosts, and "
                f"this host helps with {least} or more"
            )
        self._check_noise(survivors, sum_.signed)
        if sum_.confirmed not in (None, tuple(survivors)):
            raise NotMasked("it names two lists of survivors of one sum")
        return sum_

    def _num_confirming(
        self, sum_: _AnsweredSum, survivors: Sequence[int], codes: Tensor | None
    ) -> int:
        """How many survivors, with this host, have confirmed this list."""
        if sum_.confirmed is None or codes is None:
            return 0
        others = [host for host in survivors if host != self._host]
        expected = [self._code(self._host, other, sum_) for other in others]
        return 1 + sum(map(compare_digest, map(bytes, codes.tolist()), expected))

    def _code(self, reader: int, writer: int, sum_: _AnsweredSum) -> bytes:
        """The code by which the writer confirms the list `sum_.confirmed`, and no other list."""
        other = writer if reader == self._host else reader
        use = b"survivors %d " % writer + sum_.context + json.dumps(sum_.confirmed).encode()
        return self.keys.derived(other, use)

    def _opened(
        self, sum_: _AnsweredSum, survivors: Sequence[int], sealed: Tensor | None
    ) -> dict[int, Limbs]:
        """By survivor, this host's shares of the survivor's secrets, [n, LIMBS]."""
        if sealed is None:
            raise NotMasked("it passes on no shares of the survivors, or not all")
        others = [host for host in survivors if host != self._host]
        opened = {self._host: sum_.shares}
        for host, row in zip(others, sealed, strict=True):
            try:
                shares = self.keys.unseal(host, sum_.context, row.numpy().tobytes())
            except ValueError as error:  # that host has lied, or the server asked it otherwise
                _log.warning("shares for a sum are refused: %s", error)
                shares = bytes([255]) * len(sum_.parties) * SECRET_BYTES  # see `reveal`
            opened[host] = np.frombuffer(shares, "<u2").reshape(-1, LIMBS)
        return opened
