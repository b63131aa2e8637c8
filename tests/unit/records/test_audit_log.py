"""The audit log: its lines, and that every later change shows."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.records.audit_log import AUDIT_LOG_FILE, AuditLog, Verified, verify
from tests.claims.registry import claim
from tests.marks import examples
from tests.processes import check_refused, run_here


def log_of(run: Path, count: int = 3) -> Path:
    run.mkdir(exist_ok=True)
    log = AuditLog(run)
    for n in range(1, count + 1):
        log.add("join", "let in", 0, [n], f"{n:064x}", "10.0.0.7")
    return run / AUDIT_LOG_FILE


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@claim("audit-log", "Only the server's user can read it.")
def test_it_says_who_did_what_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    first, second, _ = entries(path)
    assert first["before"] == "0" * 64
    about = {"number": 2, "action": "join", "outcome": "let in", "iteration": 0, "ranks": [2]}
    about |= {"fingerprint": f"{2:064x}", "address": "10.0.0.7"}
    assert about.items() <= second.items()
    assert (second["time"][10], second["time"][-6:]) == ("T", "+00:00")
    assert verify(tmp_path).entries == 3


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
@claim("audit-log", "the exit status is 1 if one does not follow.")
def test_whatever_is_changed_is_seen(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    run = tmp_path_factory.mktemp("run")
    path = log_of(run, 6)
    whole, content = verify(run), path.read_bytes()
    lines = content.splitlines(keepends=True)
    kind = data.draw(st.sampled_from(["byte", "out", "twice", "swapped", "cut"]))
    place = data.draw(st.integers(0, len(lines) - 2))
    if kind == "byte":
        at = data.draw(st.integers(0, len(content) - len(lines[-1]) - 1))
        other = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[at]))
        changed = content[:at] + bytes([other]) + content[at + 1 :]
    elif kind == "out":
        changed = b"".join(lines[:place] + lines[place + 1 :])
    elif kind == "twice":
        changed = b"".join([*lines[:place], lines[place], *lines[place:]])
    elif kind == "swapped":
        lines[place], lines[place + 1] = lines[place + 1], lines[place]
        changed = b"".join(lines)
    else:
        changed = content[: data.draw(st.integers(0, len(content) - 1))]
    path.write_bytes(changed)
    result = verify(run)
    assert result.trouble or result.sha256 != whole.sha256


def test_it_goes_on_after_the_last_whole_line(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"number": 4, "ti')  # the machine died
    assert verify(tmp_path) == Verified(3, verify(tmp_path).sha256, "it is not complete")
    log_of(tmp_path, 2)
    assert verify(tmp_path).trouble == ""
    assert [entry["number"] for entry in entries(path)] == [1, 2, 3, 4, 5]


def test_what_another_has_added_meanwhile_breaks_it(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.add("join", "let in", 0, [1])
    (line,) = (tmp_path / AUDIT_LOG_FILE).read_bytes().splitlines(keepends=True)
    with (tmp_path / AUDIT_LOG_FILE).open("ab") as file:
        file.write(line)
    log.add("leave", "", 9, [1])
    assert verify(tmp_path).trouble == "it does not follow from line 1"


def test_after_a_write_that_failed_it_goes_on(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    log, elsewhere = AuditLog(tmp_path), tmp_path / "elsewhere"
    log.add("join", "let in", 0, [4])
    path.rename(elsewhere)
    path.mkdir()
    with pytest.raises(OSError, match="director"):
        log.add("join", "let in", 0, [5])
    path.rmdir()
    elsewhere.rename(path)
    log.add("join", "let in", 0, [6])
    assert (verify(tmp_path).entries, verify(tmp_path).trouble) == (5, "")


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_nothing_else_is_taken_for_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / AUDIT_LOG_FILE
    if kind == "link":
        path.symlink_to(tmp_path / "victim")
    else:
        os.mkfifo(path)
    with pytest.raises(OSError, match=r"symbolic|regular|device"):
        AuditLog(tmp_path).add("join", "let in", 0, [1])
    with pytest.raises(BadInput, match="cannot be read"):
        verify(tmp_path)
    assert not (tmp_path / "victim").exists()


@claim("audit-log", "the exit status is 1 if one does not follow.")
def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    path = log_of(tmp_path / "run")
    done = run_here("log", "verify", "run", cwd=tmp_path)
    assert done.status == 0
    message = f"run/{AUDIT_LOG_FILE}: whole, 3 entries, the last with SHA-256 "
    assert done.output == f"{message}{verify(tmp_path / 'run').sha256}\n"
    path.write_text(path.read_text().replace("10.0.0.7", "10.0.0.8", 1))
    done = run_here("log", "verify", "run", cwd=tmp_path)
    assert done.status == 1
    broken = "breaks at line 2, after 1 entry: it does not follow from line 1"
    assert done.output == f"run/{AUDIT_LOG_FILE}: {broken}\n"
    check_refused(run_here("log", "verify", "nowhere", cwd=tmp_path), "nowhere", "is not there")
