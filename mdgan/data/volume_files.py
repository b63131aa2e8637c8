"""A data set of volumes in files, each read when it is drawn; patients are its groups."""

import hashlib
import os
import re
from pathlib import Path

import torch
from torch import Tensor
from typing_extensions import override

from mdgan.data.partitioner import Partitioner, group_of
from mdgan.data.readable import refuse, shown
from mdgan.errors import BadInput, warn_once
from mdgan.samples.pictures.files import ending_of, is_of_machine
from mdgan.samples.pictures.reading import Seen, why_unreadable
from mdgan.samples.tensors.reading import NIFTI, fit, patient_of, read_scan
from mdgan.samples.tensors.slices import DICOM, DIRECTORY, dicom_files, is_dicom
from mdgan.spelling import flag
from mdgan.storage.foreign_file import ends_of, open_regular, read_whole

_EXPECTED = f"NIfTI files ({' '.join(NIFTI)}), or a folder of {' '.join(DICOM)} for each series"
_MASK = re.compile(r"(^|[^a-z])(a|d|brain)?(seg|mask|label|labelmap|segmentation|roi|gt)s?$")
_MASKS = re.compile(r"(label|mask|segmentation)s?(tr|ts)?$")
_MASK_KIND = "masks beside scans"
_LOST = (".mha", ".mhd", ".nrrd", ".mgz", ".mgh", ".hdr")  # volumes that mdgan cannot read


class VolumesPartitioner(Partitioner):
    """NIfTI files and folders of DICOM series below a folder, sorted; see `fit`."""

    shape: tuple[int, int, int, int]
    window: tuple[float, float] | None = None
    spacing: float | None = None
    read_one_by_one = True

    def __init__(self, data_dir: Path) -> None:
        if not data_dir.is_dir():
            raise BadInput(flag("data_dir", data_dir), "no such folder", f"expected {_EXPECTED}")
        self.paths, others = _files_below(data_dir)
        skipped = "; ".join(
            f"{kind}: {len(paths):,}, first {shown(str(min(paths).relative_to(data_dir)))}"
            for kind, paths in sorted(others.items())
        )
        if not self.paths:
            why = "no volume in it" + (skipped and f", but {skipped}")
            raise BadInput(flag("data_dir", data_dir), why, f"expected {_EXPECTED}")
        if sum(len(others.get(kind, ())) for kind in _LOST) > len(self.paths):
            why = f"most of it cannot be read: {skipped}; {len(self.paths):,} would be left"
            way_out = "save them as NIfTI, or move them out of the folder"
            raise BadInput(flag("data_dir", data_dir), why, way_out)
        if skipped:
            warn_once(f"skipped in {data_dir}: {skipped}")
        self.labels = torch.zeros(len(self.paths), dtype=torch.int64)
        self.groups = torch.tensor([group_of(self._patient(path)) for path in self.paths])

    def _patient(self, path: Path) -> str:
        try:
            return patient_of(path)
        except BadInput:
            raise
        except Exception:  # a reader may raise anything; such a file is left out later
            return str(path)

    def images(self, indices: Tensor) -> Tensor:
        return torch.stack([self._image(self.paths[i]) for i in indices.tolist()])

    def _image(self, path: Path) -> Tensor:
        try:
            return fit(read_scan(path), self.shape, self.window, spacing=self.spacing)
        except BadInput:
            raise
        except Exception as error:  # a reader may raise anything; the user needs the file's name
            why = f"cannot read this volume ({why_unreadable(error, None)})"
            raise BadInput(path, why, "remove or repair it") from error

    @override
    def try_reading(self, index: int) -> Seen:
        scan = read_scan(self.paths[index])
        fit(scan, self.shape, self.window, spacing=self.spacing)
        return {note: (number, "") for note, number in scan.notes.items()}

    @override
    def contents(self, indices: Tensor) -> list[bytes]:
        chosen = [self.paths[i] for i in indices.tolist()]
        files = [dicom_files(path) if path.is_dir() else [path] for path in chosen]
        return [b"".join(read_whole(file, None) for file in each) for each in files]

    @override
    def quick_contents(self, indices: Tensor) -> list[bytes]:
        chosen = [self.paths[i] for i in indices.tolist()]
        files = [dicom_files(path) if path.is_dir() else [path] for path in chosen]
        return [b"".join(sorted(map(_brief, each))) for each in files]


def _brief(path: Path) -> bytes:
    """Bytes that identify a file; for a packed one its ends, which hold a sum of its content."""
    if path.suffix.lower() == ".gz":
        return ends_of(path)
    with open_regular(path) as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _files_below(folder: Path) -> tuple[list[Path], dict[str, list[Path]]]:
    """The volumes below a folder, sorted, and all other files by their kind.

    Masks beside scans are no volumes; in a folder of masks alone they are.
    """
    volumes: set[Path] = set()
    others: dict[str, list[Path]] = {}
    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not is_of_machine(name)]
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for path in (Path(parent, name) for name in [*names, *links] if not is_of_machine(name)):
            is_nifti = path.name.lower().endswith(NIFTI)
            if is_nifti and _is_mask(path.relative_to(folder)):
                others.setdefault(_MASK_KIND, []).append(path)
            elif is_nifti:
                volumes.add(path)
            elif is_dicom(path):
                volumes.add(path.parent)
            else:
                others.setdefault(_kind_of_other(path), []).append(path)
    if not volumes:
        volumes.update(others.pop(_MASK_KIND, []))
    return sorted(volumes), others


def _is_mask(path: Path) -> bool:
    """Whether a file is a mask of another one, by its name or those of its folders."""
    stem = path.name.lower().partition(".nii")[0]
    return bool(_MASK.search(stem)) or any(_MASKS.match(part.lower()) for part in path.parts[:-1])


def _kind_of_other(path: Path) -> str:
    if path.is_symlink() and not path.is_file():
        return "links to folders" if path.is_dir() else "links to nothing"
    if path.stem.upper() == DIRECTORY:
        return DIRECTORY
    return shown(ending_of(path.name)[:20]) or "files without an ending"
