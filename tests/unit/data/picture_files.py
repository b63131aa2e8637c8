"""Writes files of pictures, and reads what mdgan says of them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mdgan.data.dataset_file import DatasetFile
from mdgan.errors import BadInput
from mdgan.spelling import spelled


def save(path: Path, size: tuple[int, int] = (64, 64), mode: str = "RGB") -> None:
    """Saves a black picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, 0).save(path)


def write(path: Path, content: bytes) -> None:
    """Writes a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def scan(path: Path, high: int, kind: type = np.uint16, low: int = 0) -> None:
    """Saves a ramp of grey values as a scanner does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.linspace(low, high, 64 * 64).reshape(64, 64).astype(kind)).save(path)


def messages_of(caplog: pytest.LogCaptureFixture) -> str:
    """All messages of the log, as the command line spells them."""
    return spelled("\n".join(caplog.messages))


def refusal(folder: DatasetFile, data: Path) -> str:
    """The one line with which a folder of pictures is refused."""
    with pytest.raises(BadInput) as caught:
        folder.open(data)
    text = spelled(str(caught.value))
    assert len(text.splitlines()) == 1
    return text
