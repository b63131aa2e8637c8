"""Another user has made the run's folder, and its files are not what they seem to be."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mdgan.records.rows import json_object
from mdgan.records.run_directory import RunDirectory
from tests.claims.registry import claim
from tests.processes import Finished, run, run_here
from tests.unit.observe.fake_run import FakeRun

CONTROLS = [
    chr(number)
    for number in (*range(0x20), 0x7F, *range(0x80, 0xA0))
    if chr(number) not in "\t\n\r"
]
KINDS = {"a pipe": os.mkfifo, "a device": lambda path: path.symlink_to("/dev/zero")}
LEFT_OUT = (
    *("trace/host-1.jsonl", "metrics.jsonl", "audit.json", "figures.json"),
    *("neighbours.png", "samples/0000060.png"),
)
LOOKS = (["report"], ["watch"], ["trace"])


def put(folder: Path, name: str, kind: str) -> None:
    """Replaces a file by something else."""
    (folder / name).unlink(missing_ok=True)
    KINDS[kind](folder / name)


def looked_at(folder: Path, *command: str) -> Finished:
    """What a command says of a folder, if it comes to an end at all."""
    ended = run(*command, folder.name, cwd=folder.parent, timeout=300)
    assert "Traceback" not in ended.errors, ended
    return ended


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_left_out(tmp_path: Path, kind: str) -> None:
    folder = FakeRun(workers=2).write(tmp_path / "run")
    for name in LEFT_OUT:
        put(folder, name, kind)
    for command in LOOKS:
        ended = looked_at(folder, *command)
        assert ended.status == 0, ended
        if command != ["watch"]:
            assert "host-1.jsonl: is no regular file, and is left out" in ended.errors


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["config.json", "run.json", "generator.safetensors"])
def test_what_is_needed_and_no_file_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    folder = FakeRun(workers=2).write(tmp_path / "run")
    put(folder, name, kind)
    commands = [["sample"]] if name == "generator.safetensors" else [*LOOKS, ["evaluate"]]
    for command in commands:
        ended = looked_at(folder, *command)
        assert ended.status == 2, ended
        assert ended.errors.count("mdgan: ") == 1, ended


SECRET = {"auths": {"registry": {"auth": "c2VjcmV0"}}}


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "run.json", "metrics.jsonl", "audit.json", "figures.json"),
        *("neighbours.png", "samples/0000060.png", "samples", "audit", "trace"),
        "trace/host-1.jsonl",
    ],
)
@claim("foreign-folder", "report and trace follow no link out of it but git-annex's.")
def test_a_page_shows_no_file_to_which_a_link_of_a_stranger_leads(
    tmp_path: Path, name: str
) -> None:
    folder, mine = FakeRun(workers=2).write(tmp_path / "run"), tmp_path / "mine"
    (folder / "audit").mkdir(exist_ok=True)
    if (folder / name).exists():
        (folder / name).rename(mine)
    else:
        mine.write_text(json.dumps(SECRET))
    (folder / name).symlink_to(mine)
    for command in (["report"], ["trace"]):
        ended = run_here(*command, "run", cwd=tmp_path)
        assert ended.status == 2, ended
        assert f"mdgan: run/{name}: leads out of the run's folder, to {mine}; if" in ended.errors
    assert not list(tmp_path.rglob("*.html"))


@claim("foreign-folder", "report and trace follow no link out of it but git-annex's.")
@pytest.mark.parametrize("place", ["annex", "other/.git/annex/objects"])
def test_a_link_into_another_annex_is_refused(tmp_path: Path, place: str) -> None:
    folder = FakeRun(workers=2).write(tmp_path / "run")
    (elsewhere := tmp_path / place).mkdir(parents=True)
    (folder / "neighbours.png").unlink(missing_ok=True)
    (elsewhere / "scan.png").write_bytes(b"private")
    (folder / "neighbours.png").symlink_to(elsewhere / "scan.png")
    ended = looked_at(folder, "report")
    assert ended.status == 2, ended
    assert "leads out of the run's folder" in ended.errors


def test_links_within_a_folder_and_into_an_annex_are_followed(tmp_path: Path) -> None:
    folder = FakeRun(workers=2).write(tmp_path / "run")
    (annex := tmp_path / ".git" / "annex" / "objects").mkdir(parents=True)
    (folder / "config.json").rename(annex / "SHA256E-s9--ab.json")
    (folder / "config.json").symlink_to("../.git/annex/objects/SHA256E-s9--ab.json")
    (folder / "metrics.jsonl").rename(folder / "rows.jsonl")
    (folder / "metrics.jsonl").symlink_to("rows.jsonl")
    (tmp_path / "linked").symlink_to("run")
    for place in ("run", "linked"):
        assert run_here("report", place, cwd=tmp_path).status == 0


@claim("foreign-folder", "report, watch and trace run nothing of a folder")
def test_a_file_without_end_is_left_out(tmp_path: Path) -> None:
    """It takes no room on the disk, and would fill the reader's memory."""
    folder = FakeRun(workers=2).write(tmp_path / "run")
    for name in LEFT_OUT:
        with (folder / name).open("wb") as file:
            file.truncate(1 << 40)
    for command in LOOKS:
        assert looked_at(folder, *command).status == 0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-32"])
def test_no_control_passes(encoding: str) -> None:
    texts = {"escaped": "".join(CONTROLS), "short": '"\b\f', "raw": "\x7f\x9b\x85"}
    written = {name: json.dumps(text, ensure_ascii=name != "raw") for name, text in texts.items()}
    for text in written.values():
        try:
            read = json_object(f'{{"name": {text}}}'.encode(encoding))
        except ValueError:
            continue  # another encoding than UTF-8 is not JSON
        assert not set(CONTROLS) & set(read["name"])


def test_controls_in_records_harm_no_reader(tmp_path: Path) -> None:
    folder = FakeRun(workers=2, lost={2: 30}).write(tmp_path / "a\x1b[2J\x9b")
    marked = "a\b\f\x1b[2J\x9b2Jb"

    def spoil(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: spoil(each) for name, each in value.items()}
        return [spoil(each) for each in value] if isinstance(value, list) else value

    config, status = RunDirectory(folder).read_config(), RunDirectory(folder).read_status()
    (folder / "config.json").write_text(json.dumps({**config, "dataset": marked, marked: marked}))
    (folder / "run.json").write_text(
        json.dumps({**status, "machine": marked, "system": {marked: marked}})
    )
    with (folder / "metrics.jsonl").open("a") as file:
        for row in (
            {"event": "unsaved", "iteration": 60, "reason": marked},
            {"event": "lost", "iteration": 60, "workers": [1], "reason": marked},
            {"event": "scores", "iteration": 60, "scores": {marked: 1.0}, "warnings": [marked]},
        ):
            file.write(json.dumps(row) + "\n")
    for command in LOOKS:
        ended = run_here(*command, folder.name, cwd=tmp_path)
        assert ended.status == 0, ended
        assert not set(CONTROLS) & {*ended.output, *ended.errors}, ended
    assert not set(CONTROLS) & set((folder / "report.html").read_text())
