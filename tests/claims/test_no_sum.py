"""A run with secure sums ends when the server cannot tell which host spoils them."""

from pathlib import Path
from unittest.mock import patch

import torch

from mdgan.messages import Message
from mdgan.transport.memory import MemoryHostTransport
from tests.claims.registry import claim
from tests.processes import ended_well, run_here

FLAGS = [
    *("train", "--world-size", "4", "--workers-per-host", "1", "--threads", "1"),
    *("--transport", "memory", "--batch-size", "4", "--sample-interval", "0", "--eval-interval"),
    *("0", "--iterations", "8", "--checkpoint-interval", "2", "--secure-aggregation"),
]


@claim(
    "too-few-left",
    "after three times in a row (30, while a spoiler is searched for) the run ends. Go on "
    "with --resume.",
)
@claim("ends-in-order", "The run ends after three iterations without a sum.")
def test_a_run_that_ends_without_sums_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    """Host 2 spoils sums from iteration 6 on, and is sound again when the run goes on."""
    original = MemoryHostTransport.send

    def send(link: MemoryHostTransport, message: Message) -> int:
        if link.host == 2 and message.iteration > 5 and "masked.0" in message.tensors:
            noise = torch.randint_like(message.tensors["masked.0"], 256) * 2**52
            tensors = {**message.tensors, "masked.0": noise}
            message = Message(message.kind, message.iteration, message.fields, tensors)
        return original(link, message)

    with patch.object(MemoryHostTransport, "send", send):
        ended = run_here(*FLAGS, "--out", "run", cwd=tmp_path)
    assert ended.status not in (0, 2)
    assert "3 times in a row there was no sum" in ended.errors
    whole_ones = (tmp_path / "run" / "checkpoints").glob("*/manifest.json")
    last = max(int(manifest.parent.name) for manifest in whole_ones)
    assert last in (0, 2, 4), "the last one that all hosts had written"
    going_on = run_here("train", "--resume", "run", "--transport", "memory", cwd=tmp_path)
    assert f"iteration {last}" in going_on.errors, "its last checkpoint"
    result = ended_well(going_on, tmp_path / "run", 8)
    whole = run_here(*FLAGS, "--out", "whole", cwd=tmp_path)
    assert ended_well(whole, tmp_path / "whole", 8) == result
