import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mdgan.report.catalogue import HEADINGS, SECTIONS
from tests.processes import REPOSITORY
from tests.unit.observe.fake_run import FakeRun
from tests.unit.observe.federated import federated_run
from tests.unit.report.parsed_page import ParsedPage, html_of
from tests.unit.report.placed_run import KINDS, placed_run

NAMES = [entry.name for section in SECTIONS for entry in section.entries]
TABLES = {"predictions", "idle", "concurrency", "memory", "fetching", "operators"}
NEW = {"by-worker", "audit"}
"""Runs of versions before 0.7 did not record them, and others only after `mdgan audit`."""
HOSTILE = "<script>alert('é $x^2$ \"quoted\"')</script> &amp; </style>]]>"


def check(html: str, missing: dict[str, str]) -> ParsedPage:
    """What holds for every page."""
    page = ParsedPage(html)
    assert page.unclosed == []
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.references) <= set(page.ids)
    assert [name for name in page.loads if not name.startswith("data:image/png;base64,")] == []
    assert not re.search(r"url\((?!#)|@import|https?:", html)
    plain = {re.sub("^fig-|-(rounds|iterations)$", "", name) for name in page.figures}
    assert plain <= {*NAMES}
    assert page.drawn == {name for name in page.figures if name[4:] not in missing}
    assert all(reason in page.text for reason in missing.values())
    assert not [style for style in page.styles if re.search(r"#[0-9a-f]{6}", style)]
    assert page.scripts == 1
    return page


def checked(*paths: Path) -> tuple[ParsedPage, dict[str, str]]:
    html, missing = html_of(*paths)
    return check(html, missing), missing


def test_one_run_has_all_figures_that_need_no_other(tmp_path: Path) -> None:
    path = FakeRun(iterations=60, slow=frozenset({25}), lost={3: 40}).write(tmp_path / "run")
    html, missing = html_of(path)
    page = check(html, missing)
    assert not missing
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; img-src data:;")
    assert "script-src 'sha256-" in policy[1]
    for words in ("ε", "Not the default", "The server's machine", "nearest real", "a round"):
        assert words not in page.text, words
    assert page.drawn == {
        f"fig-{name}"
        for name in NAMES
        if name not in {"rounds", "placement", "columns", "told-pairs", *TABLES, *NEW}
    }
    assert page.ids.index("result") < page.ids.index("samples")
    assert "rounds" not in page.ids
    assert "Worker 3 was lost in iteration 40: connection closed by peer" in page.text
    assert "All discriminators of 4 swaps arrived bit for bit." in page.text
    assert "7488d73850bf" in page.text
    assert "98.1 %" in page.text
    assert '<abbr title="the generator&#39;s loss: the mean over workers">generator</abbr>' in html


def test_what_headings_mean_is_said_of_headings_that_there_are() -> None:
    code = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "mdgan").rglob("*.py")]
    others = [text for text in code if "HEADINGS = {" not in text]
    assert [name for name in HEADINGS if not any(f'"{name}"' in text for text in others)] == []


@pytest.mark.slow
def test_runs_of_all_kinds_are_compared(tmp_path: Path) -> None:
    fakes = {
        "pairs": FakeRun(workers=4, iterations=60, slow=frozenset({25})),
        "alone": FakeRun(workers=0, iterations=3000, log_interval=50, score_interval=500),
        "odd": FakeRun(workers=7, iterations=60, swap_interval=5, inexact=frozenset({2})),
        "faulty": FakeRun(workers=4, iterations=60, seed=7, lost={3: 40}),
        "going-on": FakeRun(workers=4, iterations=60, done=33, state="running", swap_interval=0),
        "shared": FakeRun(workers=30, workers_per_host=10, iterations=30, swap_interval=10),
    }
    paths = [fake.write(tmp_path / name) for name, fake in fakes.items()]
    trace = tmp_path / "going-on" / "trace" / "host-2.jsonl"
    trace.write_bytes(trace.read_bytes()[:-30])
    killed = datetime(2026, 3, 1, 14, 30).timestamp()
    for name in ("run.json", "metrics.jsonl"):
        os.utime(tmp_path / "going-on" / name, (killed, killed))
    page, missing = checked(*paths)
    assert not missing
    labels = ("standalone", "7 workers", "4 workers, no swap", "4 workers, swap interval 14")
    assert all(label in page.text for label in labels)
    assert "1 of 11 swaps did not arrive bit for bit, after iteration 15." in page.text
    assert "host-2.jsonl: ends in the middle of a line" in page.text
    assert "It was not finished; its newest record was of 1 March 2026, 14:30." in page.text
    assert "What differs" in page.text


