import json
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mdgan import messages
from mdgan.engine.server.scoring import Scoring
from mdgan.errors import BadInput
from mdgan.messages import Kind
from mdgan.metrics.extractor import Extractor, Features
from mdgan.metrics.real_statistics import RealStatistics
from mdgan.observe.run_observer import RunObserver
from mdgan.records.run_directory import RunDirectory
from mdgan.transport.channel import Channel

GENERATOR = nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (1, 2, 2)))
RECORD = {
    "iteration": 10,
    "seconds": 1.0,
    "scores": {"fid": 12.25, "classes_covered": 9},
    "left_out": {"kid": "no held-out split"},
    "warnings": ["few samples"],
    "floor": {"fid": 2.5},
    "row": {"iteration": 10, "start": 0.0, "spans": [["evaluate", 0, 0, 5, 0]]},
}
EXTRACTOR = Extractor(
    kind="file",
    name="pixels",
    sha256="0" * 64,
    shape=(1, 2, 2),
    num_features=3,
    num_classes=0,
    accuracy=None,
    network=nn.Flatten(),
)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    first, second = Pipe()
    yield Channel(first), Channel(second)
    for connection in (first, second):
        connection.close()


def make_observer(tmp_path: Path) -> RunObserver:
    """Made inside a test, so that it writes to the standard error that the test captures."""
    observer = RunObserver(
        RunDirectory.claim(tmp_path / "run"),
        GENERATOR,
        z_dim=3,
        seed=0,
        iterations=100,
        sample_interval=0,
        log_interval=10,
        status={},
        launched=0.0,
    )
    observer.begin({}, 0)
    return observer


def statistics(seed: int) -> RealStatistics:
    values = torch.randn(20, 3, generator=torch.Generator().manual_seed(seed)).double()
    found = RealStatistics.empty(EXTRACTOR)
    found.add(Features(values, None), 0)
    return found


def events(tmp_path: Path) -> list[dict[str, Any]]:
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if '"holdings"' not in line]


def test_generators_are_handed_over_when_due(ends: tuple[Channel, Channel], tmp_path: Path) -> None:
    observer = make_observer(tmp_path)
    here, scorer = ends
    scoring = Scoring(here, 30, 100)
    for i in range(1, 101):
        scoring.after(i - 1, i, GENERATOR, observer)
    due = [scorer.receive(1) for _ in range(4)]
    assert [message.iteration for message in due if message is not None] == [30, 60, 90, 100]
    assert due[0] is not None
    assert due[0].kind == Kind.GENERATOR
    assert torch.equal(due[0].tensors["0.weight"], GENERATOR.state_dict()["0.weight"])
    assert scorer.receive(0) is None


