"""Searches for samples in all messages of whole runs, and checks which host gets which message."""

import json
import re
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from mdgan.data.dataset_file import load
from mdgan.families.federated.messages import ROUND
from mdgan.launch import processes
from mdgan.messages import Kind, Message
from tests.claims.registry import claim
from tests.hostile.lying_server import ALL, LyingNetwork, LyingServer, lying_run
from tests.processes import run_here

PIXELS = 64
NEAR = 1e-3
"""Two digits differ by far more in some pixel."""


@cache
def samples() -> Tensor:
    """All digits that workers train on, [1438, 64], float64."""
    source = load("digits", None).partitioner(Path())
    return source.images(torch.arange(len(source.labels))).flatten(1).double()


def holds_a_sample(numbers: Tensor) -> bool:
    """Whether one of the samples stands somewhere in a row of numbers, at any place.

    Each stretch of 64 numbers is compared by its product with a random vector first.
    """
    known = samples()
    flat = numbers.detach().flatten().double()
    if len(flat) < PIXELS:
        return False
    probe = torch.rand(PIXELS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    places = torch.nn.functional.conv1d(flat.view(1, 1, -1), probe.view(1, 1, -1)).flatten()
    of_samples, order = (known @ probe).sort()
    nearest = torch.searchsorted(of_samples, places).clamp(1, len(known) - 1)
    for beside in (nearest - 1, nearest):
        near = (of_samples[beside] - places).abs() < PIXELS * NEAR
        for place in near.nonzero().flatten().tolist():
            result = known[order[beside[place]]]
            if (flat[place : place + PIXELS] - result).abs().max() < NEAR:
                return True
    return False


def numbers_of(message: Message) -> list[Tensor]:
    """All that a message tells, the numbers in its JSON, too."""
    said = re.findall(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", json.dumps(dict(message.fields)))
    return [torch.tensor([float(number[:300]) for number in said]), *message.tensors.values()]


class Overhears(LyingServer):
    """Keeps all that hosts send to the server and to each other, and what they get."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Message]] = []
        self.got: list[tuple[int, Message]] = []

    def from_host(self, host: int, message: Message) -> Sequence[Message]:
        self.sent.append((host, message))
        return [message]

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        self.got.append((host, message))
        return [message]

    def parcel(self, giver: int, taker: int, message: Message) -> Message:
        self.sent.append((giver, message))
        return message


SMALL = [
    *("train", "--world-size", "4", "--workers-per-host", "1", "--threads", "1"),
    *("--transport", "memory", "--batch-size", "4", "--sample-interval", "0", "--out", "run"),
]
RUNS: dict[str, tuple[list[str], set[str]]] = {
    "mdgan": (
        [
            *("--iterations", "6", "--swap-interval", "2"),
            *("--checkpoint-interval", "2", "--set", "checkpoint_to_server=true"),
        ],
        {"FEEDBACK", "DISCRIMINATORS", Kind.STATE, Kind.SPANS},
    ),
    "fl-gan": (["--iterations", "4", "--round-iterations", "2"], {"UPDATE"}),
    "paragan": (["--iterations", "3"], {"DGRADIENT", "GGRADIENT"}),
    "moments": (["--iterations", "2", "--batch-size", "64"], set()),
}


@pytest.mark.parametrize("family", RUNS)
@claim("no-sample-sent", "Hosts send no sample.")
@claim("host-sends", "Hosts send no sample.")
def test_no_message_of_a_host_holds_a_sample(tmp_path: Path, family: str) -> None:
    flags, kinds = RUNS[family]
    lies = Overhears()
    with patch.object(processes, "MemoryNetwork", partial(LyingNetwork, lies)):
        ended = run_here(*SMALL, "--algorithm", family, *flags, cwd=tmp_path)
    assert ended.status == 0, ended
    traffic = {str(message.kind) for _, message in lies.sent}
    assert {str(kind) for kind in kinds} <= traffic, traffic
    assert any(message.tensors for _, message in lies.sent)
    for host, message in lies.sent:
        assert not any(map(holds_a_sample, numbers_of(message))), (host, message.kind)


@pytest.mark.parametrize("spoil", [0.0, NEAR / 2])
def test_a_sample_would_be_found(spoil: float) -> None:
    hidden = torch.randn(1000)
    hidden[301 : 301 + PIXELS] = samples()[77].float() + spoil
    assert holds_a_sample(hidden)
    assert holds_a_sample(samples()[5:7].view(2, 1, 8, 8).float())
    told = Message("X", 1, {"x": samples()[9].tolist()}, {})
    assert any(map(holds_a_sample, numbers_of(told)))
    assert not holds_a_sample(torch.randn(5000))


@pytest.mark.parametrize("secure", [False, True])
@claim(
    "mean-seen",
    "Other workers see only the mean, or what a rule makes of them (one worker's models, if no "
    "other took part), and with --secure-aggregation so does the server.",
)
def test_models_of_a_worker_go_to_no_other(tmp_path: Path, secure: bool) -> None:
    lies = Overhears()
    assert lying_run(tmp_path, lies, secure=secure, algorithm="fl-gan").status == 0
    updates = [(host, m) for host, m in lies.sent if m.kind == "UPDATE"]
    assert {host for host, _ in updates} == set(ALL)
    rounds = [message for _, message in lies.got if message.kind == ROUND]
    assert len(rounds) >= len(ALL)
    if secure:
        for _, message in updates:
            assert {name.split(".")[0] for name in message.tensors} <= {
                *("masked", "shares", "codes", "revealed")
            }
        return
    models: dict[int, list[Tensor]] = {}
    for _, message in updates:
        models.setdefault(message.iteration, []).append(message.tensors["answers.values"].flatten())
    for message in rounds:
        if own := models.get(message.iteration - 1):
            told = message.tensors["models"].flatten()
            assert torch.allclose(told, torch.stack(own).mean(0), atol=1e-4)
    for _, message in lies.got:
        for told in message.tensors.values():
            for model in (each for own in models.values() for each in own):
                assert not (told.numel() == model.numel() and told.flatten().equal(model))


@claim("no-times", "Hosts tell neither times nor memory")
@claim("counts-under-dp", "(with --dp-epsilon the number alone, and no sums)")
@claim("no-features", "not told: scores compare with held-out samples")
@claim("no-classes", "how many in all is told")
def test_under_differential_privacy_hosts_tell_no_counts_and_no_sums(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    lies, hellos = Overhears(), list[Any]()

    def join(network: LyingNetwork, host: int, hello: Any) -> Any:
        hellos.append(hello)
        return original(network, host, hello)

    original = LyingNetwork.join
    flags = ["--iterations", "2", "--eval-interval", "2", "--set", "eval_samples=64"]
    private = ["--dp-noise", "1.5", "--dp-delta", "0.0001"]
    with (
        patch.object(processes, "MemoryNetwork", partial(LyingNetwork, lies)),
        patch.object(LyingNetwork, "join", join),
    ):
        ended = run_here(*SMALL, *flags, *private, cwd=tmp_path)
    assert ended.status == 0, ended
    assert len(hellos) == 3
    for hello in hellos:
        assert set(map(tuple, hello["class_counts"].values())) == {()}, hello
        assert all(hello["num_samples"].values())
    assert not [message for _, message in lies.sent if message.kind == Kind.REAL]
    told = [message.fields for _, message in lies.sent if message.kind == Kind.SPANS]
    assert told
    assert not [fields for fields in told if fields["rows"] or fields["memory_bytes"]]
