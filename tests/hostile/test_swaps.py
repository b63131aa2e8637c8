"""A host that lies in the parcels that it hands over in a swap."""

from collections.abc import Callable
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mdgan.families.mdgan.messages import DISCRIMINATORS, SWAPPED
from mdgan.messages import Message
from tests.claims.registry import claim
from tests.hostile.bench import RANK, Hostile, hostile_run, with_fields, with_tensors
from tests.marks import mostly_slow
from tests.processes import read_events, run_here

Lie = Callable[[Message], Message]


def tensors_for(ending: str, make: Callable[[Tensor], Tensor]) -> Lie:
    """Some tensors become others."""

    def change(message: Message) -> Message:
        tensors = {
            name: make(tensor) if name.endswith(ending) else tensor
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
    "absurd": everything(3e38),
    "moments without a shape": tensors_for("exp_avg", lambda _: torch.tensor(0.5)),
    "squares after which nothing is learnt": tensors_for("exp_avg_sq", lambda t: t * 0 + 3e38),
    "squares that are too small": tensors_for("exp_avg_sq", lambda t: t / 1000),
    "a leap": tensors_for("exp_avg", lambda t: t * 1e4),
    "large weights": tensors_for("weight", lambda t: t * 3),
    "no weights": tensors_for("weight", lambda t: t * 0),
    "weights that say the opposite": tensors_for("7.weight", lambda t: -t),
}


@pytest.mark.parametrize(
    "lie",
    mostly_slow(
        LIES,
        [
            "NaN",
            "squares after which nothing is learnt",
            "large weights",
            "weights that say the opposite",
        ],
    ),
)
@claim("tried", "What a swap brings is tried before it is taken")
def test_a_discriminator_that_was_spoilt_is_not_taken(tmp_path: Path, lie: str) -> None:
    flags = ["--iterations", "16", "--swap-interval", "6"]
    ran = hostile_run(tmp_path, Hostile(DISCRIMINATORS, LIES[lie]), flags=flags)
    assert not ran.harm
    refused = [set(swap["refused"]) for swap in read_events(ran.folder, "swap")]
    assert all(refused)


def test_a_host_that_others_wait_for_gives_no_more(tmp_path: Path) -> None:
    liar = Hostile(DISCRIMINATORS, stalls=True)
    flags = ["--iterations", "12", "--swap-interval", "1"]
    ran = hostile_run(tmp_path, liar, flags=flags, may_be_believed=True)
    assert not ran.harm
    swaps = [dict(swap["moves"]) for swap in read_events(ran.folder, "swap")]
    waited = [moves[RANK] for moves in swaps if RANK in moves]
    assert len(swaps) == 11
    assert 1 <= len(waited) == len(set(waited)) <= 2, "two hosts have waited for it, once each"


@pytest.mark.slow
def test_one_host_cannot_keep_others_from_giving(tmp_path: Path) -> None:
    liar = Hostile(SWAPPED, lambda m: with_fields(m, slow=[1, 2, 3, RANK, 99]))
    flags = ["--iterations", "16", "--swap-interval", "1"]
    ran = hostile_run(tmp_path, liar, flags=flags, may_be_believed=True)
    assert not ran.harm
    moves = [move for swap in read_events(ran.folder, "swap")[8:] for move in swap["moves"]]
    assert {giver for giver, _ in moves} >= {1, 2, 3}
    assert not [giver for giver, taker in moves if taker == RANK], "it has none from whom to take"


@pytest.mark.slow
def test_a_server_that_goes_on_blames_no_worker_for_what_it_was_given(tmp_path: Path) -> None:
    """Whether they took what a liar gave, or refused it; the liar itself is gone."""
    liar, strict = Hostile(DISCRIMINATORS, everything(3e38)), ["--set", "strikes=1"]
    flags = [*strict, "--checkpoint-interval", "8", "--swap-interval", "6"]
    ran = hostile_run(tmp_path, liar, flags=flags, spoils_answers=True)
    assert not ran.harm
    on = ["--iterations", "12", "--transport", "memory", "--workers-per-host", "1"]
    result = run_here("train", "--resume", "run", *on, cwd=tmp_path)
    assert result.status == 0, result
    assert not ran.ranks("shut out"), "one strike would do"


@pytest.mark.slow
def test_who_spoils_discriminators_is_shut_out_and_nobody_else(tmp_path: Path) -> None:
    lie = LIES["squares after which nothing is learnt"]
    flags = ["--world-size", "9", "--iterations", "60", "--swap-interval", "3"]
    flags += ["--shut-out-free-riders"]
    ran = hostile_run(tmp_path, Hostile(DISCRIMINATORS, lie), flags=flags)
    assert not ran.harm
    (event,) = read_events(ran.folder, "shut out")
    assert event["workers"] == [RANK]
    assert "others refuse the discriminators that it has had" in event["reason"]


@pytest.mark.parametrize("partition", mostly_slow(["sorted", "dirichlet:0.05"], ["sorted"]))
@claim("tried", "by how it judges unless there is noise or classes differ much")
def test_honest_discriminators_of_other_classes_are_taken(tmp_path: Path, partition: str) -> None:
    flags = ["--world-size", "11", "--transport", "memory", "--threads", "1", "--iterations", "51"]
    flags += [
        "--sample-interval",
        "0",
        "--swap-interval",
        "10",
        "--eval-interval",
        "0",
        "--out",
        "run",
    ]
    ended = run_here("train", *flags, "--partition", partition, cwd=tmp_path)
    assert ended.status == 0, ended
    assert [swap["refused"] for swap in read_events(tmp_path / "run", "swap")] == [[]] * 5
