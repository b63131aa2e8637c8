"""A small dataset file that tests load whole, changed or broken."""

from pathlib import Path

import pytest

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.errors import BadInput
from mdgan.models.check import check_models

RECIPE = '''
"""Black and white bars: upright ones are class 0, level ones class 1."""

import torch
from torch import nn

from mdgan.data import InMemoryPartitioner

SHAPE = (1, 4, 4)
Z_DIM = 5


class Partitioner(InMemoryPartitioner):
    def read(self, data_dir):
        upright = torch.tensor([0, 255, 0, 255], dtype=torch.uint8).repeat(6, 1, 4, 1)
        return torch.cat([upright, upright.mT]), torch.tensor([0] * 6 + [1] * 6)


class Generator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(Z_DIM, 16), nn.Tanh(), nn.Unflatten(1, SHAPE))


class Discriminator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(16, 1))
'''


def load_text(text: str, tmp_path: Path) -> DatasetFile:
    (tmp_path / "bars.py").write_text(text, encoding="utf-8")
    return load("bars", str(tmp_path))


def changed(old: str, new: str) -> str:
    assert old in RECIPE
    return RECIPE.replace(old, new)


def refusal(text: str, tmp_path: Path) -> str:
    """What the user reads of a file that cannot be used; one line that names the file."""
    with pytest.raises(BadInput) as caught:
        check_models(load_text(text, tmp_path).models)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert str(tmp_path / "bars.py") in message
    return message
