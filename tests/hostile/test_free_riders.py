"""A host whose workers answer without training."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mdgan.messages import Message
from tests.hostile.bench import ANSWER, HONEST, RANK, Hostile, hostile_run
from tests.processes import generator_bytes, read_events, read_metrics, run_here

LONGER = ("--iterations", "300", "--batch-size", "10", "--swap-interval", "3")


def noise_instead(message: Message) -> Message:
    """Noise as long as the honest feedback."""
    random = torch.Generator().manual_seed(message.iteration)
    lies = {
        name: torch.randn(truth.shape, generator=random) * truth.std()
        for name, truth in message.tensors.items()
        if name.startswith("answers.")
    }
    return replace(message, tensors={**message.tensors, **lies})


@pytest.mark.slow
def test_a_free_rider_is_shut_out_and_no_honest_worker(tmp_path: Path) -> None:
    liar, flags = Hostile(ANSWER["mdgan"], noise_instead), (*LONGER, "--shut-out-free-riders")
    ran = hostile_run(tmp_path, liar, flags=flags)
    assert not ran.harm
    assert ran.ranks("shut out") == {RANK}
    (event,) = read_events(ran.folder, "shut out")
    assert event["reason"].startswith("a free rider: its feedback does not")
    assert f"rank {RANK} is shut out: a free rider" in ran.result.errors
    scores = [row["riding"] for row in read_metrics(ran.folder) if "riding" in row]
    assert scores[-1][str(RANK)] >= 8
    assert max(score[str(n)] for score in scores for n in HONEST) < 8


def test_scores_change_no_bit_of_the_generator(tmp_path: Path) -> None:
    """Not even where hosts then send each answer instead of sums."""
    command = [
        *("train", "--transport", "memory", "--world-size", "8", "--workers-per-host", "7"),
        *("--threads", "1", "--iterations", "12", "--batch-size", "4", "--swap-interval", "2"),
        *("--kappa", "2", "--sample-interval", "0", "--checkpoint-interval", "0"),
    ]
    for name, flags in {"without": [], "with": ["--shut-out-free-riders"]}.items():
        result = run_here(*command, *flags, "--out", name, cwd=tmp_path)
        assert result.status == 0, result
    assert generator_bytes(tmp_path / "with") == generator_bytes(tmp_path / "without")
