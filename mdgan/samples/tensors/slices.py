"""Reads the slices of a DICOM series: their headers, which slices form a volume, and pixels."""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdgan.errors import BadInput
from mdgan.samples.pictures.files import kind_of_content
from mdgan.samples.tensors.values import Voxels
from mdgan.storage.budget import TooLarge, check_decoded, check_whole

DICOM = (".dcm", ".ima")
DIRECTORY = "DICOMDIR"
NEEDS = "needs {}: pip install 'mdgan[volumes]'"
_DEFLATED = "1.2.840.10008.1.2.1.99"
_NO_SCAN = ("SEG", "RTDOSE")
_GREY = ("MONOCHROME1", "MONOCHROME2")
_ALIKE = 0.02
_MOST_FRAMES = 1 << 20

warnings.filterwarnings("ignore", module=r"pydicom\.")  # mdgan itself reports what matters


class Slice(NamedTuple):
    """A picture of a file, by its header; `frame` distinguishes several in one file.

    Attributes:
        plane: [3, 3], the place of the first pixel, in mm to the left, back and up, and the
            directions of rows and columns; None if the header does not have them.
    """

    path: Path
    frame: int
    size: tuple[int, int]
    plane: NDArray[np.float64] | None
    number: float | None
    spacing: list[float] | None
    thickness: float | None
    is_scaled: bool
    patient: str
    series: str
    is_localizer: bool

    @property
    def name(self) -> str:
        """The file's name, and the frame unless it is the first."""
        return self.path.name + (f", frame {self.frame + 1}," if self.frame else "")

    @property
    def place(self) -> float:
        """The slice's place along its normal, in mm; without a plane, its number."""
        if self.plane is None:
            return self.number or 0.0
        return float(np.dot(np.cross(self.plane[1], self.plane[2]), self.plane[0]))

    def lies_as(self, other: "Slice") -> bool:
        """Whether both may be slices of one volume."""
        alike = self.size == other.size and self.is_scaled == other.is_scaled
        if not alike or not np.allclose(self.spacing or 1, other.spacing or 1, rtol=_ALIKE):
            return False
        if self.plane is None or other.plane is None:
            return self.plane is other.plane
        return np.allclose(self.plane[1:], other.plane[1:], atol=_ALIKE)


@contextmanager
def errors_as(text: str) -> Iterator[None]:
    """Replaces any error of a library in the block by a ValueError with this text."""
    try:
        yield
    except (MemoryError, TooLarge):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise ValueError(text) from error


def is_dicom(path: Path) -> bool:
    """Whether a file is DICOM by its ending or first bytes; the index of a disk does not count."""
    if path.name.startswith(".") or path.stem.upper() == DIRECTORY or not path.is_file():
        return False
    if path.suffix.lower() in DICOM:
        return True
    kind = kind_of_content(path)
    return kind is not None and kind.name == "DICOM"


def dicom_files(folder: Path) -> list[Path]:
    """The DICOM files of a folder, by their names."""
    return sorted(path for path in folder.iterdir() if is_dicom(path))


def read_file(path: Path, *, pixels: bool = True) -> Any:
    """Reads a DICOM file by pydicom; raises ValueError, or BadInput if pydicom is missing."""
    try:
        import pydicom
    except ImportError as error:
        raise BadInput(path, NEEDS.format("pydicom")) from error
    check_whole(path)  # any field may be as long as the file
    with errors_as(f"{path.name} is no DICOM file"):
        syntax = pydicom.filereader.read_file_meta_info(path).get("TransferSyntaxUID")
    if syntax == _DEFLATED:  # pydicom would inflate the whole file, whatever its size
        raise ValueError(f"{path.name} is deflated as a whole; write it anew without that")
    with errors_as(f"{path.name} is no DICOM file, or a damaged one"):
        return pydicom.dcmread(path, stop_before_pixels=not pixels)


def read_headers(files: Sequence[Path], notes: Counter[str]) -> list[Slice]:
    """Reads the slices of files, by their headers; raises ValueError for an unusable one."""
    slices: list[Slice] = []
    for path in files:
        one = read_file(path, pixels=False)
        if str(one.get("Modality")) in _NO_SCAN:
            notes["DICOM files of segments or doses left out"] += 1
        elif "Rows" not in one:
            notes["DICOM files without a picture left out"] += 1
        else:
            slices += _slices_of(one, path)
    if not slices:
        raise ValueError(f"not one of its {len(files)} DICOM files holds a slice")
    return slices


