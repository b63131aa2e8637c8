import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.records.run_tail import METRICS, News, RunTail


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def append(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_files_may_appear_later(tmp_path: Path) -> None:
    tail = RunTail(tmp_path / "run")
    assert tail.read() == []
    (tmp_path / "run").mkdir()
    assert tail.read() == []
    append(tmp_path / "run" / "trace" / "host-1.jsonl", line(iteration=1))
    assert tail.read() == [News("host-1", True, [{"iteration": 1}])]
    append(tmp_path / "run" / "trace" / "server.jsonl", line(iteration=2))
    assert tail.read() == [News("server", True, [{"iteration": 2}])]


def test_a_file_that_goes_away_for_a_moment_is_waited_for(tmp_path: Path, metrics: Path) -> None:
    tail = RunTail(tmp_path)
    append(metrics, line(iteration=1))
    tail.read()
    metrics.rename(tmp_path / "aside")
    assert tail.read() == []
    append(tmp_path / "aside", line(iteration=2))
    (tmp_path / "aside").rename(metrics)
    assert tail.read() == [News(METRICS, False, [{"iteration": 2}])]


def test_a_file_that_is_replaced_is_read_anew(tmp_path: Path, metrics: Path) -> None:
    tail = RunTail(tmp_path)
    append(metrics, line(iteration=1) + line(iteration=2))
    tail.read()
    append(tmp_path / "new", line(iteration=1) + line(iteration=2) + line(iteration=3))
    (tmp_path / "new").replace(metrics)
    (news,) = tail.read()
    assert news.anew
    assert [record["iteration"] for record in news.records] == [1, 2, 3]


@pytest.mark.parametrize("content", [b"", line(iteration=9), line(iteration=9) * 20])
def test_a_file_that_is_written_over_is_read_anew(tmp_path: Path, content: bytes) -> None:
    metrics, tail = tmp_path / "metrics.jsonl", RunTail(tmp_path)
    append(metrics, b"".join(line(iteration=i) for i in range(5)))
    tail.read()
    metrics.write_bytes(content)
    (news,) = tail.read()
    assert news.anew
    assert [record["iteration"] for record in news.records] == [9] * content.count(b"\n")


def test_of_a_long_timeline_only_the_end_is_read_and_of_the_metrics_all(tmp_path: Path) -> None:
    lines = b"".join(line(iteration=i, spans="x" * 100) for i in range(20_000))
    append(tmp_path / "metrics.jsonl", lines)
    append(tmp_path / "trace" / "host-1.jsonl", lines)
    tail = RunTail(tmp_path)
    metrics, host = tail.read()
    assert len(metrics.records) == 20_000
    numbers = [record["iteration"] for record in host.records]
    assert numbers == list(range(20_000 - len(numbers), 20_000))
    assert 1000 < len(numbers) < 10_000
    append(tmp_path / "trace" / "host-1.jsonl", line(iteration=20_000))
    assert tail.read() == [News("host-1", False, [{"iteration": 20_000}])]


def test_it_knows_when_the_run_last_wrote(tmp_path: Path) -> None:
    tail = RunTail(tmp_path)
    assert tail.modified == {}
    names = ("run.json", "metrics.jsonl", "trace/server.jsonl")
    for name in names:
        append(tmp_path / name, line(iteration=1))
        os.utime(tmp_path / name, (1, 1))
    for seconds, name in enumerate(names, start=1000):
        os.utime(tmp_path / name, (seconds, seconds))
        tail.read()
        assert tail.modified[tmp_path / name] == seconds


LINES = st.lists(
    st.one_of(
        st.integers(0, 10**6).map(lambda number: line(iteration=number)),
        st.sampled_from(
            [b"{\n", b"\n", b"\xffnonsense\r\n", b"[1]\n", b"null\n", line(text="\n\r  \x85")]
        ),
    ),
    max_size=30,
)


@given(LINES, st.lists(st.integers(1, 120), max_size=30))
def test_however_a_file_grows_its_lines_come_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    tail, data = RunTail(folder), b"".join(lines)
    found: list[dict[str, Any]] = []
    for look, size in enumerate([*sizes, len(data)]):
        append(folder / "metrics.jsonl", data[:size])
        data = data[size:]
        for news in tail.read():
            assert news.anew == (look == 0)
            found += news.records
    shown = (text.replace(rb"\u0085", rb"\ufffd") for text in lines)  # it moves terminals
    expected = [json.loads(text) for text in shown if text.startswith(b'{"')]
    assert found == expected
