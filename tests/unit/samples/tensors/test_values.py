"""Voxels outside tissue, and NIfTI files whose headers are wrong."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from mdgan.samples.tensors.reading import Scan, fit, read_scan
from tests.unit.samples.tensors.test_reading import ramp, write_nifti

nibabel = pytest.importorskip("nibabel", reason="pip install 'mdgan[volumes]'")


def read(tmp_path: Path, voxels: np.ndarray) -> Scan:
    return read_scan(write_nifti(tmp_path / "a.nii.gz", voxels))


def ball(outside: float) -> np.ndarray:
    z, y, x = np.mgrid[-10:10, -10:10, -10:10]
    values = np.random.default_rng(0).normal(100, 10, (20, 20, 20))
    return np.where(x**2 + y**2 + z**2 < 80, values, outside).astype(np.float32)


@pytest.mark.parametrize("outside", [np.nan, np.inf, -np.inf])
def test_values_outside_of_a_mask_become_the_least(tmp_path: Path, outside: float) -> None:
    voxels = ball(outside)
    scan = read(tmp_path, voxels)
    true = np.isfinite(voxels)
    assert np.array_equal(scan.voxels[true], voxels[true])
    assert set(scan.voxels[~true].tolist()) == {float(voxels[true].min())}
    (note,) = [note for note in scan.notes if "NaN" in note]
    assert scan.notes[note] == int((~true).sum())


def test_nothing_but_nan_or_one_value(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds nothing but NaN"):
        read(tmp_path, np.full((4, 4, 4), np.nan, np.float32))
    path = write_nifti(tmp_path / "b.nii", np.full((4, 4, 4), 7, np.int16))
    with pytest.raises(ValueError, match="all voxels have the same value"):
        fit(read_scan(path), (1, 4, 4, 4), None, spacing=None)
    sparse = np.zeros((20, 20, 20), np.float32)
    sparse[0, 0, :3] = (0.5, 1.5, 2.5)
    with pytest.raises(ValueError, match="99 % of the voxels"):
        fit(read_scan(write_nifti(tmp_path / "c.nii", sparse)), (1, 4, 4, 4), None, spacing=None)


@pytest.mark.parametrize("padding", [(-4100,), (-2000,), (-3024,), (-32768,), (-4100, -2000)])
def test_padding_far_below_is_the_least_true_value(
    tmp_path: Path, padding: tuple[int, ...]
) -> None:
    voxels = np.random.default_rng(0).integers(-1000, 3000, (8, 9, 10), dtype=np.int16)
    voxels[0, 0, 0] = -1000
    padded = voxels.copy()
    for row, value in enumerate(padding):
        padded[:, row, :5] = value
    scan = read(tmp_path, padded)
    changed = padded < -1000
    assert np.array_equal(scan.voxels[~changed], voxels[~changed])
    assert set(scan.voxels[changed].tolist()) == {-1000}
    assert scan.notes["voxels of padding became the least true value"] == int(changed.sum())


@pytest.mark.parametrize(
    "background", [-1024, 0, -1], ids=["air around a body", "brain", "one below"]
)
def test_a_background_is_no_padding(tmp_path: Path, background: int) -> None:
    voxels = np.random.default_rng(0).integers(200, 900, (8, 9, 10), dtype=np.int16)
    voxels[:, :2] = background
    assert np.array_equal(read(tmp_path, voxels).voxels, voxels)


def test_wide_ranges_without_a_gap_are_no_padding(tmp_path: Path) -> None:
    voxels = np.linspace(-9000, 9000, 1000).reshape(10, 10, 10).astype(np.float32)
    assert np.array_equal(read(tmp_path, voxels).voxels, voxels)


def test_packed_files_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    packed = write_nifti(tmp_path / "a.nii.gz", ramp()).read_bytes()
    (tmp_path / "b.nii").write_bytes(packed)
    (tmp_path / "c.nii.gz").write_bytes(gzip.decompress(packed))
    for name in ("a.nii.gz", "b.nii", "c.nii.gz"):
        assert np.array_equal(read_scan(tmp_path / name).voxels, ramp())


def damaged(path: Path, at: int, new: bytes) -> None:
    data = bytearray(gzip.decompress(path.read_bytes()))
    data[at : at + len(new)] = new
    path.write_bytes(gzip.compress(bytes(data)))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("cut", [0.3, 0.6, 0.95])
def test_files_that_end_early(tmp_path: Path, packed: bool, cut: float) -> None:
    name = "a.nii.gz" if packed else "a.nii"
    voxels = np.random.default_rng(0).integers(0, 900, (8, 8, 8)).astype(np.int16)
    path = write_nifti(tmp_path / name, voxels)
    data = path.read_bytes()
    path.write_bytes(data[: int(cut * len(data))])
    with pytest.raises(ValueError, match=r"is no NIfTI|ends early|holds fewer voxels"):
        read_scan(path)


@pytest.mark.parametrize(
    ("at", "new", "why"),
    [
        (42, b"\xff\x00", "holds fewer voxels than its header says"),
        (42, b"\xff\xff", "NIfTI|sizes are"),
        (70, b"\xff\x7f", "its header is damaged"),
        (70, (128).to_bytes(2, "little"), r"colours \(RGB\)"),
        (70, (32).to_bytes(2, "little"), "complex numbers"),
        (112, np.array([1, np.inf], "<f4").tobytes(), "."),
        (344, b"abcd", "its header is damaged"),
    ],
)
def test_headers_that_do_not_fit(tmp_path: Path, at: int, new: bytes, why: str) -> None:
    path = write_nifti(tmp_path / "a.nii.gz", ramp())
    damaged(path, at, new)
    with pytest.raises(ValueError, match=why):
        read_scan(path)


def test_series_in_time_and_sizes_of_one(tmp_path: Path) -> None:
    many = np.stack([ramp().T, ramp().T + 500], -1)
    nibabel.save(nibabel.Nifti1Image(many, np.eye(4)), tmp_path / "a.nii")
    scan = read_scan(tmp_path / "a.nii")
    assert np.array_equal(scan.voxels, ramp())
    assert any("of which the first is taken" in note for note in scan.notes)
    nibabel.save(nibabel.Nifti1Image(many[..., :1, None], np.eye(4)), tmp_path / "b.nii")
    scan = read_scan(tmp_path / "b.nii")
    assert np.array_equal(scan.voxels, ramp())
    assert not +scan.notes
