"""NIfTI files and DICOM series, written as scanners write them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mdgan.data import VolumesPartitioner
from mdgan.data.partition import partition
from mdgan.data.settings import parse_partition
from mdgan.errors import BadInput
from mdgan.samples.tensors.reading import fit, patient_of, read_dicom, read_nifti, read_scan

nibabel = pytest.importorskip("nibabel", reason="pip install 'mdgan[volumes]'")
pydicom = pytest.importorskip("pydicom", reason="pip install 'mdgan[volumes]'")


def ramp(depth: int = 6, height: int = 5, width: int = 4) -> np.ndarray:
    return np.arange(depth * height * width, dtype=np.int16).reshape(depth, height, width)


def write_nifti(path: Path, voxels: np.ndarray, spacing: tuple[float, ...] = (1, 1, 1)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    affine = np.diag([*spacing[::-1], 1.0])
    nibabel.save(nibabel.Nifti1Image(voxels.transpose(2, 1, 0), affine), path)
    return path


def write_dicom(
    folder: Path, voxels: np.ndarray, patient: str = "P7", series: str = "1.2.3"
) -> Path:
    """A slice in each file; their names are in another order than their places."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, picture in enumerate(voxels):
        meta = pydicom.dataset.FileMetaDataset()
        meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
        meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
        meta.MediaStorageSOPInstanceUID = f"{series}.{number + 1}"
        one = pydicom.dataset.Dataset()
        one.file_meta = meta
        one.SOPClassUID, one.SOPInstanceUID = meta.MediaStorageSOPClassUID, f"{series}.{number + 1}"
        one.SeriesInstanceUID, one.PatientID = series, patient
        one.Rows, one.Columns = picture.shape
        one.PixelSpacing, one.SliceThickness = [0.5, 0.7], 3
        one.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
        one.ImagePositionPatient = [0, 0, 2.5 * number]
        one.BitsAllocated = one.BitsStored = 16
        one.HighBit, one.PixelRepresentation, one.SamplesPerPixel = 15, 1, 1
        one.PhotometricInterpretation = "MONOCHROME2"
        one.RescaleSlope, one.RescaleIntercept = 2, -100
        one.PixelData = picture.astype("<i2").tobytes()
        one.save_as(folder / f"{len(voxels) - number}.dcm", enforce_file_format=True)
    return folder


def test_nifti(tmp_path: Path) -> None:
    scan = read_nifti(write_nifti(tmp_path / "a.nii.gz", ramp(), (3, 2, 1)))
    assert np.array_equal(scan.voxels, ramp())
    assert tuple(scan.spacing) == (3, 2, 1)


def test_dicom_slices_stand_in_the_order_of_their_places(tmp_path: Path) -> None:
    scan = read_dicom(write_dicom(tmp_path / "series", ramp()))
    assert np.array_equal(scan.voxels, 2 * ramp() - 100)
    assert tuple(scan.spacing) == (2.5, 0.5, 0.7)


def test_windows(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii", ramp(8, 8, 8))
    sample = fit(read_scan(path), (1, 8, 8, 8), (100, 300), spacing=None)
    expected = np.clip((ramp(8, 8, 8) - 100) / 100 - 1, -1, 1)
    assert sample.dtype == torch.float32
    assert np.allclose(sample[0].numpy(), expected, atol=1e-5)
    usual = fit(read_scan(path), (1, 8, 8, 8), None, spacing=None)
    assert float(usual.min()) == -1
    assert float(usual.max()) == 1


def test_spacing_is_kept_and_what_is_missing_is_empty(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii", np.full((4, 8, 8), 50, np.int16), (2, 1, 1))
    sample = fit(read_scan(path), (1, 16, 16, 16), (-50, 50), spacing=1.0)  # 8×8×8 mm in 16×16×16
    assert int((sample > 0).sum()) == 8**3
    assert bool((sample[0, 4:12, 4:12, 4:12] > 0).all())


def test_volumes_of_a_patient_go_to_one_worker(tmp_path: Path) -> None:
    for patient in range(5):
        for visit in range(3):
            write_nifti(tmp_path / f"sub-{patient}_ses-{visit}.nii", ramp())
    write_dicom(tmp_path / "x" / "one", ramp(), "P7", "1.1")
    write_dicom(tmp_path / "y" / "two", ramp(), "P7", "1.2")
    assert patient_of(tmp_path / "x" / "one") == "P7"

    class Source(VolumesPartitioner):
        shape = (1, 4, 4, 4)

    source = Source(tmp_path)
    assert len(source) == 17
    assert source.groups is not None
    assert len(set(source.groups.tolist())) == 6
    assert source.images(torch.tensor([0, 16])).shape == (2, 1, 4, 4, 4)
    parts = partition(source.labels, parse_partition("iid"), 3, 0, source.groups)
    assert torch.cat(parts).sort().values.tolist() == list(range(17))
    groups = [set(source.groups[part].tolist()) for part in parts]
    assert not groups[0] & groups[1]
    assert not groups[0] & groups[2]
    assert not groups[1] & groups[2]


@pytest.mark.parametrize("content", [b"", b"no scan"])
def test_damaged_files_are_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.nii"
    path.write_bytes(content)
    with pytest.raises((ValueError, OSError)):
        read_nifti(path)
    folder = tmp_path / "series"
    folder.mkdir()
    (folder / "1.dcm").write_bytes(content)
    with pytest.raises((ValueError, OSError, EOFError)):
        read_dicom(folder)


def test_two_series_in_a_folder_are_refused(tmp_path: Path) -> None:
    write_dicom(tmp_path / "s", ramp(2), series="1.1")
    write_dicom(tmp_path / "t", ramp(3), series="1.2")
    for path in (tmp_path / "t").iterdir():
        path.rename(tmp_path / "s" / f"t{path.name}")
    with pytest.raises(ValueError, match="holds 2 series"):
        read_dicom(tmp_path / "s")


def test_a_folder_without_volumes(tmp_path: Path) -> None:
    class Source(VolumesPartitioner):
        shape = (1, 4, 4, 4)

    with pytest.raises(BadInput, match="no volume in it; expected NIfTI files"):
        Source(tmp_path)
    with pytest.raises(BadInput, match="no such folder"):
        Source(tmp_path / "nowhere")
