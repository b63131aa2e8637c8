"""The same anatomy gives the same sample, however a scanner lays its axes."""

from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
import torch

from mdgan.samples.tensors.reading import fit, read_scan
from tests.unit.samples.tensors.test_reading import write_dicom

nibabel = pytest.importorskip("nibabel", reason="pip install 'mdgan[volumes]'")
pydicom = pytest.importorskip("pydicom", reason="pip install 'mdgan[volumes]'")

SHAPE = (1, 8, 8, 8)
STEPS = (1.0, 2.0, 3.0)


def anatomy() -> np.ndarray:
    """Of 16 × 20 × 24 voxels, to the right, to the front and upwards."""
    return np.random.default_rng(0).integers(0, 900, (16, 20, 24)).astype(np.int16)


def save(path: Path, voxels: np.ndarray, affine: np.ndarray) -> Path:
    nibabel.save(nibabel.Nifti1Image(voxels, affine), path)
    return path


def overwrite(path: Path, at: int, new: bytes) -> Path:
    """Changes a header; nibabel itself keeps its parts in step."""
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(data)
    return path


def test_nifti_of_every_orientation_is_one_sample(tmp_path: Path) -> None:
    voxels, affine = anatomy(), np.diag([*STEPS, 1.0])
    upright = save(tmp_path / "a.nii.gz", voxels, affine)
    wanted = fit(read_scan(upright), SHAPE, (0, 900), spacing=None)
    apart = fit(read_scan(upright), SHAPE, (0, 900), spacing=2.0)
    for order in permutations(range(3)):
        for signs in product((1, -1), repeat=3):
            way = np.array([[axis, sign] for axis, sign in zip(order, signs, strict=True)])
            moved = nibabel.orientations.apply_orientation(voxels, way)
            back = nibabel.orientations.inv_ornt_aff(way, voxels.shape)
            path = save(tmp_path / "b.nii.gz", moved, affine @ back)
            assert torch.equal(fit(read_scan(path), SHAPE, (0, 900), spacing=None), wanted)
            assert torch.equal(fit(read_scan(path), SHAPE, (0, 900), spacing=2.0), apart)


def test_an_oblique_scan_is_turned_to_the_closest_axes(tmp_path: Path) -> None:
    angle = np.radians(20)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    affine = turn @ np.diag([-2.0, 2.0, 2.0, 1.0])
    scan = read_scan(save(tmp_path / "a.nii", anatomy(), affine))
    assert np.array_equal(scan.voxels, anatomy()[::-1].transpose(2, 1, 0))


def test_nifti_without_an_orientation_stays_as_it_is(tmp_path: Path) -> None:
    path = save(tmp_path / "a.nii", anatomy(), np.diag([-1.0, 1, 1, 1]))
    overwrite(path, 252, bytes(4))  # the codes of both transforms
    scan = read_scan(path)
    assert np.array_equal(scan.voxels, anatomy().transpose(2, 1, 0))
    assert scan.notes["volumes say no orientation, and are taken as they are"] == 1


def test_spacing_is_that_of_the_affine_in_millimetres(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(anatomy(), np.diag([*STEPS, 1.0]))
    image.header.set_xyzt_units("micron")
    nibabel.save(image, tmp_path / "mouse.nii")
    assert read_scan(tmp_path / "mouse.nii").spacing == pytest.approx((0.003, 0.002, 0.001))
    image.header.set_xyzt_units("mm")
    nibabel.save(image, tmp_path / "two.nii")
    overwrite(tmp_path / "two.nii", 80, np.array([7, 7, 7], "<f4").tobytes())
    scan = read_scan(tmp_path / "two.nii")
    assert scan.spacing == pytest.approx((3, 2, 1))
    assert any("two orientations or spacings" in note for note in scan.notes)


@pytest.mark.parametrize("plane", ["axial", "coronal", "sagittal", "upside down"])
def test_dicom_lies_as_nifti_of_the_same_anatomy(tmp_path: Path, plane: str) -> None:
    voxels = anatomy()  # right, front, up
    nifti = save(tmp_path / "a.nii", voxels, np.diag([1.0, 2.0, 3.0, 1.0]))
    left_back_up = voxels[::-1, ::-1]
    planes = {
        "axial": ((2, 1, 0), [1, 0, 0, 0, 1, 0], [0, 0, 3], [2, 1]),
        "coronal": ((1, 2, 0), [1, 0, 0, 0, 0, 1], [0, 2, 0], [3, 1]),
        "sagittal": ((0, 2, 1), [0, 1, 0, 0, 0, 1], [1, 0, 0], [3, 2]),
        "upside down": ((2, 1, 0), [1, 0, 0, 0, 1, 0], [0, 0, -3], [2, 1]),
    }
    order, axes, step, spacing = planes[plane]
    stack = left_back_up.transpose(order)
    stack = stack[::-1] if plane == "upside down" else stack
    folder = write_dicom(tmp_path / "series", stack)
    for path in folder.iterdir():
        one = pydicom.dcmread(path)
        number = int(one.SOPInstanceUID.rpartition(".")[2]) - 1
        one.ImageOrientationPatient, one.PixelSpacing = axes, spacing
        one.ImagePositionPatient = [number * mm for mm in step]
        one.RescaleSlope, one.RescaleIntercept = 1, 0
        one.save_as(path)
    of_dicom, of_nifti = read_scan(folder), read_scan(nifti)
    assert np.array_equal(of_dicom.voxels, of_nifti.voxels)
    assert of_dicom.spacing == pytest.approx(of_nifti.spacing)


def test_axes_that_are_no_three_directions_are_told(tmp_path: Path) -> None:
    for name, row in (("a.nii", [0, 2, 2, 0]), ("b.nii", [0, 0, 0, 0]), ("c.nii", [np.nan] * 4)):
        path = save(tmp_path / name, anatomy(), np.diag([1.0, 2, 2, 1]))
        overwrite(path, 296, np.array([[0, 0, 0, 0], row], "<f4").tobytes())  # srow_y, srow_z
        with pytest.raises(ValueError, match="no three directions"):
            read_scan(path)


def test_axes_that_are_not_at_right_angles_are_told(tmp_path: Path) -> None:
    affine = np.diag([2.0, 2.0, 2.0, 1.0])
    affine[0, 1] = 0.5
    (note,) = read_scan(save(tmp_path / "a.nii", anatomy(), affine)).notes
    assert note == "volumes lean, as their axes are not at right angles, and are taken as upright"


@pytest.mark.parametrize("axis", range(3))
def test_a_single_slice_is_told(tmp_path: Path, axis: int) -> None:
    flat = anatomy().take([3], axis)
    (note,) = read_scan(save(tmp_path / "a.nii", flat, np.eye(4))).notes
    assert note == "volumes of a single slice, which fills all others"
