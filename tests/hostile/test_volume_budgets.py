"""Small volumes that claim to hold gigabytes are refused in one line."""

import gzip
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mdgan.samples.tensors.reading import fit, read_scan
from tests.hostile.measured import measured_anew


def zeros_of_nifti(folder: Path) -> None:
    """700³ voxels in 1.5 MB."""
    nibabel = pytest.importorskip("nibabel")
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.uint8)
    header.set_data_shape((700, 700, 700))
    header["vox_offset"] = 352
    with gzip.open(folder / "file.nii.gz", "wb", compresslevel=1) as file:
        file.write(header.binaryblock + bytes(4))
        for _ in range(700):
            file.write(bytes(700 * 700))


def extension_of_nifti(folder: Path) -> None:
    """64 voxels behind a gigabyte of something else."""
    nibabel = pytest.importorskip("nibabel")
    header = nibabel.Nifti1Header()
    header.set_data_shape((4, 4, 4))
    header["vox_offset"] = 352 + (1 << 30)
    with gzip.open(folder / "file.nii.gz", "wb", compresslevel=1) as file:
        file.write(header.binaryblock + b"\1\0\0\0" + struct.pack("<ii", (1 << 30) - 32, 6))
        for _ in range(64):
            file.write(bytes(1 << 24))


def hole_of_dicom(folder: Path) -> None:
    """A field of three gigabytes, which takes no room on the disk."""
    dicom(folder, 16, deflated=False)
    path = folder / "file" / "a.dcm"
    data, size = path.read_bytes(), 3 << 30
    head = data.index(b"\xe0\x7f\x10\x00OB")
    with path.open("wb") as file:
        file.write(data[:head] + b"\x11\x7f\x10\x00OB\0\0" + struct.pack("<I", size))
        file.truncate(head + 12 + size)


def dicom(folder: Path, side: int, *, deflated: bool, beside: int = 1 << 29) -> None:
    """A slice of some side; its file may be deflated as a whole, with many bytes beside it."""
    pydicom = pytest.importorskip("pydicom")
    syntax = pydicom.uid.DeflatedExplicitVRLittleEndian if deflated else pydicom.uid.RLELossless
    about, slice_ = pydicom.dataset.FileMetaDataset(), pydicom.dataset.Dataset()
    about.MediaStorageSOPClassUID = slice_.SOPClassUID = pydicom.uid.CTImageStorage
    about.MediaStorageSOPInstanceUID = slice_.SOPInstanceUID = "1.2.3"
    about.TransferSyntaxUID = syntax
    slice_.file_meta = about
    slice_.Rows = slice_.Columns = side
    slice_.BitsAllocated = slice_.BitsStored = 8
    slice_.HighBit, slice_.PixelRepresentation, slice_.SamplesPerPixel = 7, 0, 1
    slice_.PhotometricInterpretation = "MONOCHROME2"
    runs = b"\x81\x00" * (side * side // 128)
    frame = struct.pack("<16I", 1, 64, *[0] * 14) + runs
    slice_.PixelData = bytes(side * side) if deflated else pydicom.encaps.encapsulate([frame])
    slice_["PixelData"].VR = "OB"
    if deflated:
        slice_.add_new(0x00091010, "OB", bytes(beside))
    (folder / "file").mkdir()
    slice_.save_as(folder / "file" / "a.dcm", enforce_file_format=True)


READ_VOLUME = """
import sys
from pathlib import Path
from mdgan.samples.tensors.reading import fit, read_scan
try:
    fit(read_scan(Path(sys.argv[1])), (1, 8, 8, 8), None, spacing=None)
except ValueError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize(
    ("write", "name", "said"),
    [
        (zeros_of_nifti, "file.nii.gz", "700 × 700 × 700 voxels in"),
        pytest.param(
            *(extension_of_nifti, "file.nii.gz", "its voxels begin only at byte"),
            marks=pytest.mark.slow,
        ),
        (hole_of_dicom, "file", "content in"),
        pytest.param(
            *(lambda folder: dicom(folder, 16, deflated=True), "file", "is deflated as a whole"),
            marks=pytest.mark.slow,
        ),
        (lambda folder: dicom(folder, 10_240, deflated=False), "file", "10240 voxels in"),
    ],
    ids=["nifti", "nifti's extension", "dicom's hole", "deflated dicom", "dicom in runs"],
)
def test_a_volume_is_refused_by_its_header(
    tmp_path: Path, write: Callable[[Path], None], name: str, said: str
) -> None:
    write(tmp_path)
    ended = measured_anew(tmp_path, sys.executable, "-c", READ_VOLUME, name)
    assert ended.status == 1, ended
    assert said in ended.text
    assert "Traceback" not in ended.text
    assert ended.peak_mb < 1200


def test_a_volume_that_is_deflated_as_a_whole_is_refused(tmp_path: Path) -> None:
    dicom(tmp_path, 16, deflated=True, beside=1 << 10)
    with pytest.raises(ValueError, match="is deflated as a whole"):
        fit(read_scan(tmp_path / "file"), (1, 8, 8, 8), None, spacing=None)
