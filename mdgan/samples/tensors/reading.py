"""Reads volumes as scanners write them: NIfTI files, and folders of DICOM slices."""

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from mdgan.errors import BadInput, reason_of
from mdgan.storage.budget import check_decoded, check_whole

NIFTI = (".nii", ".nii.gz")
DICOM = (".dcm", ".ima")
_NEEDS = "needs {}: pip install 'mdgan[volumes]'"
_VOXEL_BYTES, _TIMES_RESIZED = 16, 8
"""Of a voxel while it is read: as the file has it, scaled, and as float32."""
_MOST_EXTRA_BYTES = 1 << 20
_NIFTI_2 = ((540).to_bytes(4, "little"), (540).to_bytes(4, "big"))
_DEFLATED = "1.2.840.10008.1.2.1.99"
_LEAST_SHARE, _GREATEST_SHARE = 0.005, 0.995

Voxels = NDArray[np.float32]


class Scan(NamedTuple):
    """One volume: values float32 [D, H, W], and the distances of voxels along these, in mm."""

    voxels: Voxels
    spacing: tuple[float, float, float]


def read_volume(
    path: Path,
    shape: tuple[int, int, int, int],
    window: tuple[float, float] | None,
    spacing: float | None,
) -> Tensor:
    """A volume as a sample, float32 [1, D, H, W] in [−1, 1].

    Args:
        path: a NIfTI file, or a folder of the DICOM files of one series.
        shape: of the sample, (1, D, H, W).
        window: the values that become −1 and 1, such as −160 and 240 Hounsfield units; None for
            those that 0.5 % and 99.5 % of the voxels are below.
        spacing: mm between voxels of the sample; what lies outside is cut off, and what is missing
            has the least value. None to fit the whole volume into the shape.

    Raises:
        ValueError, OSError: it cannot be read.
        BadInput: a program that reads it is not installed.
    """
    scan = read_dicom(path) if path.is_dir() else read_nifti(path)
    low, high = window or np.quantile(scan.voxels, (_LEAST_SHARE, _GREATEST_SHARE)).tolist()
    if not high > low:
        raise ValueError("all voxels have the same value")
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
    """The middle of [1, 1, D, H, W], cut or filled with −1 to some sizes."""
    pads: list[int] = []
    for have, want in zip(volumes.shape[2:], sizes, strict=True):
        before = (want - have) // 2
        pads = [before, want - have - before, *pads]
    return F.pad(volumes, pads, value=-1.0)


def read_nifti(path: Path) -> Scan:
    """A NIfTI file; of several volumes in it, the first. Depth is its last axis."""
    try:
        import nibabel
    except ImportError as error:
        raise BadInput(f"{path}: {_NEEDS.format('nibabel')}") from error
    try:
        with nibabel.openers.ImageOpener(str(path)) as file:
            head = file.read(540)
        kind: Any = nibabel.Nifti2Image if head[:4] in _NIFTI_2 else nibabel.Nifti1Image
        size = kind.header_class.template_dtype.itemsize
        if len(head) < size:
            raise ValueError("is no NIfTI file")
        place = kind.header_class(head[:size], check=False)["vox_offset"]
        if not place <= _MOST_EXTRA_BYTES:  # all before that would be read
            raise ValueError(f"its voxels begin only at byte {float(place):,.0f}")
        image = kind.from_filename(path)
        sizes = image.shape
        if len(sizes) < 3:
            raise ValueError(f"its sizes are {sizes}; a volume has three")
        _check_size(sizes[:3], path)
        first = (..., *([0] * (len(sizes) - 3)))
        data = np.asarray(image.dataobj[first], dtype=np.float32)
        apart = [float(size) for size in image.header.get_zooms()[:3]]
    except (nibabel.filebasedimages.ImageFileError, EOFError, zlib.error) as error:
        raise ValueError(reason_of(error)) from error
    return _checked(data.transpose(2, 1, 0), (apart[2], apart[1], apart[0]))


