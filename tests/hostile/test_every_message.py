"""Every kind of message that a host sends, with any part of it replaced: the others go on."""

from collections.abc import Mapping
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.families.mdgan.messages import DISCRIMINATORS, SWAPPED
from mdgan.messages import Kind, Message
from tests.claims.registry import claim
from tests.hostile.bench import ANSWER, RANK, Hostile, hostile_run
from tests.hostile.lies import Lie

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
    Kind.STOP: {"reason": "", "shut_out": True, "said": ""},
    "BATCHES": {"judge": {str(RANK): 0}, "train": {str(RANK): 0}},
    "BEHIND": {},
    "MODELS": {"clients": [RANK]},
    "NONE": {},
}
"""What they send only when there is a reason, or never."""
lies = st.lists(st.builds(Lie, st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=3)


@st.composite
def changing_hosts(draw: st.DrawFn) -> tuple[str, Hostile]:
    """A family, and a host that changes what it sends."""
    family = draw(st.sampled_from(sorted(SENT)))
    kind, told = draw(st.sampled_from(SENT[family])), draw(lies)
    change = partial(reduce, lambda message, lie: lie.applied_to(message), told)
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
        more = reduce(lambda changed, lie: lie.applied_to(changed), told, more)
        return [message, *[more] * times] if not offset else [*[more] * times, message]

    return family, Hostile(ANSWER[family], say_more, draw(st.integers(0, 4)))


def check(result: tuple[str, Hostile]) -> None:
    family, hostile = result
    # What is believed of these becomes a model of honest hosts, whose answers may be refused then.
    spoils = hostile.kind in (DISCRIMINATORS, "UPDATE")
    with TemporaryDirectory() as folder:
        assert not hostile_run(
            Path(folder), hostile, family, spoils_answers=spoils, may_be_believed=True
        ).harm


few = settings(max_examples=4)
many = settings(max_examples=120)


@few
@given(changing_hosts())
@claim(
    "callers",
    "A message that breaks a rule ends its sender's link, or is ignored, and ends no "
    "other host's link",
)
def test_whatever_a_host_changes_the_others_lose_nothing(result: tuple[str, Hostile]) -> None:
    check(result)


@few
@given(talkative_hosts())
def test_whatever_a_host_says_besides_the_others_lose_nothing(result: tuple[str, Hostile]) -> None:
    check(result)


@pytest.mark.slow
@pytest.mark.timeout(900)
@many
@given(changing_hosts())
def test_many_changes(result: tuple[str, Hostile]) -> None:
    check(result)


@pytest.mark.slow
@pytest.mark.timeout(900)
@many
@given(talkative_hosts())
def test_much_talk(result: tuple[str, Hostile]) -> None:
    check(result)
