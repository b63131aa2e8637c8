"""Reads volumes as scanners write them: NIfTI files, and folders of DICOM slices."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from mdgan.errors import BadInput

NIFTI = (".nii", ".nii.gz")
DICOM = (".dcm", ".ima")
_NEEDS = "needs {}: pip install 'mdgan[volumes]'"
_MOST_VOXELS = 1 << 29
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
    scaled = np.clip((scan.voxels - low) / (high - low) * 2 - 1, -1, 1).astype(np.float32)
    whole = torch.from_numpy(scaled)[None, None]
    if spacing is None:
        fitted = F.interpolate(whole, size=shape[1:], mode="trilinear", align_corners=False)
    else:
        sizes = [
            max(1, round(size * apart / spacing))
            for size, apart in zip(scan.voxels.shape, scan.spacing, strict=True)
        ]
        if np.prod(sizes, dtype=np.float64) > _MOST_VOXELS:
            raise ValueError(f"has {sizes} voxels at {spacing:g} mm; too many")
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
        image: Any = nibabel.load(path)
        sizes = image.shape
        if len(sizes) < 3 or np.prod(sizes[:3], dtype=np.float64) > _MOST_VOXELS:
            raise ValueError(f"its sizes are {sizes}; a volume has three, of moderate size")
        first = (..., *([0] * (len(sizes) - 3)))
        data = np.asarray(image.dataobj[first], dtype=np.float32)
        apart = [float(size) for size in image.header.get_zooms()[:3]]
    except nibabel.filebasedimages.ImageFileError as error:
        raise ValueError(str(error)) from error
    return _checked(data.transpose(2, 1, 0), (apart[2], apart[1], apart[0]))


def read_dicom(folder: Path) -> Scan:
    """The slices of one series, in the order of their places along its normal."""
    slices = [_read_slice(path) for path in dicom_files(folder)]
    if not slices:
        raise ValueError("no DICOM file in it")
    names = {str(getattr(one, "SeriesInstanceUID", "")) for one in slices}
    if len(names) > 1:
        raise ValueError(f"holds {len(names)} series; give each a folder")
    slices.sort(key=_place)
    pixels = [
        one.pixel_array.astype(np.float32) * float(getattr(one, "RescaleSlope", 1))
        + float(getattr(one, "RescaleIntercept", 0))
        for one in slices
    ]
    if len({picture.shape for picture in pixels}) > 1:
        raise ValueError("its slices have different sizes")
    places = [_place(one) for one in slices]
    usual = float(getattr(slices[0], "SliceThickness", None) or 1)
    depth = float(np.median(np.diff(places))) if len(places) > 1 else usual
    rows, columns = map(float, getattr(slices[0], "PixelSpacing", (1, 1)))
    return _checked(np.stack(pixels), (depth or usual, rows, columns))


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
    try:
        return pydicom.dcmread(path, stop_before_pixels=not pixels)
    except pydicom.errors.InvalidDicomError as error:
        raise ValueError(f"{path.name} is no DICOM file") from error


def _checked(voxels: Voxels, spacing: tuple[float, float, float]) -> Scan:
    if voxels.ndim != 3 or not voxels.size or not np.isfinite(voxels).all():
        raise ValueError("is no volume of finite numbers")
    if not all(0 < apart < 1e4 for apart in spacing):
        raise ValueError(f"says that its voxels are {spacing} mm apart")
    return Scan(np.ascontiguousarray(voxels), spacing)
