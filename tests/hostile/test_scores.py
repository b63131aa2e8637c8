"""A host that lies about its real data, with which scores compare."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mdgan.messages import Kind, Message
from tests.hostile.bench import Hostile, hostile_run
from tests.processes import read_events

PIXELS = """
from torch import nn


class Pixels(nn.Module):
    def forward(self, images):
        return images.flatten(1)[:, ::9]
"""
Lie = Callable[[Message], Message]
LIES: dict[str, Lie] = {
    "will not": lambda _: Message(Kind.REAL, 0, {"reason": "I will not"}),
    "others": lambda message: replace(
        message, tensors={name: t[:5] if t.dim() else t for name, t in message.tensors.items()}
    ),
    "fewer than none": lambda message: replace(
        message, tensors={**message.tensors, "first.num_samples": torch.tensor(-(10**9))}
    ),
    "nothing": lambda message: replace(message, tensors={}),
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_scores_do_not_depend_on_what_one_host_tells(tmp_path: Path, lie: str) -> None:
    (tmp_path / "pixels.py").write_text(PIXELS)
    scored = ["--eval-interval", "4", "--extractor", f"{tmp_path / 'pixels.py'}:Pixels"]
    liar = Hostile(Kind.REAL, LIES[lie])
    ran = hostile_run(tmp_path, liar, flags=[*scored, "--set", "eval_samples=200"])
    assert not ran.harm
    assert not read_events(ran.folder, "unscored"), ran.result
    assert [row["iteration"] for row in read_events(ran.folder, "scores")] == [4, 8]