def _slices_of(one: Any, path: Path) -> Iterator[Slice]:
    """The slice of a file, or one for each of its frames."""
    frames = _whole(one, "NumberOfFrames", 1)
    high, wide = _whole(one, "Rows", 0), _whole(one, "Columns", 0)
    colour = str(one.get("PhotometricInterpretation") or "MONOCHROME2")
    kind, low_bit = str(one.get("ImageType")).upper(), _whole(one, "BitsStored", 16) - 1
    for why, is_so in {
        f"is in colour ({colour})": colour not in _GREY or (one.get("SamplesPerPixel") or 1) != 1,
        "has a table of values (ModalityLUTSequence)": bool(one.get("ModalityLUTSequence")),
        "is a mosaic of slices; convert it to NIfTI": "MOSAIC" in kind,
        "has its values in the upper bits (HighBit)": one.get("HighBit", low_bit) != low_bit,
        f"has {frames} frames of {high} × {wide} pixels": not (
            0 < frames <= _MOST_FRAMES and min(high, wide) > 0
        ),
    }.items():
        if is_so:
            raise ValueError(f"{path.name} {why}")
    check_decoded(frames * high * wide, path, what=f"{frames} frames")
    for frame in range(frames):
        fields = _fields(one, frame)
        plane, slope = _plane(fields), _numbers(fields, "RescaleSlope")
        if frames > 1 and (plane is None or "PerFrameFunctionalGroupsSequence" not in one):
            raise ValueError(f"{path.name} has {frames} frames, and does not say where they lie")
        if slope is not None and slope[0] == 0:
            raise ValueError(f"{path.name} has a RescaleSlope of 0")
        thick = [_number(fields, name) for name in ("SpacingBetweenSlices", "SliceThickness")]
        yield Slice(
            path=path,
            frame=frame,
            size=(high, wide),
            plane=plane,
            number=_number(fields, "InstanceNumber"),
            spacing=_numbers(fields, "PixelSpacing", 2),
            thickness=next((mm for mm in thick if mm and mm > 0), None),
            is_scaled=slope is not None,
            patient=str(one.get("PatientID") or ""),
            series=str(one.get("SeriesInstanceUID") or one.get("SeriesNumber") or ""),
            is_localizer="LOCALIZER" in kind,
        )


def _fields(one: Any, frame: int) -> Any:
    """The fields of a picture; those of a frame are merged from the file's groups."""
    groups = [
        *(one.get("SharedFunctionalGroupsSequence") or [])[:1],
        *(one.get("PerFrameFunctionalGroupsSequence") or [])[frame : frame + 1],
    ]
    if not groups:
        return one
    from pydicom import Dataset

    fields = Dataset()
    fields.update(one)
    fields.filename = one.filename
    for element in (element for group in groups for element in group):
        if not element.tag.is_private and element.VR == "SQ" and element.value:
            fields.update(element.value[0])
    return fields


def _numbers(fields: Any, name: str, count: int = 1) -> list[float] | None:
    """The numbers of a field; None if it is missing or empty. Raises ValueError for others."""
    with suppress(TypeError, ValueError, OverflowError):
        value = fields.get(name)
        if value is None or value == "":
            return None
        numbers = np.atleast_1d(np.asarray(value, np.float64))
        if len(numbers) >= count and np.isfinite(numbers).all():
            return list(numbers.tolist())
    raise ValueError(f"{Path(fields.filename).name} has a {name} that is no number")


def _whole(fields: Any, name: str, usual: int) -> int:
    return int((_numbers(fields, name) or [usual])[0])


def _number(fields: Any, name: str) -> float | None:
    """The number of an optional field; None if it is missing, or holds no number."""
    with suppress(ValueError):
        if numbers := _numbers(fields, name):
            return numbers[0]
    return None


def _plane(fields: Any) -> NDArray[np.float64] | None:
    """The plane of a picture, see `Slice`; None if its place or directions are unusable."""
    with suppress(ValueError):
        place = _numbers(fields, "ImagePositionPatient", 3)
        axes = _numbers(fields, "ImageOrientationPatient", 6)
        if place is not None and axes is not None:
            plane = np.array([*place, *axes]).reshape(3, 3)
            edges = [plane[1], plane[2], np.cross(plane[1], plane[2])]
            if np.allclose(np.linalg.norm(edges, axis=1), 1, atol=_ALIKE):
                return plane
    return None


