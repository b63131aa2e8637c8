"""A server, or a worker, that steals samples through discriminators that are traps.

The traps are those of `benchmarks/stolen_samples.py`. Each promise stands beside a theft that works
without the promise.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.stolen_samples import Loot, bench, rob_by_swaps
from benchmarks.traps import MaskThief
from mdgan.data import dataset_file
from mdgan.data.partition import partition
from mdgan.families.mdgan.messages import BATCHES, SWAP
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.labels import Samples
from mdgan.messages import Message
from tests.claims.registry import claim
from tests.hostile.lying_server import ALL, LyingServer, lying_run

VICTIM, BATCH_SIZE, SWAP_AT, ITERATIONS = 4, 10, 2, 6
FLAGS = (
    *("--batch-size", str(BATCH_SIZE)),
    *("--swap-interval", str(SWAP_AT), "--iterations", str(ITERATIONS)),
)
FILE = dataset_file.load("digits", None)


class Robs(LyingServer):
    """Gives the victim a trap in the first swap, and guesses from what it answers to zeros."""

    def __init__(self, *, tries: int = 8) -> None:
        values = {"world_size": len(ALL) + 1, "batch_size": BATCH_SIZE}
        settings = MDGANSettings.read(values, FILE.defaults)
        self._thief = MaskThief(settings, FILE.models, VICTIM, 16, own_moments=False, tries=tries)
        self.num_traps = 0
        source, strange = FILE.open(Path()), FILE.open_held_out(Path())
        own = partition(source.labels, settings.data.partition, len(ALL), 0)[VICTIM - 1]
        self.loot = Loot(source.images(own), strange.images(torch.arange(len(strange))))

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        if message.kind == SWAP:  # one that gives nothing tries nothing
            moves = [row for row in message.fields["moves"] if row[0] != VICTIM]
            return [replace(message, fields={**message.fields, "moves": moves})]
        if message.kind != BATCHES or host != VICTIM:
            return [message]
        return [replace(message, tensors={n: t * 0 for n, t in message.tensors.items()})]

    def from_host(self, host: int, message: Message) -> Sequence[Message]:
        answer = message.tensors.get("answers.values")
        if answer is not None and host == VICTIM and message.iteration <= 2 * SWAP_AT:
            self.loot.add(self._thief.hear(answer.view(BATCH_SIZE, *FILE.models.shape)))
        return [message]

    def parcel(self, giver: int, taker: int, message: Message) -> Message:
        if taker != VICTIM or self.num_traps:
            return message
        self.num_traps += 1
        trap = {f"{taker}/{name}": tensor for name, tensor in self._thief.trap().items()}
        return replace(message, tensors=trap)


def test_a_trap_in_a_swap_takes_each_sample_of_each_batch_that_follows(tmp_path: Path) -> None:
    """Without noise and secure sums: with nothing that a server may not ask."""
    robber = Robs()
    result = lying_run(tmp_path, robber, *FLAGS, secure=False)
    assert result.status == 0, result
    assert robber.loot.stolen(0) == SWAP_AT * BATCH_SIZE


@claim(
    "traps",
    "With --dp-epsilon noise bounds what a worker tells: guesses are no nearer to its "
    "samples than to others.",
)
@claim(
    "any-discriminator",
    "So ε holds whatever the discriminator was computed from and whoever made it.",
)
def test_with_noise_a_trap_takes_no_sample(tmp_path: Path) -> None:
    """Guesses are no nearer to the victim's samples than to those that no worker has."""
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    robber = Robs(tries=1)
    private = ("--dp-epsilon", "8", "--dp-delta", "1e-4", "--dp-ledger", str(tmp_path / "ledger"))
    result = lying_run(tmp_path, robber, *FLAGS, *private, secure=False)
    assert result.status == 0, result
    assert robber.num_traps == 1
    assert robber.loot.stolen(0.5) == 0
    assert robber.loot.ratio > 0.8


class HandsOver(Robs):
    """Asks all hosts the same."""

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        del host
        return [message]


@claim(
    "traps", "With --secure-aggregation the server opens sums alone and cannot read discriminators"
)
@claim("traps", "cannot read discriminators")
def test_with_secure_sums_a_server_hands_over_no_trap(tmp_path: Path) -> None:
    robber = HandsOver()
    result = lying_run(tmp_path, robber, *FLAGS)
    assert robber.num_traps == 1
    assert f"a discriminator in the swap of iteration {SWAP_AT} is refused" in result.errors


def test_a_worker_takes_samples_by_a_trap_that_it_gets_back(tmp_path: Path) -> None:
    """From weights alone, without an answer: ten samples of each iteration between the swaps."""
    loot = rob_by_swaps(bench("dropout", 0, 40, None, tmp_path), 40)
    assert loot.stolen(0) > 100


class TrainsApart(LyingServer):
    """Trains all hosts but the victim so that they answer 0 to what all of them judge."""

    def __init__(self) -> None:
        self.largest: dict[tuple[int, int], float] = {}

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        if message.kind != BATCHES:
            return [message]
        far = torch.full_like(message.tensors["batches.values"], 100.0)
        both = torch.cat([far, far if host == VICTIM else -far])
        fields = {**message.fields, "train": dict.fromkeys(message.fields["train"], 1)}
        return [replace(message, fields=fields, tensors={"batches.values": both})]

    def from_host(self, host: int, message: Message) -> Sequence[Message]:
        if (answer := message.tensors.get("answers.values")) is not None:
            self.largest[host, message.iteration] = float(answer.abs().max())
        return [message]


@claim("what-is-answered", "Hosts that were asked different things cannot unmask each other.")
def test_no_host_is_trained_apart_from_the_others_of_a_sum(tmp_path: Path) -> None:
    """Their sum would be what one has answered, as answers in the clear show."""
    seen = TrainsApart()
    for name in ("plain", "secure"):
        (tmp_path / name).mkdir()
    lying_run(tmp_path / "plain", seen, *FLAGS, secure=False)
    others = [
        size for (host, number), size in seen.largest.items() if host != VICTIM and number == 1
    ]
    assert seen.largest[VICTIM, 1] > 1000 * sum(others)
    result = lying_run(tmp_path / "secure", TrainsApart(), *FLAGS)
    assert f"host {VICTIM} has not sealed this for host" in result.errors


@pytest.mark.parametrize("epsilon", [None, 8.0])
def test_a_state_that_is_put_back_does_not_put_noise_back(
    tmp_path: Path, epsilon: float | None
) -> None:
    """Without noise the same question has the same answer then, so that a batch can be probed."""
    if epsilon is not None:
        pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    own_file = bench("plain", 0, 20, epsilon, tmp_path)
    state, zeros = own_file.victim.state(), Samples(torch.zeros(BATCH_SIZE, *own_file.models.shape))
    answers = []
    for _ in range(2):
        own_file.victim.load_state(state)
        own_file.victim.learn(zeros)
        answers.append(own_file.victim.feedback(zeros).feedback)
    assert torch.equal(*answers) == (epsilon is None)
