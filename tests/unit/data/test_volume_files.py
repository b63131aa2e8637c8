"""Which files of a folder are volumes, and what messages say about all others."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from mdgan.data import VolumesPartitioner
from mdgan.data.partition import partition
from mdgan.data.readable import readable
from mdgan.data.settings import parse_partition
from mdgan.errors import BadInput, warn_once
from tests.unit.samples.tensors.test_reading import ramp, write_dicom, write_nifti

pytest.importorskip("nibabel", reason="pip install 'mdgan[volumes]'")
pytest.importorskip("pydicom", reason="pip install 'mdgan[volumes]'")


class Source(VolumesPartitioner):
    shape = (1, 4, 4, 4)


def told(folder: Path, caplog: pytest.LogCaptureFixture) -> str:
    warn_once.cache_clear()
    with caplog.at_level(logging.INFO, "mdgan"):
        readable(Source(folder), folder, strict=False)
    return "\n".join(caplog.messages)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("DICOMDIR", "DICOMDIR: 1, first DICOMDIR"),
        ("notes.TXT", ".txt: 1, first notes.TXT"),
        ("below/scan.nrrd", ".nrrd: 1, first below/scan.nrrd"),
        ("1.2.840.7", "files without an ending: 1, first 1.2.840.7"),
        ("LICENSE", "files without an ending: 1, first LICENSE"),
        ("a_seg.nii.gz", "masks beside scans: 1, first a_seg.nii.gz"),
        ("sub-1_space-T1w_dseg.nii.gz", "masks beside scans: 1"),
        ("Brain-Mask.nii", "masks beside scans: 1"),
        ("labelsTr/liver_1.nii.gz", "masks beside scans: 1"),
    ],
)
def test_what_is_skipped_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, kind: str
) -> None:
    write_nifti(tmp_path / "a.nii.gz", ramp())
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(bytes(128) + b"DICM" if "DICOM" in name else b"text")
    assert Source(tmp_path).paths == [tmp_path / "a.nii.gz"]
    assert f"skipped in {tmp_path}: {kind}" in told(tmp_path, caplog)


def test_links_that_lead_nowhere_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_nifti(tmp_path / "scans" / "a.nii.gz", ramp())
    (tmp_path / "scans" / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "scans" / "folder").symlink_to(tmp_path)
    text = told(tmp_path / "scans", caplog)
    assert "links to folders: 1, first folder; links to nothing: 1, first gone" in text


def test_masks_alone_are_volumes(tmp_path: Path) -> None:
    write_nifti(tmp_path / "a_seg.nii.gz", ramp())
    assert len(Source(tmp_path)) == 1


def test_names_that_only_sound_like_masks_are_volumes(tmp_path: Path) -> None:
    for name in ("unmasked.nii", "segal_T1w.nii", "heuroi.nii", "masked/p1.nii", "label_T1.nii"):
        write_nifti(tmp_path / name, ramp())
    assert len(Source(tmp_path)) == 5


def test_a_folder_of_others_alone_is_refused_with_their_kinds(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.mha").write_bytes(b"scan")
    with pytest.raises(BadInput, match=r"no volume in it, but \.mha: 3, first 0\.mha; expected"):
        Source(tmp_path)


def test_dicom_without_an_ending_is_found(tmp_path: Path) -> None:
    for number, path in enumerate(write_dicom(tmp_path / "a" / "b", ramp()).iterdir()):
        path.rename(path.with_name(f"IM{number:04}"))
    assert Source(tmp_path).paths == [tmp_path / "a" / "b"]


def test_volumes_are_known_by_the_bytes_of_their_files(tmp_path: Path) -> None:
    """So they are the same in an account of privacy, whatever the size of samples."""
    nifti = write_nifti(tmp_path / "a.nii.gz", ramp())
    series = write_dicom(tmp_path / "b", ramp())
    slices = b"".join(path.read_bytes() for path in sorted(series.iterdir()))
    known = Source(tmp_path).contents(torch.arange(2))
    assert known == [nifti.read_bytes(), slices]


def test_files_of_machines_are_no_volumes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.nii", "@eaDir/a.nii", "__MACOSX/a.nii", ".Trash/a.nii", "._b.nii"):
        write_nifti(tmp_path / name, ramp())
    assert Source(tmp_path).paths == [tmp_path / "a.nii"]


def test_what_was_done_is_said_once_for_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    holes = ramp(8, 8, 8).astype(np.float32)
    holes[:2] = np.nan
    for name in "abc":
        write_nifti(tmp_path / f"{name}.nii.gz", holes)
    write_dicom(tmp_path / "series", ramp())
    text = told(tmp_path, caplog)
    assert "NaN or infinite voxels became the least value: 384 in 3 volume(s), first a.nii.gz" in (
        text
    )
    assert "volumes were turned to the axes of the body: 1 in 1 volume(s), first series" in text
    assert text.count("NaN") == 1


def test_a_volume_that_breaks_later_is_named(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii", ramp())
    source = Source(tmp_path)
    path.write_bytes(b"no scan")
    with pytest.raises(BadInput, match=r"a\.nii: cannot read this volume \(is no NIfTI file\)"):
        source.images(torch.tensor([0]))


@pytest.mark.parametrize("ending", [".mha", ".nrrd", ".mgz", ".hdr"])
def test_few_volumes_beside_many_of_other_formats_are_refused(tmp_path: Path, ending: str) -> None:
    write_nifti(tmp_path / "a.nii.gz", ramp())
    for number in range(2):
        (tmp_path / f"{number}{ending}").write_bytes(b"scan")
    why = rf"most of it cannot be read: \{ending}: 2, first 0\{ending}; 1 would be left; save them"
    with pytest.raises(BadInput, match=why):
        Source(tmp_path)


def test_volumes_of_which_most_cannot_be_read_are_refused(tmp_path: Path) -> None:
    write_nifti(tmp_path / "a.nii.gz", ramp())
    for name in "bc":
        (tmp_path / f"{name}.nii.gz").write_bytes(b"no scan")
    with pytest.raises(BadInput, match=r"most of it is no use: 2 of 3 samples .* first b\.nii\.gz"):
        readable(Source(tmp_path), tmp_path, strict=False)


@pytest.mark.parametrize("mask", ["patient1_gt", "sub-1_T1w_brainmask", "x.GT"])
def test_further_names_of_masks(tmp_path: Path, mask: str) -> None:
    for name in ("scan", "weight", mask):
        write_nifti(tmp_path / f"{name}.nii.gz", ramp())
    assert [path.name for path in Source(tmp_path).paths] == ["scan.nii.gz", "weight.nii.gz"]


def test_volumes_are_known_again_by_all_their_voxels_alone(tmp_path: Path) -> None:
    """Not by the names of slices or what else lies there; an edit in the middle counts."""
    voxels = ramp(6, 100, 90)
    for name in ("first", "second"):
        write_nifti(tmp_path / name / "a.nii", voxels)
        write_dicom(tmp_path / name / "series", voxels)
    (tmp_path / "second/series/notes.txt").write_text("said by somebody")
    for path in [*(tmp_path / "second/series").glob("*.dcm")]:
        path.rename(path.with_name(f"{90 - int(path.stem)}.dcm"))
    first, second = (Source(tmp_path / name) for name in ("first", "second"))
    both = torch.arange(2)
    assert first.quick_contents(both) == second.quick_contents(both)
    voxels[3, 50, 45] += 1
    write_nifti(tmp_path / "second/a.nii", voxels)
    write_dicom(tmp_path / "second/series", voxels)
    for before, now in zip(first.quick_contents(both), second.quick_contents(both), strict=True):
        assert before != now


def test_what_lies_in_one_folder_is_one_patients_where_too_few_are_divided(tmp_path: Path) -> None:
    for name in "abc":
        write_nifti(tmp_path / f"{name}.nii", ramp())
    source = Source(tmp_path)
    why = "2 workers but only 1 person.s., to whom all 3 samples belong"
    with pytest.raises(BadInput, match=why):
        partition(source.labels, parse_partition("iid"), 2, seed=1, groups=source.groups)


def test_a_series_in_the_folder_itself_has_a_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_dicom(tmp_path / "scan", ramp())
    assert f"first {tmp_path / 'scan'}" in told(tmp_path / "scan", caplog)
