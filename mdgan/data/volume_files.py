"""Volumes in files, each read when it is drawn; all of a patient go to one worker."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from mdgan.data.partitioner import Partitioner, group_of
from mdgan.errors import BadInput
from mdgan.samples.tensors.reading import DICOM, NIFTI, patient_of, read_volume
from mdgan.storage.foreign_file import read_whole

_EXPECTED = f"NIfTI files ({' '.join(NIFTI)}), or a folder of {' '.join(DICOM)} for each series"


class VolumesPartitioner(Partitioner):
    """NIfTI files and folders of DICOM series below a folder, sorted; see `read_volume`."""

    shape: tuple[int, int, int, int]
    window: tuple[float, float] | None = None
    spacing: float | None = None
    read_one_by_one = True

    def __init__(self, data_dir: Path) -> None:
        if not data_dir.is_dir():
            raise BadInput(f"--data-dir {data_dir}: no such folder; expected {_EXPECTED}")
        self.paths = sorted(_volumes_below(data_dir))
        if not self.paths:
            raise BadInput(f"--data-dir {data_dir}: no volume in it; expected {_EXPECTED}")
        self.labels = torch.zeros(len(self.paths), dtype=torch.int64)
        self.groups = torch.tensor([group_of(self._patient(path)) for path in self.paths])

    def _patient(self, path: Path) -> str:
        try:
            return patient_of(path)
        except BadInput:
            raise
        except Exception:  # its reader may raise anything; it is left out when it is tried
            return str(path)

    def images(self, indices: Tensor) -> Tensor:
        chosen = [self.paths[i] for i in indices.tolist()]
        return torch.stack(
            [read_volume(path, self.shape, self.window, self.spacing) for path in chosen]
        )

    def contents(self, indices: Tensor) -> list[bytes]:
        """See `Partitioner`; of a series the bytes of its slices, one after the other."""
        return [_content(self.paths[i]) for i in indices.tolist()]


def _volumes_below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        shown = [name for name in names if not name.startswith(".")]
        yield from (Path(parent, name) for name in shown if name.lower().endswith(NIFTI))
        if any(name.lower().endswith(DICOM) for name in shown):
            yield Path(parent)


def _refuse(error: OSError) -> None:
    raise error


def _content(path: Path) -> bytes:
    if not path.is_dir():
        return read_whole(path, None)
    files = sorted(one for one in path.iterdir() if one.name.lower().endswith(DICOM))
    return b"".join(read_whole(one, None) for one in files)
