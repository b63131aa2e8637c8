"""A data set in files of numpy, as `mdgan.Data` writes them for the processes of a run."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from mdgan.data.partitioner import InMemoryPartitioner
from mdgan.errors import BadInput
from mdgan.spelling import flag


class Arrays(InMemoryPartitioner):
    """Images and labels in two files; the processes of a machine share the pages in memory."""

    which: ClassVar[str] = "train"

    @override
    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        try:
            images, labels = (
                np.load(data_dir / file, mmap_mode="c") for file in file_names(self.which)
            )
        except FileNotFoundError as error:
            raise BadInput(
                data_dir,
                "its samples were objects of a Python program that has ended",
                f"go on with mdgan.Run.open(RUN).resume(dataset=…), or give {flag('data_dir')} a "
                "folder that mdgan.Data.save has written",
            ) from error
        return torch.from_numpy(images), torch.from_numpy(labels)


def file_names(which: str) -> tuple[str, str]:
    """The names of the files with the images and with the labels."""
    return f"{which}.npy", f"{which}-labels.npy"