@pytest.mark.slow
def test_federated_runs_are_compared_by_configuration(tmp_path: Path) -> None:
    paths = []
    for seed in range(3):
        name = tmp_path / f"balanced-seed{seed}"
        paths.append(federated_run(name, seed=seed, aborted=frozenset({3}), away=frozenset({8})))
        name = tmp_path / f"random-seed{seed}"
        paths.append(federated_run(name, seed=seed, balanced=False, algorithm="fl-gan"))
        name = tmp_path / f"alone-seed{seed}"
        paths.append(FakeRun(workers=0, iterations=150, seed=seed).write(name))
    page, missing = checked(*paths)
    assert not missing
    assert page.drawn >= {"fig-rounds", "fig-duration", "fig-duration-iterations"}
    assert "Iteration duration" in page.text
    assert "Round duration" in page.text
    assert "iteration or round" not in page.text
    assert "Of 9 runs this shows the first of each configuration." in page.text
    assert "Lines are means over up to 3 seeds" in page.text
    assert "Rounds until every class was seen 500 times: balanced, seed 0: " in page.text


@pytest.mark.slow
def test_a_run_with_slots_shows_where_clients_trained(tmp_path: Path) -> None:
    hosts = dict(enumerate([*KINDS, HOSTILE], start=1))
    html, missing = html_of(placed_run(tmp_path / "run", hosts))
    page = check(html, missing)
    assert "fig-placement" in page.drawn
    assert {"table-predictions", "table-idle", "table-concurrency"} <= {*page.ids}
    assert "<script>alert" not in html
    assert HOSTILE[:30] in page.text


FAULTS: list[dict[str, Any]] = [
    {"event": "late", "iteration": 8, "workers": [1, 4]},
    {"event": "back", "iteration": 9, "workers": [1], "missed": 1, "late_seconds": 0.1},
    {"event": "lost", "iteration": 20, "workers": [4], "reason": "silent for 4 s"},
    {"event": "joined", "iteration": 25, "workers": [9], "holdings": {"9": {"classes": [5] * 10}}},
    {"event": "resumed", "iteration": 30, "workers": {"1": {}, "2": {}, "3": {}, "9": {}}},
    {"event": "refused", "iteration": 41, "worker": 3, "reason": "NaN", "strikes": 1},
    {"event": "shut out", "iteration": 41, "workers": [3], "reason": "1 unusable answers"},
    {"event": "left", "iteration": 50, "workers": [2]},
    {"event": "unsaved", "iteration": 0, "reason": "No space left on device"},
]


def test_what_happened_to_workers_is_told_and_what_comes_out_of_files_stays_text(
    tmp_path: Path,
) -> None:
    texts = {"dataset": HOSTILE, "partition": HOSTILE, HOSTILE: HOSTILE}
    said = {"statement": '{"run": "r", "terms": {}, "iteration": 60}', "refusal": "it rejects <b>"}
    attested = {"event": "attested", "iteration": 60, "workers": [2], **said}
    faults = [*FAULTS, {**FAULTS[-1], "iteration": 55}, attested]
    fake = FakeRun(workers=4, iterations=60, faults=faults, state=HOSTILE, config=texts)
    path = fake.write(tmp_path / "<b>1")
    with (path / "metrics.jsonl").open("a") as metrics:
        metrics.write(
            '{"event": "unscored", "iteration": 0, "reason": "<img src=x onerror=alert(1)>"}\n'
        )
    html, missing = html_of(path)
    page = check(html, missing)
    assert HOSTILE in page.text
    assert "<img src=x" not in html
    assert "fig-attendance" in page.drawn
    assert "Worker 4 was lost in iteration 20: silent for 4 s" in page.text
    assert "Worker 3 was shut out in iteration 41: 1 unusable answers" in page.text
    in_all = "1 loss, 1 shut out, 1 left, 1 joined, 2 late answers, 1 refused answer, resumed once"
    assert f"Workers: {in_all}." in page.text
    assert "Rank(s) 2 did not sign the run: it rejects <b>." in page.text
    assert "Checkpoints went wrong 1 time, the last: No space left on device" in page.text
    assert "late, lost" not in page.text
    assert "no answer from 8 to 20; lost in 20 (silent for 4 s)" in page.text