def test_a_slow_scorer_skips_but_the_last_is_scored(
    ends: tuple[Channel, Channel], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    observer = make_observer(tmp_path)
    here, scorer = ends
    scoring = Scoring(here, 1, 100)
    for i in range(1, 101):
        scoring.after(i - 1, i, GENERATOR, observer)
    assert "scoring takes longer than 1 iterations" in capsys.readouterr().err
    handed = iter(lambda: scorer.receive(0), None)
    assert [message.iteration for message in handed if message is not None] == [1, 2, 3, 4, 100]


def test_scores_are_recorded_once(
    ends: tuple[Channel, Channel],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    observer = make_observer(tmp_path)
    here, scorer = ends
    scoring = Scoring(here, 10, 100)
    scoring.after(9, 10, GENERATOR, observer)
    scorer.send(messages.scores(10, RECORD))
    scoring.finish(observer)
    (recorded,) = events(tmp_path)
    assert recorded["event"] == "scores"
    assert recorded["scores"] == RECORD["scores"]
    assert "row" not in recorded
    assert (tmp_path / "run" / "trace" / "scorer.jsonl").read_text().count("\n") == 1
    said = capsys.readouterr().err
    assert "scores: few samples" in said
    assert "scores: kid: no held-out split" in said


def test_every_host_is_asked_once(ends: tuple[Channel, Channel], tmp_path: Path) -> None:
    observer = make_observer(tmp_path)
    here, scorer = ends
    scoring = Scoring(here, 10, 100)
    assert scoring.to_ask([1, 2]) == [], "there is no extractor yet"
    scorer.send(messages.extractor({"kind": "file"}, {}))
    scoring.poll(observer, 1.0)
    assert scoring.to_ask([2, 1]) == [1, 2]
    assert scoring.to_ask([1, 2, 5]) == [5]


def test_a_host_that_comes_back_is_asked_again_unless_it_has_told(
    ends: tuple[Channel, Channel], tmp_path: Path
) -> None:
    observer = make_observer(tmp_path)
    here, scorer = ends
    scoring = Scoring(here, 10, 100)
    scorer.send(messages.extractor({"kind": "file"}, {}))
    scoring.poll(observer, 1.0)
    assert scoring.to_ask([1, 2]) == [1, 2]
    scoring.note_real(1, messages.real(1, statistics(1).tensors()), [1, 2], observer)
    scoring.forget(1)
    scoring.forget(2)
    assert scoring.to_ask([1, 2]) == [2]


def test_statistics_that_are_none_are_refused_at_once(
    ends: tuple[Channel, Channel], tmp_path: Path
) -> None:
    observer = make_observer(tmp_path)
    here, scorer = ends
    scoring = Scoring(here, 10, 100)
    whole = statistics(1).tensors()
    for wrong in ({}, {**whole, "first.total": torch.zeros(2)}, {"x": torch.zeros(2)}):
        with pytest.raises(BadInput, match="damaged statistics"):
            scoring.note_real(2, messages.real(1, wrong), [1, 2], observer)
    scoring.note_real(1, messages.real(1, whole), [1], observer)
    message = scorer.receive(1)
    assert message is not None
    assert RealStatistics.from_tensors(message.tensors).num_samples == 20


def test_statistics_of_different_networks_are_not_added(
    ends: tuple[Channel, Channel], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    observer = make_observer(tmp_path)
    scoring = Scoring(ends[0], 10, 100)
    other = RealStatistics.empty(replace(EXTRACTOR, num_features=5))
    scoring.note_real(1, messages.real(1, statistics(1).tensors()), [1, 2], observer)
    scoring.note_real(2, messages.real(1, other.tensors()), [1, 2], observer)
    assert not scoring.on
    assert "scores are left out: statistics of 5 features" in capsys.readouterr().err
    scoring.note_real(3, messages.real(1, {}), [3], observer)


def test_the_scorer_gets_the_sum_when_all_hosts_have_told(
    ends: tuple[Channel, Channel], tmp_path: Path
) -> None:
    observer = make_observer(tmp_path)
    here, scorer = ends
    scoring = Scoring(here, 10, 100)
    scoring.note_real(3, messages.real(1, statistics(3).tensors()), [1, 3], observer)
    assert not scoring.described([1, 3])
    assert scorer.receive(0) is None
    scoring.note_real(1, messages.real(1, statistics(1).tensors()), [1, 3], observer)
    assert scoring.described([1, 3])
    message = scorer.receive(1)
    assert message is not None
    found = RealStatistics.from_tensors(message.tensors)
    assert found.num_samples == 40
    wanted = (statistics(1) + statistics(3)).tensors()
    assert all(torch.equal(found.tensors()[name], tensor) for name, tensor in wanted.items())


def test_nobody_waits_for_a_host_that_is_lost(
    ends: tuple[Channel, Channel], tmp_path: Path
) -> None:
    observer = make_observer(tmp_path)
    here, scorer = ends
    scoring = Scoring(here, 10, 100)
    scoring.note_real(3, messages.real(1, statistics(3).tensors()), [1, 3], observer)
    scoring.check_complete([3], observer)
    message = scorer.receive(1)
    assert message is not None
    assert message.kind == Kind.REAL


@pytest.mark.parametrize("cause", ["no network", "no data", "gone", "all lost"])
def test_scores_are_left_out_with_a_reason(
    cause: str,
    ends: tuple[Channel, Channel],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    observer = make_observer(tmp_path)
    here, scorer = ends
    scoring = Scoring(here, 10, 100)
    scoring.after(9, 10, GENERATOR, observer)
    if cause == "no network":
        scorer.send(messages.extractor({"reason": cause}, {}))
    elif cause == "no data":
        scoring.note_real(2, messages.real(1, {}, cause), [2], observer)
    elif cause == "gone":
        scorer.close()
    else:
        scoring.give_up_without_real(observer)
    scoring.finish(observer)
    assert not scoring.on
    scoring.after(19, 20, GENERATOR, observer)
    reasons = {"gone": "the scorer is gone", "all lost": "no host has told of its data"}
    said = capsys.readouterr().err
    assert said.count("scores are left out") == 1
    assert reasons.get(cause, cause) in said
    (recorded,) = events(tmp_path)
    assert recorded["event"] == "unscored"


def test_whoever_asks_to_stop_does_not_wait(ends: tuple[Channel, Channel], tmp_path: Path) -> None:
    observer = make_observer(tmp_path)
    scoring = Scoring(ends[0], 10, 100)
    scoring.after(9, 10, GENERATOR, observer)
    scoring.abandon()
    scoring.finish(observer)
    assert scoring.on
