"""What a dataset file reads: samples and labels that keep its promise, or one line."""

from pathlib import Path

import pytest

from mdgan.data.dataset_file import load
from mdgan.errors import BadInput
from tests.unit.data.bars import changed, load_text


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("raise OSError('two\\n  lines')", "two lines"),
        ("raise KeyError", "KeyError"),
        ("return torch.zeros(0, 1, 4, 4), torch.zeros(0).long()", "no sample"),
    ],
)
def test_data_that_cannot_be_read(statement: str, reason: str, tmp_path: Path) -> None:
    signature = "def read(self, data_dir):\n"
    bars = load_text(changed(signature, f"{signature}        {statement}\n"), tmp_path)
    with pytest.raises(BadInput) as caught:
        bars.open(tmp_path / "data")
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert "--dataset bars:" in message
    assert str(tmp_path / "data") in message
    assert reason in message


def test_bad_input_of_a_partitioner_passes_unchanged(tmp_path: Path) -> None:
    signature = "def read(self, data_dir):\n"
    statement = "from mdgan.errors import BadInput; raise BadInput('my own words')"
    bars = load_text(changed(signature, f"{signature}        {statement}\n"), tmp_path)
    with pytest.raises(BadInput, match=r"^my own words$"):
        bars.open(tmp_path)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("torch.zeros(9, 1, 4, 4)", "read gives a tensor [9, 1, 4, 4]; it must return images"),
        ("(torch.zeros(2, 1), None)", "read gives a tensor [2, 1], NoneType; it must"),
        ("None", "read gives NoneType; it must return images [n, C, H, W] and labels"),
    ],
)
def test_a_read_without_labels(given: str, found: str, tmp_path: Path) -> None:
    signature = "def read(self, data_dir):\n"
    bars = load_text(changed(signature, f"{signature}        return {given}\n"), tmp_path)
    with pytest.raises(BadInput) as caught:
        bars.open(tmp_path)
    assert found in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("dtype=torch.int64", "dtype=torch.int32"), "labels must be int64"),
        (("torch.zeros(64, 1, 4, 4)", "torch.zeros(64, 4, 4)"), "a sample, must give"),
        (("torch.zeros(64, 1, 4, 4)", "torch.zeros(64, 1, 4, 4).double()"), "torch.float64"),
        (
            ("torch.zeros(64, 1, 4, 4)", "torch.full((64, 1, 4, 4), 255.0)"),
            "from 255 to 255, outside [−1, 1]; scale them, for example x / 127.5 - 1",
        ),
        (("torch.zeros(64, 1, 4, 4)", "torch.full((64, 1, 4, 4), -9.5)"), "1]; scale them"),
        (("torch.zeros(64, 1, 4, 4)", "torch.full((64, 1, 4, 4), torch.nan)"), "not finite"),
        (("torch.zeros(64, 1, 4, 4)", "torch.zeros(63, 1, 4, 4)"), "63 images but 64 labels"),
    ],
)
def test_partitioner_that_breaks_its_promise(
    change: tuple[str, str], says: str, tmp_path: Path
) -> None:
    text = PROMISING.replace(*change)
    assert text != PROMISING
    path = tmp_path / "promising.py"
    path.write_text(text)
    with pytest.raises(BadInput) as refused:
        load("promising", str(tmp_path)).open(tmp_path)
    assert says in str(refused.value)


PROMISING = """
import torch
from torch import nn
from mdgan.data import InMemoryPartitioner

SHAPE, Z_DIM = (1, 4, 4), 5
Generator = Discriminator = nn.Module

class Partitioner(InMemoryPartitioner):
    def read(self, data_dir):
        return torch.zeros(64, 1, 4, 4), torch.zeros(64, dtype=torch.int64)
"""
