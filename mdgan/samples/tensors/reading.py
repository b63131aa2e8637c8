"""Reads volumes as scanners write them: NIfTI files, and folders of DICOM slices."""

import gzip
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.samples.tensors.slices import (
    NEEDS,
    Slice,
    dicom_files,
    errors_as,
    one_stack,
    read_file,
    read_headers,
    read_pixels,
)
from mdgan.samples.tensors.values import Voxels, clean, evenly_placed
from mdgan.storage.budget import check_decoded
from mdgan.storage.foreign_file import open_regular

NIFTI = (".nii", ".nii.gz")
TURNED = "volumes were turned to the axes of the body"
_VOXEL_BYTES, _TIMES_RESIZED = 16, 8
"""Memory of a voxel while it is read: as stored, scaled, and as float32; and for resizing."""
_MOST_EXTRA_BYTES = 1 << 20
_NIFTI_2 = ((540).to_bytes(4, "little"), (540).to_bytes(4, "big"))
_GZIP = b"\x1f\x8b"
_MM_OF_UNIT = {1: 1000.0, 3: 0.001}
_ALIKE, _LEAST_DETERMINANT, _LEANS = 0.02, 0.1, 0.05
_ONE_PLACE_MM = 1e-3
_LEAST_SHARE, _GREATEST_SHARE = 0.005, 0.995
_UP_FRONT_RIGHT = (2, 1, 0)
"""Indices of the body's axes in the order of RAS."""

Spacing = tuple[float, float, float]


class Scan(NamedTuple):
    """One volume as its file has it.

    Attributes:
        voxels: float32 [D, H, W].
        spacing: the distances of voxels along D, H and W, in mm.
        axes: [3, 3], the directions of D, H and W as unit vectors to the right, to the front and
            upwards (RAS); None if the file has none.
        notes: the changes to the volume, and how often each was made.
    """

    voxels: Voxels
    spacing: Spacing
    axes: NDArray[np.float64] | None
    notes: Counter[str]


def read_scan(path: Path) -> Scan:
    """Reads a volume and turns it to the axes of the body, if known.

    So equal anatomy gives equal voxels, whatever order a scanner writes them in.

    Args:
        path: a NIfTI file, or a folder of the DICOM files of one series.

    Raises:
        ValueError, OSError: the volume cannot be read.
        BadInput: a library that reads it is not installed.
    """
    voxels, spacing, axes, notes = read_dicom(path) if path.is_dir() else read_nifti(path)
    if not all(0 < apart < 1e4 for apart in spacing):
        raise ValueError(f"says that its voxels are {spacing} mm apart")
    notes["volumes of a single slice, which fills all others"] += min(voxels.shape) == 1
    if axes is None:
        notes["volumes say no orientation, and are taken as they are"] += 1
        return Scan(np.ascontiguousarray(voxels), spacing, axes, +notes)
    if not abs(np.linalg.det(axes)) > _LEAST_DETERMINANT:
        raise ValueError("its axes are no three directions")
    leans = not np.allclose(axes @ axes.T, np.eye(3), atol=_LEANS)
    notes["volumes lean, as their axes are not at right angles, and are taken as upright"] += leans
    order = max(
        permutations(range(3)), key=lambda order: float(np.abs(axes[order, _UP_FRONT_RIGHT]).sum())
    )
    back = tuple(np.flatnonzero(axes[order, _UP_FRONT_RIGHT] < 0).tolist())
    notes[TURNED] += bool(back) or order != (0, 1, 2)
    turned = np.ascontiguousarray(np.flip(voxels.transpose(order), back))
    first, second, third = order
    return Scan(turned, (spacing[first], spacing[second], spacing[third]), axes, +notes)