def one_stack(slices: list[Slice], notes: Counter[str]) -> list[Slice]:
    """Chooses the slices that form the volume, in the order of their places.

    Raises:
        ValueError: there are several volumes, and none has most of the slices.
    """
    scans = [one for one in slices if not one.is_localizer]
    if not scans:
        raise ValueError("holds nothing but localizers")
    notes["slices of localizers left out"] += len(slices) - len(scans)
    for what, many in (("series", "series"), ("patient", "patients")):
        if (several := len({getattr(one, what) for one in scans})) > 1:
            raise ValueError(f"holds {several} {many}; give each a folder")
    stacks: list[list[Slice]] = []
    for one in scans:
        alike = next((stack for stack in stacks if one.lies_as(stack[0])), None)
        if alike is None:
            stacks.append(alike := [])
        alike.append(one)
    most = max(stacks, key=len)
    if 2 * len(most) <= len(scans):
        different = f"{len(stacks)} different sizes or directions; give each of these a folder"
        raise ValueError(f"its {len(scans)} slices have {different}")
    notes["slices of another size, direction, spacing or scale left out"] += len(scans) - len(most)
    if len(most) > 1 and all(one.plane is None and one.number is None for one in most):
        notes["slices say neither place nor number, and follow by their names"] += len(most)
        return [one._replace(number=float(place)) for place, one in enumerate(most)]
    return sorted(most, key=lambda one: one.place)


def read_pixels(slices: Sequence[Slice], notes: Counter[str]) -> tuple[Voxels, NDArray[np.bool_]]:
    """Reads the values of slices, float32 [D, H, W], and which of them files name as padding."""
    voxels = np.empty((len(slices), *slices[0].size), np.float32)
    padding, path, one = np.zeros(voxels.shape, np.bool_), None, None
    for place, part in enumerate(slices):
        if part.path != path:
            one, path = read_file(part.path), part.path
        fields = _fields(one, part.frame)
        voxels[place] = stored = _stored(one, part)
        with np.errstate(over="ignore", invalid="ignore"):  # values that overflow become infinite
            _scale(voxels[place], fields, notes)
        padding[place] = _is_padding(stored, fields)
    return voxels, padding


def _stored(one: Any, of: Slice) -> NDArray[Any]:
    """The pixels of a slice as its file stores them."""
    from pydicom.pixels.utils import pixel_array
    from pydicom.uid import UncompressedTransferSyntaxes

    why = f"the pixels of {of.path.name} are not what its header says"
    syntax = one.file_meta.get("TransferSyntaxUID")
    if syntax and syntax not in UncompressedTransferSyntaxes:
        why += f" ({syntax.name}), or need: pip install 'pylibjpeg[all]'"
    with errors_as(why):
        return pixel_array(one, index=of.frame)


def _scale(plane: Voxels, fields: Any, notes: Counter[str]) -> None:
    """Scales stored numbers by the header, in place; inverts slices in which 0 is bright."""
    if fields.get("PhotometricInterpretation") == "MONOCHROME1":
        is_signed, bits = fields.get("PixelRepresentation") == 1, fields.get("BitsStored") or 16
        np.subtract(-1 if is_signed else (1 << bits) - 1, plane, out=plane)
        notes["slices of MONOCHROME1 were inverted"] += 1
    for name, apply in (("RescaleSlope", np.multiply), ("RescaleIntercept", np.add)):
        if (numbers := _numbers(fields, name)) is not None:
            apply(plane, numbers[0], out=plane)
        elif name in fields:
            notes[f"slices have an empty {name}, which changes nothing"] += 1


def _is_padding(stored: NDArray[Any], fields: Any) -> NDArray[np.bool_]:
    """Which pixels equal PixelPaddingValue, or lie between it and PixelPaddingRangeLimit."""
    half = 1 << ((fields.get("BitsAllocated") or 16) - 1)
    ends = [
        end - 2 * half if end >= half and fields.get("PixelRepresentation") == 1 else end
        for name in ("PixelPaddingValue", "PixelPaddingRangeLimit")
        for end in _numbers(fields, name) or ()
    ]
    return (stored >= min(ends, default=np.inf)) & (stored <= max(ends, default=-np.inf))
