"""Hosts that mask their answers, without a network; a test plays the server between them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mdgan.credentials.identity import Identity
from mdgan.engine.answers import AnswerForm
from mdgan.engine.host_keys import HostKeys
from mdgan.engine.stages.contract import Leaving
from mdgan.engine.stages.mask import (
    CODE_BYTES,
    MaskedSum,
    Survivors,
    as_fields,
    read_masked,
    read_tensors,
)
from mdgan.engine.stages.mask_host import HostMask
from mdgan.engine.stages.mask_server import total_of
from mdgan.messages import Kind, Message
from mdgan.privacy.masks import SECRET_BYTES
from mdgan.privacy.shared_noise import NoiseSharing

FORM = AnswerForm("FEEDBACK", (2, 3))
RUN = b"run"

Codes = Mapping[int, Mapping[int, Tensor]]
"""By host that has confirmed a list, and by host that reads it."""


class Hosts:
    """Hosts 1, 2, 3, … with a worker each, in one sum.

    Args:
        carried: which ranks some of them have instead.
        certificates: which some of them show.
    """

    def __init__(
        self,
        number: int,
        least: int = 3,
        *,
        repeats: bool = False,
        tells_once: bool = False,
        sharing: NoiseSharing | None = None,
        carried: Mapping[int, list[int]] = {},
        certificates: Mapping[int, Identity] = {},
    ) -> None:
        self.masks = {}
        for host in range(1, number + 1):
            keys = HostKeys(carried.get(host, [host]), certificates.get(host))
            self.masks[host] = HostMask(
                keys, FORM, least, repeats=repeats, tells_once=tells_once, sharing=sharing
            )
        self.keys = {host: masks.begin(RUN) for host, masks in self.masks.items()}
        for host, masks in self.masks.items():
            masks.keys.learn([key for other, key in self.keys.items() if other != host])
        self.parties = list(self.masks)
        self.sent: dict[int, MaskedSum] = {}

    def question(self, number: int = 1, **changed: Any) -> Message:
        sums = {"number": number, "parties": {"0": self.parties}}
        iteration = changed.pop("iteration", 5)
        return Message("BATCHES", iteration, {"sums": {**sums, **changed}})

    def answer(
        self, host: int, answer: Tensor, question: Message | None = None, about: bytes = b""
    ) -> Message:
        """One host answers; what it sends is kept."""
        losses = {host: torch.tensor([0.5, float(host)])}
        leaving = Leaving(
            question or self.question(), {host: answer}, losses, {host: 0}, about=lambda: {0: about}
        )
        message = self.masks[host].pack(leaving)
        if message.tensors:
            masked = read_masked(message, FORM, {0: self.parties})
            assert isinstance(masked, dict)
            self.sent[host] = masked[0]
        return message

    def order(
        self,
        kind: Kind,
        host: int,
        survivors: Sequence[int],
        codes: Codes | None = None,
        number: int = 1,
    ) -> Message:
        """What the server asks a host when these have survived."""
        others, nothing = [n for n in survivors if n != host], torch.zeros(CODE_BYTES).byte()
        tensors = {}
        if others:
            rows = [
                self.sent[other].shares[[n for n in self.parties if n != other].index(host)]
                for other in others
            ]
            codes_of_others = [(codes or {}).get(other, {}).get(host, nothing) for other in others]
            tensors = {"shares.0": torch.stack(rows), "codes.0": torch.stack(codes_of_others)}
        fields = as_fields(Survivors(number, {0: list(survivors)}))
        return Message(kind, 5, fields, tensors)

    def confirm(self, host: int, survivors: Sequence[int]) -> dict[int, Tensor]:
        """The codes of a host for the others, if these have survived."""
        message = self.masks[host].confirm(self.order(Kind.SURVIVORS, host, survivors))
        shape = len(survivors) - 1, CODE_BYTES
        rows = read_tensors(message, "codes", {0: shape}, torch.uint8)[0]
        others = [other for other in survivors if other != host]
        return dict(zip(others, rows, strict=True))

    def reveal(
        self, host: int, survivors: Sequence[int], codes: Codes | None = None, number: int = 1
    ) -> Any:
        """What a host reveals; None if nothing."""
        shape = len(survivors), 1 + len(self.parties) - len(survivors), SECRET_BYTES
        order = self.order(Kind.UNMASK, host, survivors, codes, number)
        revealed = read_tensors(self.masks[host].reveal(order), "revealed", {0: shape}, torch.uint8)
        return revealed[0].numpy().view("<u2") if revealed else None

    def total(
        self,
        survivors: Sequence[int],
        confirming: Collection[int] | None = None,
        revealing: Collection[int] | None = None,
    ) -> Tensor | None:
        """What an honest server finds where some survivors are gone later."""
        confirming = survivors if confirming is None else confirming
        revealing = confirming if revealing is None else revealing
        codes = None
        if list(survivors) != self.parties:
            codes = {host: self.confirm(host, survivors) for host in confirming}
        revealed = {host: self.reveal(host, survivors, codes) for host in revealing}
        shares = {host: share for host, share in revealed.items() if share is not None}
        return total_of(self.parties, {host: self.sent[host].total for host in survivors}, shares)
