"""A host that lies in what it gives to others in a swap."""

from collections.abc import Callable
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest
import torch

from mdgan.families.mdgan.messages import DISCRIMINATORS, SWAPPED
from mdgan.messages import Message
from tests.hostile.bench import Hostile, hostile_run, with_fields, with_tensors

Lie = Callable[[Message], Message]


def without(*endings: str) -> Lie:
    """Leaves tensors out, by the end of their names."""

    def change(message: Message) -> Message:
        left = {n: tensor for n, tensor in message.tensors.items() if not n.endswith(endings)}
        return replace(message, tensors=left)

    return change


def scalars_for(ending: str) -> Lie:
    """Some tensors become single numbers."""

    def change(message: Message) -> Message:
        tensors = {
            name: torch.tensor(0.5) if name.endswith(ending) else tensor
            for name, tensor in message.tensors.items()
        }
        return replace(message, tensors=tensors)

    return change


def everything(value: float) -> Lie:
    """All tensors of floats hold one value."""
    return lambda message: with_tensors(
        message, lambda t: torch.full_like(t, value) if t.is_floating_point() else t
    )


LIES: dict[str, Lie] = {
    "NaN": everything(nan),
    "moments without a shape": scalars_for("exp_avg"),
}
SLOW: dict[str, Lie] = {
    "half of the moments": without("exp_avg_sq"),
    "one moment": without("exp_avg_sq", ".step"),
    "no step": without(".step"),
    "no moments of some parameters": without("1.weight.exp_avg", "1.weight.exp_avg_sq"),
    "steps of a shape": lambda message: replace(
        message,
        tensors={n: t.expand(3) if n.endswith(".step") else t for n, t in message.tensors.items()},
    ),
    "nothing": lambda message: replace(message, tensors={}),
}


@pytest.mark.parametrize(
    "lie", [*LIES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_discriminator_that_is_none_is_not_taken(tmp_path: Path, lie: str) -> None:
    assert not hostile_run(tmp_path, Hostile(DISCRIMINATORS, (LIES | SLOW)[lie])).harm


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["median", "trimmed-mean:1", "f2u"])
def test_other_rules_take_no_broken_discriminator_either(tmp_path: Path, aggregation: str) -> None:
    liar = Hostile(DISCRIMINATORS, everything(nan))
    assert not hostile_run(
        tmp_path, liar, flags=["--aggregation", aggregation, "--kappa", "1"]
    ).harm


def negative_squares(message: Message) -> Message:
    """Adam takes the root of these."""
    squares = {n: -t.abs() - 1 for n, t in message.tensors.items() if n.endswith("_sq")}
    return replace(message, tensors={**message.tensors, **squares})


@pytest.mark.parametrize(
    "lie",
    [
        everything(3e38),
        *(
            pytest.param(lie, marks=pytest.mark.slow)
            for lie in (everything(1e30), negative_squares)
        ),
    ],
)
def test_who_takes_an_absurd_discriminator_is_not_blamed(tmp_path: Path, lie: Lie) -> None:
    ran = hostile_run(tmp_path, Hostile(DISCRIMINATORS, lie), spoils_answers=True)
    assert not ran.harm
    refused = {rank: count.get("refused", 0) for rank, count in ran.attendance().items()}
    assert 0 < sum(refused.values()) <= 7, refused  # until the next swap, of one or two workers


@pytest.mark.slow
def test_reports_of_others_swaps(tmp_path: Path) -> None:
    digests = {str(rank): "0" * 64 for rank in (1, 2, 3, 4, 99)}
    assert not hostile_run(
        tmp_path, Hostile(SWAPPED, lambda m: with_fields(m, given=digests, taken=digests))
    ).harm