def read_dicom(folder: Path) -> Scan:
    """The slices of one series, in the order of their places along its normal."""
    files = dicom_files(folder)
    if not files:
        raise ValueError("no DICOM file in it")
    slices = [_read_slice(path, pixels=False) for path in files]
    names = {str(getattr(one, "SeriesInstanceUID", "")) for one in slices}
    if len(names) > 1:
        raise ValueError(f"holds {len(names)} series; give each a folder")
    sizes = {(int(one.Rows), int(one.Columns)) for one in slices}
    if len(sizes) > 1 or any(int(getattr(one, "NumberOfFrames", None) or 1) > 1 for one in slices):
        raise ValueError("its slices have different sizes, or several pictures")
    shape = (len(slices), *sizes.pop())
    _check_size(shape, sum(path.stat().st_size for path in files))
    order = sorted(range(len(files)), key=lambda place: _place(slices[place]))
    slices, voxels = [slices[place] for place in order], np.empty(shape, np.float32)
    for plane, one, place in zip(voxels, slices, order, strict=True):
        plane[:] = _read_slice(files[place]).pixel_array
        plane *= float(getattr(one, "RescaleSlope", 1))
        plane += float(getattr(one, "RescaleIntercept", 0))
    places = [_place(one) for one in slices]
    usual = float(getattr(slices[0], "SliceThickness", None) or 1)
    depth = float(np.median(np.diff(places))) if len(places) > 1 else usual
    rows, columns = map(float, getattr(slices[0], "PixelSpacing", (1, 1)))
    return _checked(voxels, (depth or usual, rows, columns))


def _place(one: Any) -> float:
    """Where a slice lies along the normal of its plane, in mm; by its number if it does not say."""
    where = getattr(one, "ImagePositionPatient", None)
    axes = getattr(one, "ImageOrientationPatient", None)
    if where is None or axes is None:
        return float(getattr(one, "InstanceNumber", 0) or 0)
    normal = np.cross([float(x) for x in axes[:3]], [float(x) for x in axes[3:]])
    return float(np.dot(normal, [float(x) for x in where]))


def dicom_files(folder: Path) -> list[Path]:
    """The DICOM files of a folder, by their names."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in DICOM and path.is_file() and not path.name.startswith(".")
    )


def patient_of(path: Path) -> str:
    """Whose volume it is: DICOM's PatientID; of NIfTI the folder, or sub-NAME as in BIDS."""
    if path.is_dir():
        found = dicom_files(path)
        told = str(getattr(_read_slice(found[0], pixels=False), "PatientID", "")) if found else ""
        return told or path.parent.name
    named = [part for part in path.name.split("_") if part.startswith("sub-")]
    return named[0] if named else str(path.parent)


def _read_slice(path: Path, *, pixels: bool = True) -> Any:
    try:
        import pydicom
    except ImportError as error:
        raise BadInput(f"{path}: {_NEEDS.format('pydicom')}") from error
    check_whole(path)  # any field may be as long
    try:
        syntax = pydicom.filereader.read_file_meta_info(path).get("TransferSyntaxUID")
        if syntax == _DEFLATED:  # its reader would inflate it whole, whatever it holds
            raise ValueError(f"{path.name} is deflated as a whole; write it anew without that")
        return pydicom.dcmread(path, stop_before_pixels=not pixels)
    except pydicom.errors.InvalidDicomError as error:
        raise ValueError(f"{path.name} is no DICOM file") from error


def _check_size(sizes: Sequence[int], stored: Path | int) -> None:
    """Refuses a volume that would take too much memory."""
    what = f"{' × '.join(map(str, sizes))} voxels"
    check_decoded(_VOXEL_BYTES * float(np.prod(sizes, dtype=np.float64)), stored, what=what)


def _checked(voxels: Voxels, spacing: tuple[float, float, float]) -> Scan:
    if voxels.ndim != 3 or not voxels.size or not np.isfinite(voxels).all():
        raise ValueError("is no volume of finite numbers")
    if not all(0 < apart < 1e4 for apart in spacing):
        raise ValueError(f"says that its voxels are {spacing} mm apart")
    return Scan(np.ascontiguousarray(voxels), spacing)
