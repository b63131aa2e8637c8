"""DICOM series as scanners, archives and people write them."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mdgan.samples.tensors.reading import Scan, patient_of, read_dicom
from tests.unit.samples.tensors.test_reading import ramp, write_dicom

pydicom = pytest.importorskip("pydicom", reason="pip install 'mdgan[volumes]'")

STEP_MM = 2.5


def series(folder: Path, slices: int = 8) -> list[Path]:
    """The files of a series, in the order of their places."""
    files = write_dicom(folder, ramp(slices)).iterdir()
    return sorted(files, key=lambda path: -int(path.stem))


def edit(path: Path, change: Callable[[Any], None]) -> None:
    one = pydicom.dcmread(path)
    change(one)
    one.save_as(path)


def set_fields(**values: Any) -> Callable[[Any], None]:
    def change(one: Any) -> None:
        for name, value in values.items():
            if value is None:
                delattr(one, name)
            else:
                setattr(one, name, value)

    return change


def invert(one: Any) -> None:
    stored = one.pixel_array
    one.PixelData = (ramp().max() - stored).astype("<i2").tobytes()
    one.PhotometricInterpretation = "MONOCHROME1"


def said(scan: Scan) -> str:
    return "; ".join(f"{number} {note}" for note, number in (+scan.notes).items())


def test_monochrome1_is_inverted(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a", ramp())
    write_dicom(tmp_path / "b", ramp())
    for path in (tmp_path / "b").iterdir():
        edit(path, invert)
    plain, inverted = read_dicom(tmp_path / "a"), read_dicom(tmp_path / "b")
    assert len(np.unique(plain.voxels - inverted.voxels)) == 1
    assert "6 slices of MONOCHROME1 were inverted" in said(inverted)


def test_unsigned_monochrome1_keeps_its_range(tmp_path: Path) -> None:
    files = series(tmp_path / "s")
    for path in files:
        edit(path, set_fields(PixelRepresentation=0, BitsStored=12, HighBit=11))
        edit(path, set_fields(PhotometricInterpretation="MONOCHROME1"))
        edit(path, set_fields(RescaleSlope=1, RescaleIntercept=0))
    assert np.array_equal(read_dicom(tmp_path / "s").voxels, 4095 - ramp(8))


@pytest.mark.parametrize("name", ["RescaleSlope", "RescaleIntercept"])
def test_an_empty_rescale_changes_nothing(tmp_path: Path, name: str) -> None:
    for path in series(tmp_path / "s", 6):
        edit(path, set_fields(**{name: ""}))
    scan = read_dicom(tmp_path / "s")
    wanted = ramp() - 100 if name == "RescaleSlope" else 2 * ramp()
    assert np.array_equal(scan.voxels, wanted)
    assert f"6 slices have an empty {name}" in said(scan)


def test_slopes_of_slices_differ(tmp_path: Path) -> None:
    for number, path in enumerate(series(tmp_path / "s", 6)):
        edit(path, set_fields(RescaleSlope=number + 1, RescaleIntercept=-number))
    slopes = np.arange(1, 7)[:, None, None]
    assert np.array_equal(read_dicom(tmp_path / "s").voxels, ramp() * slopes - (slopes - 1))


def raw_text(name: str, text: bytes) -> Callable[[Any], None]:
    def change(one: Any) -> None:
        tag = pydicom.tag.Tag(pydicom.datadict.tag_for_keyword(name))
        raw = pydicom.dataelem.RawDataElement(tag, "DS", len(text), text, 0, False, True)
        one._dict[tag] = raw

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (set_fields(RescaleSlope=0), "3.dcm has a RescaleSlope of 0"),
        (set_fields(ModalityLUTSequence=[pydicom.Dataset()]), "3.dcm has a table of values"),
        (raw_text("RescaleSlope", b"one "), "3.dcm has a RescaleSlope that is no number"),
        (raw_text("PixelSpacing", b"a\\b "), "3.dcm has a PixelSpacing that is no number"),
        (raw_text("RescaleIntercept", b"nan "), "3.dcm has a RescaleIntercept that is no number"),
        (set_fields(PhotometricInterpretation="RGB"), "3.dcm is in colour"),
        (set_fields(PhotometricInterpretation="YBR_FULL_422"), "3.dcm is in colour"),
        (set_fields(PhotometricInterpretation="PALETTE COLOR"), "3.dcm is in colour"),
        (set_fields(SeriesInstanceUID="9.9"), "holds 2 series; give each a folder"),
        (set_fields(PatientID="P8"), "holds 2 patients; give each a folder"),
        (set_fields(PixelData=b"\0\0"), "the pixels of 3.dcm are not what its header says"),
        (set_fields(ImagePositionPatient=[0, 0, 0]), "3.dcm and 8.dcm are different pictures"),
        (set_fields(ImagePositionPatient=[0, 0, 90]), "slices are missing: 72.5 lie"),
        (set_fields(NumberOfFrames=12), "3.dcm has 12 frames, and does not say where they lie"),
    ],
)
def test_a_slice_that_does_not_fit_is_named(
    tmp_path: Path, change: Callable[[Any], None], why: str
) -> None:
    series(tmp_path / "s")
    edit(tmp_path / "s" / "3.dcm", change)
    with pytest.raises(ValueError, match=why):
        read_dicom(tmp_path / "s")


def test_spacing_that_is_missing_is_told(tmp_path: Path) -> None:
    for path in series(tmp_path / "s"):
        edit(path, set_fields(PixelSpacing="", SliceThickness=""))
    scan = read_dicom(tmp_path / "s")
    assert scan.spacing == (STEP_MM, 1, 1)
    assert "lack a distance" in said(scan)


def test_without_places_slices_follow_by_number_and_lie_as_thick_as_they_are(
    tmp_path: Path,
) -> None:
    for number, path in enumerate(series(tmp_path / "s")):
        edit(path, set_fields(ImagePositionPatient=None, InstanceNumber=number + 1))
    scan = read_dicom(tmp_path / "s")
    assert np.array_equal(scan.voxels, 2 * ramp(8) - 100)
    assert scan.spacing == (3, 0.5, 0.7)
    assert scan.axes is None


def test_a_missing_slice_is_interpolated_by_its_place(tmp_path: Path) -> None:
    files = series(tmp_path / "s", 9)
    files[4].unlink()
    files[5].unlink()
    scan = read_dicom(tmp_path / "s")
    assert np.allclose(scan.voxels, 2 * ramp(9) - 100)
    assert scan.spacing == (STEP_MM, 0.5, 0.7)
    assert "2 slices were interpolated" in said(scan)


def test_uneven_places_are_resampled(tmp_path: Path) -> None:
    places = [0, 1, 2, 3, 4, 6, 8, 10]
    for place, path in zip(places, series(tmp_path / "s"), strict=True):
        edit(path, set_fields(ImagePositionPatient=[0, 0, place]))
        flat = np.full((5, 4), place, "<i2")
        edit(path, set_fields(PixelData=flat.tobytes(), RescaleSlope=1, RescaleIntercept=0))
    assert read_dicom(tmp_path / "s").voxels[:, 0, 0].tolist() == list(range(11))


def test_copies_are_left_out(tmp_path: Path) -> None:
    files = series(tmp_path / "s")
    (tmp_path / "s" / "copy of 3.dcm").write_bytes(files[3].read_bytes())
    scan = read_dicom(tmp_path / "s")
    assert np.array_equal(scan.voxels, 2 * ramp(8) - 100)
    assert "1 copies of slices left out" in said(scan)


@pytest.mark.parametrize(
    "change",
    [
        set_fields(ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"], SeriesInstanceUID="7.7"),
        set_fields(ImageOrientationPatient=[0, 1, 0, 0, 0, -1]),
        set_fields(Rows=4, Columns=5),
        set_fields(PixelSpacing=[3, 3]),
        set_fields(ImagePositionPatient=None),
        set_fields(Modality="SEG", SeriesInstanceUID="7.7"),
        set_fields(Rows=None, Columns=None, PixelData=None),
    ],
)
def test_foreign_slices_are_left_out_and_counted(
    tmp_path: Path, change: Callable[[Any], None]
) -> None:
    files = series(tmp_path / "s")
    (tmp_path / "s" / "x.dcm").write_bytes(files[0].read_bytes())
    edit(tmp_path / "s" / "x.dcm", change)
    scan = read_dicom(tmp_path / "s")
    assert np.array_equal(scan.voxels, 2 * ramp(8) - 100)
    assert "1 " in said(scan)
    assert "left out" in said(scan)


@pytest.mark.parametrize("kind", ["LOCALIZER", "MOSAIC"])
def test_pictures_that_are_no_slices_are_told(tmp_path: Path, kind: str) -> None:
    for path in series(tmp_path / "s"):
        edit(path, set_fields(ImageType=["ORIGINAL", "PRIMARY", kind]))
    with pytest.raises(ValueError, match=kind.lower()):
        read_dicom(tmp_path / "s")


def test_a_slice_without_the_scale_of_others_is_left_out(tmp_path: Path) -> None:
    edit(series(tmp_path / "s")[3], set_fields(RescaleSlope=None, RescaleIntercept=None))
    scan = read_dicom(tmp_path / "s")
    assert np.allclose(scan.voxels, 2 * ramp(8) - 100)
    assert "1 slices were interpolated" in said(scan)


def test_slices_of_a_tilted_gantry_are_told(tmp_path: Path) -> None:
    for number, path in enumerate(series(tmp_path / "s")):
        edit(path, set_fields(ImagePositionPatient=[0, 0.9 * number, STEP_MM * number]))
    assert "stacks lean" in said(read_dicom(tmp_path / "s"))


def test_two_stacks_in_a_series_are_told(tmp_path: Path) -> None:
    for path in series(tmp_path / "s")[:4]:
        edit(path, set_fields(ImageOrientationPatient=[0, 1, 0, 0, 0, -1]))
    with pytest.raises(ValueError, match="2 different sizes or directions"):
        read_dicom(tmp_path / "s")


@pytest.mark.parametrize("ending", ["", ".img", ".IMA", ".1", ".dcm"])
def test_files_are_known_by_their_first_bytes(tmp_path: Path, ending: str) -> None:
    for number, path in enumerate(series(tmp_path / "s")):
        path.rename(path.with_name(f"1.2.840.{number}{ending}" if ending else f"IM{number:04}"))
    (tmp_path / "s" / "DICOMDIR").write_bytes(bytes(128) + b"DICM")
    (tmp_path / "s" / "README").write_text("no scan")
    assert np.array_equal(read_dicom(tmp_path / "s").voxels, 2 * ramp(8) - 100)
    assert patient_of(tmp_path / "s") == "P7"


def enhanced(path: Path, *, are_placed: bool = True) -> None:
    """A file of 12 frames, whose order is not that of their places."""
    (one_file,) = write_dicom(path.parent, ramp(1)).iterdir()
    one = pydicom.dcmread(one_file)
    one_file.unlink()
    del one.ImageOrientationPatient, one.ImagePositionPatient, one.PixelSpacing
    del one.RescaleSlope, one.RescaleIntercept
    one.NumberOfFrames = 12
    one.PixelData = ramp(12)[::-1].astype("<i2").tobytes()
    shared, frames = pydicom.Dataset(), []
    measures, lies, values = pydicom.Dataset(), pydicom.Dataset(), pydicom.Dataset()
    measures.PixelSpacing, lies.ImageOrientationPatient = [0.5, 0.7], [1, 0, 0, 0, 1, 0]
    values.RescaleSlope, values.RescaleIntercept = 2, -100
    shared.PixelMeasuresSequence, shared.PlaneOrientationSequence = [measures], [lies]
    shared.PixelValueTransformationSequence = [values]
    for number in range(12):
        frame, plane = pydicom.Dataset(), pydicom.Dataset()
        plane.ImagePositionPatient = [0, 0, STEP_MM * (12 - number)]
        if are_placed:
            frame.PlanePositionSequence = [plane]
        frames.append(frame)
    one.SharedFunctionalGroupsSequence, one.PerFrameFunctionalGroupsSequence = [shared], frames
    one.save_as(path)


def test_frames_become_slices_by_their_places(tmp_path: Path) -> None:
    enhanced(tmp_path / "s" / "x")
    scan = read_dicom(tmp_path / "s")
    assert np.array_equal(scan.voxels, 2 * ramp(12) - 100)
    assert scan.spacing == (STEP_MM, 0.5, 0.7)
    enhanced(tmp_path / "t" / "x", are_placed=False)
    with pytest.raises(ValueError, match="x has 12 frames, and does not say where they lie"):
        read_dicom(tmp_path / "t")


@pytest.mark.parametrize("stored", [-2000, 63536])
def test_padding_that_the_header_names(tmp_path: Path, stored: int) -> None:
    for path in series(tmp_path / "s"):
        one = pydicom.dcmread(path)
        picture = one.pixel_array.copy()
        picture[0, 0] = -2000
        one.PixelData = picture.astype("<i2").tobytes()
        one.add_new("PixelPaddingValue", "SS" if stored < 0 else "US", stored)
        one.save_as(path)
    scan = read_dicom(tmp_path / "s")
    assert float(scan.voxels.min()) == -98
    assert float(scan.voxels[3, 0, 0]) == -98
    assert "8 voxels of padding" in said(scan)


def test_padding_between_values_is_no_value(tmp_path: Path) -> None:
    for path in series(tmp_path / "s"):
        one = pydicom.dcmread(path)
        one.add_new("PixelPaddingValue", "SS", 40)
        one.add_new("PixelPaddingRangeLimit", "SS", 42)
        one.save_as(path)
    voxels = read_dicom(tmp_path / "s").voxels
    assert [float(value) for value in voxels[2, 0, :3]] == [-100, -100, -100]
    assert float(voxels[2, 0, 3]) == 2 * 43 - 100


def test_padding_close_below_all_others_stays(tmp_path: Path) -> None:
    for path in series(tmp_path / "s"):
        edit(path, lambda one: one.add_new("PixelPaddingValue", "SS", 0))
    assert np.array_equal(read_dicom(tmp_path / "s").voxels, 2 * ramp(8) - 100)


@pytest.mark.parametrize(
    ("syntax", "name"),
    [
        ("1.2.840.10008.1.2.4.80", "JPEG-LS Lossless"),
        ("1.2.840.10008.1.2.4.70", "JPEG Lossless"),
        ("1.2.840.10008.1.2.4.100", "MPEG2"),
    ],
)
def test_a_compression_that_nothing_reads_is_named(tmp_path: Path, syntax: str, name: str) -> None:
    for path in series(tmp_path / "s"):
        one = pydicom.dcmread(path)
        one.file_meta.TransferSyntaxUID = pydicom.uid.UID(syntax)
        one.PixelData = pydicom.encaps.encapsulate([b"\0\0"])
        one["PixelData"].is_undefined_length = True
        one.save_as(path)
    from pydicom.pixels.decoders.base import get_decoder

    if name != "MPEG2" and get_decoder(pydicom.uid.UID(syntax)).is_available:
        name = "the pixels of"
    with pytest.raises(ValueError, match=name):
        read_dicom(tmp_path / "s")


def test_syntaxes_that_pydicom_reads(tmp_path: Path) -> None:
    plain = 2 * ramp(8) - 100
    for path in series(tmp_path / "rle"):
        one = pydicom.dcmread(path)
        one.compress(pydicom.uid.RLELossless)
        one.save_as(path)
    assert np.array_equal(read_dicom(tmp_path / "rle").voxels, plain)
    for path in series(tmp_path / "big"):
        one = pydicom.dcmread(path)
        one.PixelData = one.pixel_array.astype(">i2").tobytes()
        one.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRBigEndian
        written = io.BytesIO()
        pydicom.dcmwrite(written, one, little_endian=False, implicit_vr=False)
        path.write_bytes(written.getvalue())
    assert np.array_equal(read_dicom(tmp_path / "big").voxels, plain)


def test_a_file_that_ends_early_is_named(tmp_path: Path) -> None:
    files = series(tmp_path / "s")
    files[2].write_bytes(files[2].read_bytes()[:-7])
    with pytest.raises(ValueError, match=r"6\.dcm"):
        read_dicom(tmp_path / "s")


def test_values_in_the_upper_bits_are_refused_by_file(tmp_path: Path) -> None:
    edit(series(tmp_path / "s")[3], set_fields(BitsStored=12, HighBit=15))
    with pytest.raises(ValueError, match=r"\.dcm has its values in the upper bits \(HighBit\)"):
        read_dicom(tmp_path / "s")
