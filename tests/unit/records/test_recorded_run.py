"""Reads a run's files when they are complete, or while they grow."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.inspect.chrome_trace import chrome_trace
from mdgan.records.happenings import Happening
from mdgan.records.recorded_run import RecordedRun, RecordedSpan
from mdgan.records.roles import is_alone, leader
from mdgan.records.row_reader import METRICS, News, RunTail
from mdgan.records.rows import Losses, Place, Placed, RecordedRow, ScoresRow, Swap, Trained
from tests.unit.observe.fake_run import FakeRun


def small_run(folder: Path) -> Path:
    return FakeRun(workers=2, iterations=20).write(folder / "run")


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = small_run(tmp_path)
    run = RecordedRun.read(path)
    assert run.path == path
    assert run.config["world_size"] == 3
    assert run.status["state"] == "finished"
    assert [row.iteration for row in run.of(Losses)] == [1, 5, 10, 15, 20]
    assert [row.iteration for row in run.of(Swap)] == [14]
    assert [row.kind for row in run.of(Happening)] == ["holdings"]
    assert run.named("lost") == []
    assert list(run.samples) == [20]
    assert run.damage == ()


def test_spans_are_by_iteration_on_one_clock(tmp_path: Path) -> None:
    run = RecordedRun.read(small_run(tmp_path))
    assert run.traces.keys() == {"server", "host-1", "host-2", "scorer"}
    server = run.traces["server"]
    assert list(server.spans) == list(range(1, 21))
    row = json.loads((run.path / "trace" / "server.jsonl").read_text().splitlines()[0])
    name, worker, after, microseconds, num_bytes = row["spans"][1]
    start = row["start"] + after / 1e6
    assert server.spans[1][1] == RecordedSpan(name, worker, start, microseconds / 1e6, num_bytes)
    ends = [max(s.start + s.seconds for s in spans) for spans in server.spans.values()]
    assert ends == sorted(ends)


@pytest.mark.parametrize(("name", "cut"), [("metrics.jsonl", 1), ("trace/host-2.jsonl", 30)])
def test_a_line_that_is_cut_off_is_left_out(tmp_path: Path, name: str, cut: int) -> None:
    path = small_run(tmp_path)
    whole = RecordedRun.read(path)
    file = path / name
    file.write_bytes(file.read_bytes()[:-cut])
    run = RecordedRun.read(path)
    assert run.damage == (f"{file}: ends in the middle of a line, which is left out",)
    for kind in (Losses, Swap, ScoresRow, Happening):
        assert len(run.of(kind)) <= len(whole.of(kind))


def test_damaged_lines_are_counted_and_the_others_kept(tmp_path: Path) -> None:
    path = small_run(tmp_path)
    metrics, trace = path / "metrics.jsonl", path / "trace" / "host-1.jsonl"
    whole = RecordedRun.read(path)
    metrics.write_bytes(b"\x00\x00\n[1]\nnull\n" + metrics.read_bytes() + b'{"iteration": 3\n')
    trace.write_bytes(
        b'{"iteration": 3}\n{"iteration":1,"start":0,"spans":[[1]]}\n{}\n' + trace.read_bytes()
    )
    run = RecordedRun.read(path)
    for kind in (Losses, Swap, ScoresRow, Happening):
        assert run.of(kind) == whole.of(kind)
    assert run.traces["host-1"] == whole.traces["host-1"]
    assert run.damage == (
        f"{metrics}: 4 line(s) are damaged and left out",
        f"{trace}: 3 line(s) make no sense and are left out",
    )


def test_files_that_are_no_samples_are_passed_over(tmp_path: Path) -> None:
    path = small_run(tmp_path)
    for name in (".0000040.png.12.tmp", "best.png", "0000030.jpg"):
        (path / "samples" / name).write_bytes(b"")
    assert list(RecordedRun.read(path).samples) == [20]


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_damaged_settings_are_named(tmp_path: Path, content: str) -> None:
    path = small_run(tmp_path)
    (path / "config.json").write_text(content)
    with pytest.raises(BadInput) as caught:
        RecordedRun.read(path)
    assert str(caught.value).startswith(f"{path / 'config.json'}: damaged (")


def with_rows(folder: Path, *rows: str) -> Path:
    path = small_run(folder)
    with (path / "metrics.jsonl").open("a") as file:
        file.writelines(row + "\n" for row in rows)
    return path


def test_unknown_events_and_unknown_fields_are_no_damage(tmp_path: Path) -> None:
    novelty = '{"event": "novelty", "iteration": 3, "seconds": 1.5, "what": {"ever": [1]}}'
    run = RecordedRun.read(with_rows(tmp_path, novelty, '{"iteration": 21, "novelty": null}'))
    assert run.damage == ()
    assert run.of(Losses)[-1] == Losses(iteration=21)
    assert [row.iteration for row in run.of(RecordedRow)] == [3]


def test_rows_that_make_no_sense_are_counted_and_left_out(tmp_path: Path) -> None:
    senseless = (
        '{"iteration": -1}',
        '{"event": ["swap"], "moves": []}',
        '{"event": "swap", "iteration": 4, "moves": [[1]]}',
        '{"event": "lost", "iteration": 4, "workers": []}',
    )
    whole = RecordedRun.read(small_run(tmp_path / "whole"))
    run = RecordedRun.read(with_rows(tmp_path, *senseless))
    for kind in (Losses, Swap, ScoresRow, Happening):
        assert run.of(kind) == whole.of(kind)
    metrics = run.path / "metrics.jsonl"
    assert run.damage == (f"{metrics}: 4 line(s) make no sense and are left out",)


def test_texts_hold_only_what_a_page_can_hold(tmp_path: Path) -> None:
    """Halves of characters cannot be written, and XML has no control characters."""
    reasons = ("a\x00b", "a\x1bb", "a\ud800b", "a\uffffb", "\x1b\n\N{GRINNING FACE}")
    rows = [{"event": "lost", "iteration": 4, "workers": [1], "reason": text} for text in reasons]
    escaped = [json.dumps(row) for row in rows]
    run = RecordedRun.read(
        with_rows(tmp_path, *escaped, '{"event": "x", "x": "\uffff", "iteration": 30}')
    )
    told = [row.reason for row in run.of(Happening) if row.reason]
    assert told == [*["a\ufffdb"] * 4, "\ufffd\n\N{GRINNING FACE}"]
    assert run.named("x")[-1]["x"] == "\ufffd"


PLACED = {
    "event": "placement", "iteration": 5, "number": 0, "strategy": "lb", "makespan": 3.0,
    "num_slots": {"1": 1}, "fits": {"cpu": [0.5, 0, 0.1]},
}  # fmt: skip
IN_SLOT = {
    "host": 1, "slot": 0, "kind": "cpu", "busy": 2.5, "work": 5, "clients": [7, 3, 9],
    "batches": [2, 3, 1], "begin": [0, 1.5, None], "seconds": [1.5, 1, 2],
    "predicted": [1, None, 3],
}  # fmt: skip


def test_where_clients_trained_is_typed(tmp_path: Path) -> None:
    whole, brief = {**IN_SLOT}, {"host": 2, "slot": 1, "busy": 1}
    row = json.dumps({**PLACED, "slots": [whole, brief]})
    (placed,) = RecordedRun.read(with_rows(tmp_path, row)).of(Placed)
    assert placed.fits == {"cpu": (0.5, 0, 0.1)}
    assert [slot.place for slot in placed.slots] == [Place("cpu", 1, 0), Place("", 2, 1)]
    assert placed.slots[0].trained == [Trained(7, 2, 0, 1.5, 1), Trained(3, 3, 1.5, 1, None)]
    assert placed.slots[1].trained == []


def test_a_run_is_counted_in_what_it_says_or_in_rounds_if_it_has_some(tmp_path: Path) -> None:
    path = small_run(tmp_path)
    assert RecordedRun.read(path).unit == "iteration"
    one = '{"event": "round", "iteration": 5, "number": 0, "took_part": [1], "weights": [1.0]}'
    assert RecordedRun.read(with_rows(tmp_path / "rounds", one)).unit == "round"
    (path / "run.json").write_text('{"unit": "round"}')
    assert RecordedRun.read(path).unit == "round"


def test_hosts_are_in_the_order_of_their_workers(tmp_path: Path) -> None:
    run = RecordedRun.read(FakeRun(workers=12, iterations=3).write(tmp_path / "run"))
    assert [host.role for host in run.hosts] == [f"host-{n}" for n in range(1, 13)]


@pytest.mark.parametrize(
    ("roles", "expected", "alone"),
    [
        ([], None, False),
        (["scorer"], None, False),
        (["host-3", "scorer", "server"], "server", False),
        (["alone", "scorer"], "alone", True),
        (["chief", "host-1"], "chief", False),
    ],
)
def test_the_role_that_owns_the_generator_leads(
    roles: list[str], expected: str | None, alone: bool
) -> None:
    assert leader(roles) == expected
    assert is_alone(roles) is alone


ODD_SPANS = [
    ["x" * 1000, 0, 0, 1, 0],
    ["\x00", 0, 0, 1, 0],
    ["", 0, 0, 1, 0],
    ["wait", -1, 0, 1, 0],
    ["wait", 0, float("nan"), 1, 0],
    ["wait", 0, 0, float("inf"), 0],
    ["wait", 0, 0, -1, 0],
    ["wait", 0, 0, 1e300, 0],
    ["wait", 0, 0, 1, 10**400],
]


def test_spans_that_make_no_sense_are_counted_and_left_out(tmp_path: Path) -> None:
    good: dict[str, Any] = {"iteration": 2, "start": 0.5, "spans": [["wait", 0, 0, 1, 0]]}
    odd = [
        *({**good, "spans": [span]} for span in ODD_SPANS),
        *({**good, "start": start} for start in (float("nan"), 1e300, "0")),
        *({**good, "iteration": iteration} for iteration in (-1, 1.5, 10**400)),
        {**good, "spans": [[f"{n}", 0, 0, 1, 0] for n in range(100)]},
        {"iteration": 1, "seconds": float("nan"), "sent_bytes": {"X": 1}, "received_bytes": {}},
        {"iteration": 1, "seconds": 1.0, "sent_bytes": {"X": -1}, "received_bytes": {}},
    ]
    file = small_run(tmp_path) / "trace" / "host-1.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in (good, *odd, good)))
    run = RecordedRun.read(tmp_path / "run")
    assert len(run.traces["host-1"].spans[2]) == 2
    assert run.damage == (f"{file}: {len(odd)} line(s) make no sense and are left out",)
    assert chrome_trace(run)


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
    assert list(tail.read()) == []
    (tmp_path / "run").mkdir()
    assert list(tail.read()) == []
    append(tmp_path / "run" / "trace" / "host-1.jsonl", line(iteration=1))
    assert list(tail.read()) == [News("host-1", True, [{"iteration": 1}])]
    append(tmp_path / "run" / "trace" / "server.jsonl", line(iteration=2))
    assert list(tail.read()) == [News("server", True, [{"iteration": 2}])]


def test_a_file_that_goes_away_for_a_moment_is_waited_for(tmp_path: Path, metrics: Path) -> None:
    tail = RunTail(tmp_path)
    append(metrics, line(iteration=1))
    list(tail.read())
    metrics.rename(tmp_path / "aside")
    assert list(tail.read()) == []
    append(tmp_path / "aside", line(iteration=2))
    (tmp_path / "aside").rename(metrics)
    assert list(tail.read()) == [News(METRICS, False, [{"iteration": 2}])]


def test_a_file_that_is_replaced_is_read_anew(tmp_path: Path, metrics: Path) -> None:
    tail = RunTail(tmp_path)
    append(metrics, line(iteration=1) + line(iteration=2))
    list(tail.read())
    append(tmp_path / "new", line(iteration=1) + line(iteration=2) + line(iteration=3))
    (tmp_path / "new").replace(metrics)
    (news,) = list(tail.read())
    assert news.anew
    assert [record["iteration"] for record in news.records] == [1, 2, 3]


@pytest.mark.parametrize("content", [b"", line(iteration=9), line(iteration=9) * 20])
def test_a_file_that_is_written_over_is_read_anew(tmp_path: Path, content: bytes) -> None:
    metrics, tail = tmp_path / "metrics.jsonl", RunTail(tmp_path)
    append(metrics, b"".join(line(iteration=i) for i in range(5)))
    list(tail.read())
    metrics.write_bytes(content)
    (news,) = list(tail.read())
    assert news.anew
    assert [record["iteration"] for record in news.records] == [9] * content.count(b"\n")


def test_of_a_long_timeline_only_the_end_is_read_and_of_the_metrics_all(tmp_path: Path) -> None:
    lines = b"".join(line(iteration=i, spans="x" * 100) for i in range(20_000))
    append(tmp_path / "metrics.jsonl", lines)
    append(tmp_path / "trace" / "host-1.jsonl", lines)
    tail = RunTail(tmp_path)
    *metrics, host = tail.read()
    assert sum(len(piece.records) for piece in metrics) == 20_000
    numbers = [record["iteration"] for record in host.records]
    assert numbers == list(range(20_000 - len(numbers), 20_000))
    assert 1000 < len(numbers) < 10_000
    append(tmp_path / "trace" / "host-1.jsonl", line(iteration=20_000))
    assert list(tail.read()) == [News("host-1", False, [{"iteration": 20_000}])]


def test_it_knows_when_the_run_last_wrote(tmp_path: Path) -> None:
    tail = RunTail(tmp_path)
    assert tail.modified == {}
    names = ("run.json", "metrics.jsonl", "trace/server.jsonl")
    for name in names:
        append(tmp_path / name, line(iteration=1))
        os.utime(tmp_path / name, (1, 1))
    for seconds, name in enumerate(names, start=1000):
        os.utime(tmp_path / name, (seconds, seconds))
        list(tail.read())
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
    results: list[dict[str, Any]] = []
    for look, size in enumerate([*sizes, len(data)]):
        append(folder / "metrics.jsonl", data[:size])
        data = data[size:]
        for news in list(tail.read()):
            assert news.anew == (look == 0)
            results += news.records
    shown = (text.replace(rb"\u0085", rb"\ufffd") for text in lines)  # it moves terminals
    expected = [json.loads(text) for text in shown if text.startswith(b'{"')]
    assert results == expected
