import sys
from pathlib import Path

import pytest
from PIL import Image

from mdgan.errors import BadInput
from mdgan.report.build import write_report
from tests.unit.observe.fake_run import FakeRun


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return FakeRun(workers=2, iterations=5, sample_interval=5).write(tmp_path / "run")


def test_the_report_of_one_run_lies_in_its_folder(run: Path) -> None:
    report = write_report([run])
    assert report.path == run / "report.html"
    assert report.path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert report.num_figures == 6
    assert report.missing["scores"] == "no scores are recorded (mdgan evaluate adds some)"
    assert not report.running
    assert report.damage == ()


@pytest.mark.slow
def test_figures_are_also_files(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "figures"
    report = write_report([run], figures=folder)
    names = {path.stem for path in folder.iterdir()}
    assert len(names) > report.num_figures
    pictures = {name for name in names if name.startswith("samples-iteration-")}
    assert pictures == {"samples-iteration-5"}
    assert {path.name for path in folder.iterdir() if path.stem not in pictures} == {
        f"{name}.{ending}" for name in names - pictures for ending in ("png", "svg")
    }
    with Image.open(folder / "duration.png") as picture:
        assert picture.width == 800
    assert (folder / "losses.svg").read_bytes().startswith(b"<?xml")
    own = run / "samples" / "0000005.png"
    assert (folder / "samples-iteration-5.png").read_bytes() == own.read_bytes()


@pytest.mark.slow
def test_several_runs_are_told_apart_and_the_report_lies_here(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FakeRun(workers=0, iterations=5).write(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    report = write_report([run, other], figures=tmp_path / "figures")
    assert report.path == Path("report.html")
    assert (tmp_path / "report.html").exists()
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"timeline-2-workers.png", "timeline-one-iteration-standalone.svg"} <= names
    assert "losses.svg" in names


def test_a_folder_of_runs_stands_for_those_that_are_in_it(run: Path, tmp_path: Path) -> None:
    FakeRun(workers=0, iterations=5).write(tmp_path / "another")
    (tmp_path / "no run").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    report = write_report([tmp_path])
    assert report.path == tmp_path / "report.html"
    page = report.path.read_text(encoding="utf-8")
    assert "2 runs" in page
    assert [line[:10] for line in report.damage] == ["left out: "]
    assert str(tmp_path / "damaged" / "run.json") in report.damage[0]
    with pytest.raises(BadInput, match="not a run"):
        write_report([tmp_path / "no run"])
    for twice in ([tmp_path, run], [run, run / ".." / "run"]):
        with pytest.raises(BadInput, match="given twice"):
            write_report(twice)


@pytest.mark.slow
def test_the_page_of_a_run_under_way_is_read_again_by_the_browser(tmp_path: Path) -> None:
    going_on = FakeRun(workers=2, iterations=9, done=5, state="running").write(tmp_path / "run")
    report = write_report([going_on], refresh_seconds=7)
    assert report.running
    assert '<meta http-equiv="refresh" content="7">' in report.path.read_text(encoding="utf-8")
    page = write_report([going_on]).path.read_text(encoding="utf-8")
    assert 'http-equiv="refresh"' not in page


def test_a_place_that_cannot_be_written_is_named(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    page = tmp_path / "missing" / "page.html"
    with pytest.raises(BadInput, match="cannot write there") as caught:
        write_report([run], page)
    assert str(caught.value).startswith(f"-o {page}: ")
    with pytest.raises(BadInput, match=r"--figures .*: cannot write there"):
        write_report([run], figures=tmp_path / "file")


@pytest.mark.parametrize(
    ("library", "module"), [("matplotlib", "matplotlib.figure"), ("jinja2", "jinja2")]
)
def test_without_a_library_the_way_out_is_named(
    run: Path, library: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadInput) as caught:
        write_report([run])
    assert str(caught.value) == f"reports need {library}: pip install 'mdgan[plots]'"
