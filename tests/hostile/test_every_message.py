"""Every kind of message that a host sends, with any part of it replaced: the others go on."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, reduce
from math import inf, nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.families.mdgan.messages import DISCRIMINATORS, SWAPPED
from mdgan.messages import Kind, Message
from tests.hostile.bench import ANSWER, RANK, Hostile, hostile_run

SENT: Mapping[str, tuple[str, ...]] = {
    "mdgan": ("FEEDBACK", SWAPPED, DISCRIMINATORS, Kind.SPANS),
    "fl-gan": ("UPDATE", Kind.SPANS),
    "paragan": ("DGRADIENT", "GGRADIENT", Kind.SPANS),
    "clients": ("UPDATE", "TRAINED", Kind.SPANS),
}
"""What hosts of each family send of their own in a run of the bench."""
UNASKED: Mapping[str, dict[str, Any]] = {
    Kind.READY: {"holds": [RANK], "told": {}},
    Kind.STATE: {"purpose": "copy", "taker": 1},
    Kind.CHECKPOINTED: {"files": {str(RANK): {}}, "reason": ""},
    Kind.REAL: {"reason": ""},
    Kind.LEAVE: {},
    Kind.STOP: {"reason": "", "shut_out": True},
    "BATCHES": {"judge": {str(RANK): 0}, "train": {str(RANK): 0}},
    "BEHIND": {},
    "MODELS": {"clients": [RANK]},
    "NONE": {},
}
"""What they send only when there is a reason, or never."""
VALUES: list[Any] = [
    *(None, True, -1, 0, 10**400, 1e308, nan, inf, "", "x", "\x1b[2J", "9" * 5000),
    *([], [[]], [None], [-1], [1], [RANK, RANK], [[1]], [[RANK], []], [99], [10**30], [nan]),
    *({}, {"1": 1}, {"1": "0" * 64}, {"99": []}, {str(RANK): nan}, {"": {}}, {"x": {"x": []}}),
]
"""In place of a field: of a wrong type, negative, huge, NaN, empty, of another's rank."""
TENSORS: list[Callable[[Tensor], Tensor]] = [
    *(lambda t, value=value: torch.full(t.shape, value) for value in (nan, inf, 3e38, -1.0)),
    *(lambda t, kind=kind: t.to(kind) for kind in (torch.int64, torch.float64, torch.bool)),
    lambda t: t[:0] if t.dim() else torch.zeros(0),
    lambda _: torch.tensor(1.0),
    lambda t: torch.stack([t, t]),
    lambda t: torch.cat([t, t]) if t.dim() else t,
    lambda t: t.flatten(),
]
"""In place of a tensor."""


class Lie(NamedTuple):
    """Which part of a message is replaced, and by what.

    Attributes:
        part: counts the fields and tensors of the message, and then from the first again.
        value: counts the values that may stand there, and then from the first again; 0: none.
    """

    part: int
    value: int

    def told(self, message: Message) -> Message:
        """The message with that part replaced or missing."""
        parts = [*sorted(message.fields), *sorted(message.tensors)]
        if not parts:
            return message
        name, fields, tensors = (
            parts[self.part % len(parts)],
            {**message.fields},
            {**message.tensors},
        )
        if name in fields:
            del fields[name]
            if place := self.value % (len(VALUES) + 1):
                fields[name] = VALUES[place - 1]
        else:
            tensor = tensors.pop(name)
            if place := self.value % (len(TENSORS) + 1):
                tensors[name] = TENSORS[place - 1](tensor)
        return replace(message, fields=fields, tensors=tensors)


lies = st.lists(st.builds(Lie, st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=3)


@st.composite
def changing_hosts(draw: st.DrawFn) -> tuple[str, Hostile]:
    """A family, and a host that changes what it sends."""
    family = draw(st.sampled_from(sorted(SENT)))
    kind, told = draw(st.sampled_from(SENT[family])), draw(lies)
    change = partial(reduce, lambda message, lie: lie.told(message), told)
    return family, Hostile(kind, change, draw(st.integers(0, 4)))


@st.composite
def talkative_hosts(draw: st.DrawFn) -> tuple[str, Hostile]:
    """A family, and a host that says more than its answers: earlier, later, again, or unasked."""
    family = draw(st.sampled_from(sorted(SENT)))
    kind = draw(st.sampled_from([*sorted(UNASKED), *SENT[family]]))
    offset, times = draw(st.sampled_from([0, -1, 1, -(10**6), 10**6])), draw(st.integers(1, 3))
    told = draw(lies | st.just([]))

    def say_more(message: Message) -> list[Message]:
        content = UNASKED.get(kind, message.fields)
        tensors = {} if kind in UNASKED else message.tensors
        more = Message(kind, max(0, message.iteration + offset), content, tensors)
        more = reduce(lambda changed, lie: lie.told(changed), told, more)
        return [message, *[more] * times] if not offset else [*[more] * times, message]

    return family, Hostile(ANSWER[family], say_more, draw(st.integers(0, 4)))


def check(found: tuple[str, Hostile]) -> None:
    family, hostile = found
    spoils = hostile.kind == DISCRIMINATORS
    with TemporaryDirectory() as folder:
        assert not hostile_run(
            Path(folder), hostile, family, spoils_answers=spoils, may_be_believed=True
        ).harm


few = settings(max_examples=4)
many = settings(max_examples=120)


@few
@given(changing_hosts())
def test_whatever_a_host_changes_the_others_lose_nothing(found: tuple[str, Hostile]) -> None:
    check(found)


@few
@given(talkative_hosts())
def test_whatever_a_host_says_besides_the_others_lose_nothing(found: tuple[str, Hostile]) -> None:
    check(found)


@pytest.mark.slow
@pytest.mark.timeout(900)
@many
@given(changing_hosts())
def test_many_changes(found: tuple[str, Hostile]) -> None:
    check(found)


@pytest.mark.slow
@pytest.mark.timeout(900)
@many
@given(talkative_hosts())
def test_much_talk(found: tuple[str, Hostile]) -> None:
    check(found)