def fit(
    scan: Scan,
    shape: tuple[int, int, int, int],
    window: tuple[float, float] | None,
    *,
    spacing: float | None,
) -> Tensor:
    """Makes a sample, float32 [1, D, H, W] in [−1, 1], from a scan; overwrites the scan's voxels.

    Args:
        shape: of the sample, (1, D, H, W).
        window: the values that become −1 and 1, such as −160 and 240 Hounsfield units; None for
            the values that 0.5 % and 99.5 % of the voxels are below.
        spacing: mm between voxels of the sample: the volume is cropped, or padded with the least
            value. None to fit the whole volume into the shape.

    Raises:
        ValueError: all voxels have the same value, or nearly all.
    """
    low, high = window or np.quantile(scan.voxels, (_LEAST_SHARE, _GREATEST_SHARE)).tolist()
    if not high > low:
        is_flat = float(np.ptp(scan.voxels)) == 0
        most = "all voxels have" if is_flat else "99 % of the voxels, or more, have"
        raise ValueError(f"{most} the same value")
    scaled = torch.from_numpy(scan.voxels).sub_(low).div_(high - low).mul_(2).sub_(1)
    whole = scaled.clamp_(-1, 1)[None, None]
    if spacing is None:
        fitted = F.interpolate(whole, size=shape[1:], mode="trilinear", align_corners=False)
    else:
        sizes = [
            max(1, round(size * apart / spacing))
            for size, apart in zip(scan.voxels.shape, scan.spacing, strict=True)
        ]
        _check_size(sizes, scan.voxels.size // _TIMES_RESIZED)
        resized = F.interpolate(whole, size=sizes, mode="trilinear", align_corners=False)
        fitted = _centred(resized, shape[1:])
    return fitted[0].clamp(-1, 1)


def _centred(volumes: Tensor, sizes: Iterable[int]) -> Tensor:
    """The middle of [1, 1, D, H, W], cropped or padded with −1 to these sizes."""
    pads: list[int] = []
    for have, want in zip(volumes.shape[2:], sizes, strict=True):
        before = (want - have) // 2
        pads = [before, want - have - before, *pads]
    return F.pad(volumes, pads, value=-1.0)


def read_nifti(path: Path) -> Scan:
    """Reads the first volume of a NIfTI file, packed or not. Depth is the file's last axis."""
    try:
        import nibabel
    except ImportError as error:
        raise BadInput(path, NEEDS.format("nibabel")) from error
    logging.getLogger("nibabel.global").setLevel(logging.CRITICAL)  # errors are raised below
    with open_regular(path) as file:
        is_packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        unpacked: Any = gzip.GzipFile(fileobj=file) if is_packed else file
        with errors_as("is no NIfTI file, or ends early"):
            head = unpacked.read(540)
        kind: Any = nibabel.Nifti2Image if head[:4] in _NIFTI_2 else nibabel.Nifti1Image
        size = kind.header_class.template_dtype.itemsize
        if len(head) < size:
            raise ValueError("is no NIfTI file")
        place = kind.header_class(head[:size], check=False)["vox_offset"]
        if not place <= _MOST_EXTRA_BYTES:  # nibabel would read everything before that byte
            raise ValueError(f"its voxels begin only at byte {float(place):,.0f}")
        unpacked.seek(0)
        holder = nibabel.FileHolder(fileobj=unpacked)
        with errors_as("is no NIfTI file, or its header is damaged"):
            image = kind.from_file_map({"header": holder, "image": holder})
        return _scan_of(image, path)


def _scan_of(image: Any, path: Path) -> Scan:
    """The first volume of an open NIfTI file."""
    sizes, header, notes = image.shape, image.header, Counter[str]()
    if len(sizes) < 3 or min(sizes) < 1:
        raise ValueError(f"its sizes are {sizes}; a volume has three")
    stored = header.get_data_dtype()
    if stored.kind not in "iuf":
        what = "colours (RGB)" if stored.fields else "complex numbers"
        raise ValueError(f"holds {what}, no values of grey")
    _check_size(sizes[:3], path)
    several = "files hold several volumes, of which the first is taken"
    notes[several] += max(sizes[3:], default=1) > 1
    few = "holds fewer voxels than its header says, or is damaged"
    with errors_as(few), np.errstate(over="ignore"):  # values that overflow become infinite
        first = (..., *([0] * (len(sizes) - 3)))
        data = np.asarray(image.dataobj[first], dtype=np.float32)
    unit = _MM_OF_UNIT.get(int(header["xyzt_units"]) & 7, 1.0)
    apart, axes = [float(size) * unit for size in header.get_zooms()[:3]], None
    if header["sform_code"] > 0 or header["qform_code"] > 0:
        steps = image.affine[:3, :3]
        lengths = np.linalg.norm(steps, axis=0)
        if not (np.isfinite(lengths).all() and lengths.min() > 0):
            raise ValueError("its affine is no three directions")
        axes = (steps / lengths).T[::-1]
        second = steps if header["qform_code"] == 0 else header.get_qform()[:3, :3]
        if not np.allclose(lengths * unit, apart, rtol=_ALIKE):
            apart, second = (lengths * unit).tolist(), None
        if second is None or not np.allclose(second, steps, atol=_ALIKE * lengths.max()):
            note = "volumes say two orientations or spacings, and those of the affine are taken"
            notes[note] += 1
    voxels = np.require(data.transpose(2, 1, 0), requirements="W")
    clean(voxels, None, notes)
    return Scan(voxels, (apart[2], apart[1], apart[0]), axes, notes)


def read_dicom(folder: Path) -> Scan:
    """Reads the slices of a series as a volume, in the order of places along their normal."""
    files, notes = dicom_files(folder), Counter[str]()
    if not files:
        raise ValueError("no DICOM file in it")
    slices = one_stack(read_headers(files, notes), notes)
    _check_size((len(slices), *slices[0].size), sum(path.stat().st_size for path in files))
    voxels, padding = read_pixels(slices, notes)
    clean(voxels, padding, notes)
    slices, voxels = _without_copies(slices, voxels, notes)
    voxels, places = evenly_placed(voxels, np.array([one.place for one in slices]), notes)
    one, plane, axes = slices[0], slices[0].plane, None
    depth, (rows, columns, *_) = one.thickness or 1.0, one.spacing or (1.0, 1.0)
    if plane is not None:
        depth = float(np.median(np.diff(places))) if len(places) > 1 else depth
        across = [part.plane[0] @ plane[1:].T for part in slices if part.plane is not None]
        if float(np.ptp(across, axis=0).max()) > max(rows, columns):
            notes["stacks lean, as their slices are shifted, and are taken as upright"] += 1
        axes = np.array([np.cross(plane[1], plane[2]), plane[2], plane[1]]) * (-1, -1, 1)
    if one.spacing is None or (one.thickness is None and (plane is None or len(places) == 1)):
        notes["volumes lack a distance of voxels or slices, and 1 mm is taken"] += 1
    return Scan(voxels, (depth, rows, columns), axes, notes)


def _without_copies(
    slices: list[Slice], voxels: Voxels, notes: Counter[str]
) -> tuple[list[Slice], Voxels]:
    """Drops copies of slices at one place; raises ValueError if slices at one place differ."""
    kept = [0]
    for at in range(1, len(slices)):
        before, after = slices[at - 1], slices[at]
        if after.place - before.place > _ONE_PLACE_MM:
            kept.append(at)
        elif not np.array_equal(voxels[at], voxels[at - 1]):
            why = f"{before.name} and {after.name} are different pictures of one place"
            raise ValueError(f"{why}, of {len(slices)} in all; give each time or echo a folder")
    notes["copies of slices left out"] += len(slices) - len(kept)
    return [slices[at] for at in kept], voxels[kept] if len(kept) < len(slices) else voxels


def patient_of(path: Path) -> str:
    """The patient of a volume: DICOM's PatientID; for NIfTI sub-NAME as in BIDS, or the folder."""
    if path.is_dir():
        files = dicom_files(path)
        patient = str(read_file(files[0], pixels=False).get("PatientID") or "") if files else ""
        return patient or path.parent.name
    named = [part for part in path.name.split("_") if part.startswith("sub-")]
    return named[0] if named else str(path.parent)


def _check_size(sizes: Sequence[int], stored: Path | int) -> None:
    """Raises an error for a volume that would need too much memory."""
    what = f"{' × '.join(map(str, sizes))} voxels"
    check_decoded(_VOXEL_BYTES * float(np.prod(sizes, dtype=np.float64)), stored, what=what)
