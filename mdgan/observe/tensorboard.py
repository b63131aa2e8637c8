"""Writes scalars and pictures of a run for TensorBoard."""

import io
from collections.abc import Mapping
from importlib.util import find_spec
from math import isfinite
from pathlib import Path

import numpy as np
from PIL import Image

from mdgan.errors import BadInput

_MISSING = "--tensorboard: needs the tensorboard package: pip install 'mdgan[tensorboard]'"


def check_tensorboard() -> None:
    """Checks, without importing or creating anything, whether a writer can be made.

    Raises:
        BadInput: the package is missing.
    """
    if find_spec("tensorboard") is None:
        raise BadInput(_MISSING)


class TensorBoardWriter:
    """Writes one run's event files.

    Args:
        folder: for the files; made if it is not there.

    Raises:
        BadInput: the package is missing.
    """

    def __init__(self, folder: Path) -> None:
        check_tensorboard()
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise BadInput(_MISSING) from error
        self._writer = SummaryWriter(str(folder))

    def scalars(self, iteration: int, values: Mapping[str, float | None]) -> None:
        """Writes numbers by name, and leaves out those that are not finite."""
        for name, value in values.items():
            if value is not None and isfinite(value):
                self._writer.add_scalar(name, value, iteration)

    def grid(self, iteration: int, png: bytes) -> None:
        """Writes a picture of samples."""
        with Image.open(io.BytesIO(png)) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        self._writer.add_image("samples", pixels, iteration, dataformats="HWC")

    def close(self) -> None:
        """Writes what is still in memory, and closes the file."""
        self._writer.close()
