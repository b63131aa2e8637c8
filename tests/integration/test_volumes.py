"""Runs on volumes in files: trained, shown, resumed; a patient's volumes stay together."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.processes import ended_well, run_here
from tests.unit.samples.tensors.test_reading import write_dicom, write_nifti

FLAGS = [
    *("train", "--dataset", "volumes", "--data-dir", "scans", "--partition", "iid"),
    *("--world-size", "3", "--transport", "memory", "--threads", "1", "--width", "2"),
    *("--batch-size", "2", "--eval-interval", "0", "--iterations", "4"),
]


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for patient in range(3):
        voxels = random.integers(0, 900, (8, 10, 9), dtype=np.int16)
        write_nifti(tmp_path / "scans" / f"p{patient}" / "a.nii.gz", voxels)
        write_dicom(tmp_path / "scans" / f"q{patient}", voxels, f"P{patient}", f"1.{patient}")
    return tmp_path


def test_from_scans_to_volumes(scans: Path) -> None:
    whole = run_here(*FLAGS, "--sample-interval", "4", "--out", "whole", cwd=scans)
    generator = ended_well(whole, scans / "whole", 4)
    with Image.open(scans / "whole" / "samples" / "0000004.png") as picture:
        assert picture.width > picture.height  # three slices side by side
    cut = run_here(*FLAGS, "--iterations", "2", "--out", "cut", cwd=scans)
    ended_well(cut, scans / "cut", 2)
    resumed = run_here("train", "--resume", "cut", "--iterations", "4", cwd=scans)
    assert ended_well(resumed, scans / "cut", 4) == generator
    done = run_here("sample", "whole", "-n", "3", cwd=scans)
    assert done.status == 0, done
    assert np.load(scans / "samples.npz")["images"].shape == (3, 1, 32, 32, 32)


def test_a_damaged_scan_is_named_and_left_out(scans: Path) -> None:
    (scans / "scans" / "p0" / "b.nii").write_bytes(b"no scan")
    ended = run_here(*FLAGS, "--out", "run", cwd=scans)
    ended_well(ended, scans / "run", 4)
    assert "b.nii" in ended.errors
    strict = run_here(*FLAGS, "--set", "strict_data=true", "--out", "strict", cwd=scans)
    assert strict.status == 2, strict
    assert "b.nii" in strict.errors


def test_what_was_done_to_scans_is_shown(scans: Path) -> None:
    (scans / "scans" / "p0" / "a_seg.nii.gz").write_bytes(b"mask")
    (scans / "scans" / "DICOMDIR").write_bytes(b"")
    (scans / "scans" / "q0" / "4.dcm").unlink()
    shown = run_here("datasets", "show", "volumes", "--data-dir", "scans", cwd=scans)
    assert shown.status == 0, shown
    assert "turned to the axes of the body: 3 in 3 volume(s), first q0" in shown.errors
    assert (
        "slices were interpolated, as some are missing or lie unevenly: 1 in 1 volume(s), first q0"
        in shown.errors
    )
    assert "skipped in scans: DICOMDIR: 1, first DICOMDIR; masks beside scans: 1" in shown.errors
