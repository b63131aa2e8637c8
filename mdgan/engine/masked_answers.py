"""Answers of which the server learns the sums alone: what hosts send, and how they mask it.

A question says which hosts take part in which sum, and their public keys. Every host adds up what
its own workers answer, in whole steps, and sends that with masks on it (`pairwise_masks.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Annotated, Any

import msgspec
import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.engine.pairwise_masks import PairwiseMasks, SumNumber
from mdgan.engine.secure_settings import LEAST_PARTIES
from mdgan.messages import Message

LOSS_STEPS = 2.0**20
"""Losses are added up in steps of 2⁻²⁰: they are only shown."""
NUM_LOSSES = 2
_MOST_LOSS = 2.0**30

AddUp = Callable[[Mapping[int, Tensor]], Tensor]
"""From some workers' answers to their sum in steps of the form, int64."""


class NotMasked(RuntimeError):
    """The server asks for a sum that would tell it what one host has answered."""


_Small = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]


class SumQuestion(msgspec.Struct, frozen=True):
    """Which hosts take part in the sums of one iteration.

    Attributes:
        number: of the question; each has a larger one than those before.
        parties: by sum, the hosts.
        keys: their public keys.
    """

    number: Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
    parties: dict[_Small, list[int]]
    keys: dict[int, str]

    def fields(self) -> dict[str, Any]:
        """As JSON values, for a question."""
        given: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return given


class MaskedAnswers:
    """Masks what one host answers.

    Args:
        host: its number.
        form: how answers travel.
    """

    def __init__(self, host: int, form: AnswerForm) -> None:
        self._host = host
        self._form = form
        self._masks = PairwiseMasks()
        self._answered = -1
        self._workers: list[int] = []
        self._sums: dict[int, Tensor] | None = None

    def begin(self) -> str:
        """The host joins a server, with a new key; returns the public half."""
        self._masks, self._answered = PairwiseMasks(), -1
        return self._masks.public_key

    def pack(
        self,
        question: Message,
        answers: Mapping[int, Tensor],
        losses: Mapping[int, Tensor],
        groups: Mapping[int, int],
        add_up: AddUp,
    ) -> Message:
        """Host → server: the sums of what the host's workers answer, masked.

        Args:
            question: says in `sums` which hosts take part in which sum.
            answers: by worker, float32 of the form's shape.
            losses: J_disc and J_gen by worker, float32 [2].
            groups: by worker, the sum that its answer belongs to.
            add_up: adds answers up.

        Returns:
            fields `workers`, and `abstains`: whether an answer cannot be added up (it
            has NaN or Inf, or is too large), so that the others must do without this host. Tensors
            `masked.<sum>`, int64 [values of an answer, and J_disc and J_gen].

        Raises:
            NotMasked: see there.
        """
        self._workers, self._sums = list(answers), {}
        for group in sorted(set(groups.values())):
            own = [worker for worker, its in groups.items() if its == group]
            total = self._added_up(
                {worker: answers[worker] for worker in own}, [losses[w] for w in own], add_up
            )
            if total is None:
                self._sums = None
                break
            self._sums[group] = total
        return self.again(question)

    def again(self, question: Message) -> Message:
        """Host → server: the same sums for the hosts that are left, with new masks; see `pack`."""
        asked = self._read(question)
        self._answered = asked.number
        tensors = {}
        for group, total in (self._sums or {}).items():
            if group in asked.parties:
                number = SumNumber(asked.number, group)
                others = [asked.keys[h] for h in asked.parties[group] if h != self._host]
                tensors[f"masked.{group}"] = self._masked(total, number, others)
        fields = {"workers": self._workers, "abstains": self._sums is None}
        return Message(self._form.kind, question.iteration, fields, tensors)

    def _added_up(
        self, answers: Mapping[int, Tensor], losses: Sequence[Tensor], add_up: AddUp
    ) -> Tensor | None:
        """One sum's share of this host in steps; None if it cannot be added up."""
        told = torch.stack(list(losses)).double().sum(0)
        usable = all(float(a.abs().max()) < self._form.most for a in answers.values())
        if not usable or not float(told.abs().max()) < _MOST_LOSS:  # NaN is not below anything
            return None
        return torch.cat(
            [add_up(answers).cpu().reshape(-1), (told * LOSS_STEPS).round().long().cpu()]
        )

    def _masked(self, total: Tensor, number: SumNumber, others: Sequence[str]) -> Tensor:
        try:
            return self._masks.masked(total, number, others)
        except ValueError as error:
            raise NotMasked(f"it gives a key that is none ({error})") from error

    def _read(self, question: Message) -> SumQuestion:
        """What is asked for, if answering it tells the server nothing but sums."""
        try:
            asked = msgspec.convert(question.fields.get("sums"), SumQuestion, str_keys=True)
        except msgspec.ValidationError as error:
            raise NotMasked(f"its question does not say whose sums it wants ({error})") from error
        if asked.number <= self._answered:
            raise NotMasked(f"it asks question {asked.number} a second time")
        for group in (self._sums or {}).keys() & asked.parties.keys():
            parties = asked.parties[group]
            keys = {asked.keys.get(host, "") for host in parties} - {""}
            if len(parties) < LEAST_PARTIES:
                raise NotMasked(f"it asks for a sum of {len(parties)} hosts' answers")
            if len(set(parties)) < len(parties) or len(keys) < len(parties):
                raise NotMasked("it names a host twice, or gives no key or the same key of two")
            if asked.keys.get(self._host) != self._masks.public_key or self._host not in parties:
                raise NotMasked("it has not this host's key")
        return asked


def masks_for(host: int, form: AnswerForm) -> MaskedAnswers | None:
    """What masks the answers of a host; None if the server may see them."""
    return MaskedAnswers(host, form) if form.steps else None


def read_masked(message: Message, form: AnswerForm) -> dict[int, Tensor]:
    """Reads what `MaskedAnswers.pack` wrote; a hostile host may have sent anything else.

    Returns:
        By sum, int64 [values of an answer, and J_disc and J_gen].

    Raises:
        ValueError: it is malformed, or the host abstains.
    """
    if message.fields.get("abstains") is not False:
        raise ValueError("NaN or Inf, or a value too large to be added up")
    length, found = prod(form.shape) + NUM_LOSSES, {}
    for name, tensor in message.tensors.items():
        kind, _, group = name.partition(".")
        if kind != "masked" or not group.isdecimal() or len(group) > 9:
            raise ValueError("tensors that are no masked sums")
        if tensor.dtype != torch.int64 or tensor.shape != (length,):
            raise ValueError(f"{tensor.dtype} {list(tensor.shape)}, not {torch.int64} [{length}]")
        found[int(group)] = tensor
    return found