@pytest.mark.slow
def test_a_run_of_many_workers_and_faults_is_drawn(tmp_path: Path) -> None:
    faults = [
        {"event": kind, "iteration": i + after, "workers": [1 + i % 40], "reason": "closed"}
        for i in range(1, 100)
        for after, kind in ((0, "late"), (1, "back"), (2, "lost"), (9, "joined"))
    ]
    fake = FakeRun(workers=40, workers_per_host=10, iterations=110, faults=faults)
    page, _ = checked(fake.write(tmp_path / "run"))
    assert "10 more workers are left out of the drawing" in page.text
    assert page.text.count("was lost in iteration") == 3


@pytest.mark.slow
def test_what_a_standalone_run_cannot_have_is_not_mentioned(tmp_path: Path) -> None:
    page, missing = checked(FakeRun(workers=0, iterations=20).write(tmp_path / "run"))
    assert not missing
    assert not {"fig-rounds", "fig-bytes", "fig-swaps"} & {*page.figures}
    assert "held by workers" not in page.text


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "run.json").write_text("{}")
    html, missing = html_of(tmp_path)
    check(html, missing)
    assert missing["samples"] == "no samples are saved yet"
    assert missing["scores"] == "no scores are recorded (mdgan evaluate adds some)"
    assert missing["duration"] == "no trace of a complete iteration is there yet"


@pytest.mark.slow
def test_what_comes_out_of_files_that_are_compared_stays_text(tmp_path: Path) -> None:
    texts = {"dataset": HOSTILE, "partition": HOSTILE, HOSTILE: HOSTILE}
    odd = FakeRun(workers=3, iterations=20, state=HOSTILE, config=texts)
    other = FakeRun(workers=3, iterations=20, config={"partition": "$a_{1}$ #1b2229"})
    paths = [odd.write(tmp_path / "<b>1"), other.write(tmp_path / "2")]
    with (paths[0] / "metrics.jsonl").open("a") as metrics:
        metrics.write(
            '{"event": "lost", "iteration": 3, "workers": [1], "reason": "<script>x</script>"}\n'
            '{"event": "unscored", "iteration": 0, "reason": "<img src=x onerror=alert(1)>"}\n'
        )
    html, missing = html_of(*paths)
    page = check(html, missing)
    assert HOSTILE in page.text
    assert "<img src=x" not in html
    assert "$a_{1}$ #1b2229" in page.text


def test_records_that_make_no_sense_do_not_stop_the_report(tmp_path: Path) -> None:
    path = FakeRun(workers=2, iterations=20).write(tmp_path / "run")
    with (path / "metrics.jsonl").open("a") as metrics:
        for line in (
            '{"event": "scores"}',
            '{"event": "scores", "iteration": 5, "scores": {"fid": "low"}, "floor": 3}',
            '{"event": "swap", "iteration": 5, "moves": 3}',
            '{"event": "lost", "iteration": null, "workers": null}',
            '{"event": "holdings", "iteration": 0, "workers": {"1": 5}}',
            '{"event": "swap", "iteration": 1e999, "moves": [[1, 2]], "given": 3, "taken": {}}',
            '{"event": "joined", "iteration": 7, "workers": [1000000000000], "holdings": []}',
            '{"event": "back", "iteration": 3, "workers": [2]}',
            '{"event": "late", "iteration": 999999999999, "workers": [2, 2, "x"]}',
            '{"event": "resumed", "iteration": 4, "workers": []}',
            '{"event": "attendance", "iteration": 9, "workers": {"1": {"late": "x"}, "2": 3}}',
            '{"event": ["lost"], "iteration": 5}',
            '{"seconds": 3}',
            '{"event": "round", "iteration": 5, "number": 0, "took_part": [1], "weights": [1.0]}',
            '{"event": "round", "iteration": 5, "number": 1, "took_part": [], "weights": []}',
            '{"event": "round", "iteration": 5, "number": 1e999, "took_part": {}}',
            '{"iteration": 6, "seconds": "x", "generator_loss": NaN, "discriminator_loss": null}',
        ):
            metrics.write(line + "\n")
    (path / "samples" / "0000010.png").write_bytes(b"\x89PNG cut off")
    html, missing = html_of(path)
    check(html, missing)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 60])
def test_any_number_of_classes_is_drawn(tmp_path: Path, classes: int) -> None:
    path = FakeRun(workers=12, iterations=20, classes=classes).write(tmp_path / "run")
    assert "fig-classes" in checked(path)[0].drawn
