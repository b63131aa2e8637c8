import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mdgan import messages
from mdgan.engine.channel import Channel
from mdgan.engine.server.admission import Admission
from mdgan.engine.server.peers import Peers
from mdgan.engine.server.scoring import ScorerLink, Scoring
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.messages import Kind, Message
from mdgan.metrics.extractor import Extractor, Features
from mdgan.metrics.real_statistics import RealStatistics
from mdgan.observe.run_observer import Launched, Rhythm, RunObserver
from mdgan.observe.snapshots import Sampled
from mdgan.records.run_directory import RunDirectory
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Received
from mdgan.transport.memory import MemoryNetwork
from tests.unit.engine.played import IDENTITY, LONG, Played

GENERATOR = nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (1, 2, 2)))
RECORD = {
    "iteration": 10,
    "seconds": 1.0,
    "scores": {"fid": 12.25, "classes_covered": 9},
    "left_out": {"kid": "no held-out split"},
    "warnings": ["few samples"],
    "real": {"fid": 2.5},
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


def statistics(seed: int) -> RealStatistics:
    values = torch.randn(20, 3, generator=torch.Generator().manual_seed(seed)).double()
    result = RealStatistics.empty(EXTRACTOR)
    result.add(Features(values, None))
    return result


class Bench:
    """The server's end of scoring, with hosts and a scorer that the test plays."""

    def __init__(self, folder: Path, here: Channel, scorer: Channel, interval: int) -> None:
        self.folder = folder
        self.scorer = scorer
        admission = Admission(range(1, 6), IDENTITY, {"generation": 1}, 60.0)
        self.network = MemoryNetwork(Timeouts(), admission.admit)
        self.hosts: dict[int, Played] = {}
        self.has_asked = False
        self.observer = RunObserver(
            RunDirectory.claim(folder),
            Sampled(GENERATOR, 3, 0),
            Rhythm(iterations=100, sample_interval=0, log_interval=10),
            Launched({}, 0.0),
        )
        self.observer.begin({}, 0)
        settings = RunSettings(iterations=100, eval_interval=interval)
        self.peers = Peers(admission, self.network.server, self.observer, settings)
        self.link = ScorerLink(here)
        self.scoring = Scoring(self.link, settings, self.peers)

    def join(self, *hosts: int) -> None:
        """Hosts of one worker each are ready to train."""
        for host in hosts:
            self.hosts[host] = Played(self.network, host)
            self.peers.joined(host, self.hosts[host].hello)
            self.peers.arrived(host)

    def lose(self, *hosts: int) -> None:
        for host in hosts:
            self.peers.lose(host, "its link is gone")
        self.scoring.on_lost()

    def asked(self) -> list[int]:
        """The hosts that are now sent the extractor."""
        self.scoring.poll()
        traffic = {host: played.link.receive(0.0) for host, played in self.hosts.items()}
        events = {host: event for host, event in traffic.items() if event is not None}
        assert all(
            isinstance(event, Received) and event.message.kind == Kind.EXTRACTOR
            for event in events.values()
        )
        return sorted(events)

    def train(self, first: int, last: int) -> None:
        """The server is done with some iterations."""
        for i in range(first, last + 1):
            self.scoring.score_after(i - 1, i, GENERATOR)

    def tell(self, host: int, tensors: Mapping[str, Tensor], reason: str = "") -> None:
        """A host tells of its data, which it is asked for first."""
        if self.scoring.on and not self.has_asked:
            self.has_network()
        self.scoring.poll()
        self.scoring.note_real(host, messages.real(1, tensors, reason))

    def has_network(self) -> None:
        """The scorer has an extractor, and the server knows."""
        self.has_asked = True
        self.scorer.send(Message(Kind.EXTRACTOR, 0, {"kind": "file"}))
        self.scoring.poll(LONG)

    def handed(self) -> RealStatistics:
        """What the scorer is now handed of real data."""
        message = self.scorer.receive(LONG)
        assert message is not None
        assert message.kind == Kind.REAL
        return RealStatistics.from_tensors(message.tensors)

    def events(self) -> list[dict[str, Any]]:
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines if '"holdings"' not in line]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Makes one inside a test, so that it writes to the standard error that the test captures."""
    first, second = Pipe()

    def make(*hosts: int, interval: int = 10) -> Bench:
        made = Bench(tmp_path / "run", Channel(first), Channel(second), interval)
        made.join(*hosts)
        return made

    yield make
    for connection in (first, second):
        connection.close()


MakeBench = Callable[..., Bench]


def test_generators_are_handed_over_when_due(bench: MakeBench) -> None:
    made = bench(interval=30)
    made.train(1, 100)
    due = [made.scorer.receive(LONG) for _ in range(4)]
    assert [message.iteration for message in due if message is not None] == [30, 60, 90, 100]
    assert due[0] is not None
    assert due[0].kind == Kind.GENERATOR
    assert torch.equal(due[0].tensors["0.weight"], GENERATOR.state_dict()["0.weight"])
    assert made.scorer.receive(0) is None


def test_a_slow_scorer_skips_but_the_last_is_scored(
    bench: MakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    made = bench(interval=1)
    made.train(1, 100)
    assert "scoring takes longer than 1 iterations" in capsys.readouterr().err
    handed = iter(lambda: made.scorer.receive(0), None)
    assert [message.iteration for message in handed if message is not None] == [1, 2, 3, 4, 100]


def test_scores_are_recorded_once(bench: MakeBench, capsys: pytest.CaptureFixture[str]) -> None:
    made = bench()
    made.train(10, 10)
    made.scorer.send(Message(Kind.SCORES, 10, RECORD))
    made.scoring.finish()
    (recorded,) = made.events()
    assert recorded["event"] == "scores"
    assert recorded["scores"] == RECORD["scores"]
    assert "row" not in recorded
    assert (made.folder / "trace" / "scorer.jsonl").read_text().count("\n") == 1
    output = capsys.readouterr().err
    assert "scores: few samples" in output
    assert "scores: kid left out: no held-out split" in output


def test_every_host_is_asked_once(bench: MakeBench) -> None:
    made = bench(1, 2)
    assert made.asked() == [], "there is no extractor yet"
    made.has_network()
    assert made.asked() == [1, 2]
    made.join(5)
    assert made.asked() == [5]
    assert made.asked() == []


def test_a_host_that_is_only_arriving_is_asked_later(bench: MakeBench) -> None:
    made = bench(1, 2)
    made.scorer.send(Message(Kind.EXTRACTOR, 0, {"kind": "file"}))
    member = made.peers.member(2)
    assert member is not None
    member.arriving = True
    made.scoring.poll(LONG)
    assert made.asked() == [1]
    made.peers.arrived(2)
    assert made.asked() == [2]


def test_a_host_that_comes_back_is_asked_again_unless_it_has_told(bench: MakeBench) -> None:
    made = bench(1, 2)
    made.has_network()
    assert made.asked() == [1, 2]
    made.tell(1, statistics(1).tensors())
    made.lose(1, 2)
    made.join(1, 2)
    assert made.asked() == [2]


def test_statistics_that_are_none_are_refused_at_once(bench: MakeBench) -> None:
    made = bench(1, 2, 3, 4)
    whole = statistics(1).tensors()
    wrong: list[dict[str, Tensor]] = [{}, {**whole, "total": torch.zeros(2)}, {"x": torch.zeros(2)}]
    for host, tensors in enumerate(wrong, 2):
        with pytest.raises(BadInput, match="damaged statistics"):
            made.tell(host, tensors)
    made.lose(2, 3, 4)
    made.tell(1, whole)
    assert made.handed().num_samples == 20


def test_a_host_tells_once_for_each_question(bench: MakeBench) -> None:
    made = bench(1, 2)
    made.tell(1, statistics(1).tensors())
    made.tell(2, statistics(2).tensors())
    for _ in range(20):
        with pytest.raises(ValueError, match="was not asked"):
            made.tell(2, statistics(7).tensors())
    made.lose(1)
    assert made.handed().num_samples == 40
    assert made.scorer.receive(0) is None, "the scorer is told of a sum once"


def test_statistics_of_different_networks_are_not_added(
    bench: MakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    made = bench(1, 2)
    other = RealStatistics.empty(replace(EXTRACTOR, num_features=5))
    made.tell(1, statistics(1).tensors())
    made.tell(2, other.tensors())
    assert not made.scoring.on
    assert "scores are left out: statistics of 5 features" in capsys.readouterr().err
    made.join(3)
    made.tell(3, {})
    assert made.scoring.described(), "without scores nothing need be described"


def test_the_scorer_gets_the_sum_when_all_hosts_have_told(bench: MakeBench) -> None:
    made = bench(1, 3)
    made.tell(3, statistics(3).tensors())
    assert not made.scoring.described()
    assert made.scorer.receive(0) is None
    made.tell(1, statistics(1).tensors())
    assert made.scoring.described()
    result = made.handed()
    assert result.num_samples == 40
    wanted = (statistics(1) + statistics(3)).tensors()
    assert all(torch.equal(result.tensors()[name], tensor) for name, tensor in wanted.items())


def test_a_host_without_words_does_not_cost_the_others_their_scores(
    bench: MakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    made = bench(1, 2, 3)
    made.tell(2, {}, "I will not\nscores: perfect")
    made.tell(1, statistics(1).tensors())
    made.tell(3, statistics(3).tensors())
    assert made.handed().num_samples == 40
    assert made.scoring.on
    output = capsys.readouterr().err
    assert "rank 2 cannot tell of its data: I will not" in output
    assert "perfect" not in output


def test_a_host_that_describes_by_another_network_is_left_out(bench: MakeBench) -> None:
    made = bench(1, 2, 3)
    made.tell(2, RealStatistics.empty(replace(EXTRACTOR, num_features=5)).tensors())
    for host in (1, 3):
        made.tell(host, statistics(host).tensors())
    assert made.handed().num_samples == 40


def test_the_sum_does_not_wait_for_a_host_that_is_lost(bench: MakeBench) -> None:
    made = bench(1, 3)
    made.tell(3, statistics(3).tensors())
    assert made.scorer.receive(0) is None
    made.lose(1)
    assert made.handed().num_samples == 20


@pytest.mark.parametrize("cause", ["no network", "no data", "gone", "all lost"])
def test_scores_are_left_out_with_a_reason(
    cause: str, bench: MakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    made = bench(2)
    made.train(10, 10)
    if cause == "no network":
        made.scorer.send(Message(Kind.EXTRACTOR, 0, {"reason": cause}))
    elif cause == "no data":
        made.tell(2, {}, cause)
    elif cause == "gone":
        made.scorer.close()
    else:
        made.scoring.give_up_without_real()
    made.scoring.finish()
    assert not made.scoring.on
    made.train(20, 20)
    reasons = {"gone": "the scorer is gone", "all lost": "no host has told of its data"}
    output = capsys.readouterr().err
    assert output.count("scores are left out") == 1
    assert reasons.get(cause, cause) in output
    (recorded,) = made.events()
    assert recorded["event"] == "unscored"


def test_where_the_scorer_has_the_data_itself_no_host_need_tell(bench: MakeBench) -> None:
    made = bench()
    first, second = Pipe()
    with first, second:
        settings = RunSettings(iterations=100, eval_interval=10)
        scoring = Scoring(ScorerLink(Channel(first), knows_real=True), settings, made.peers)
        scoring.give_up_without_real()
        assert scoring.on


def test_a_user_who_asks_to_stop_does_not_wait(bench: MakeBench) -> None:
    made = bench()
    made.train(10, 10)
    made.link.abandon()
    made.scoring.finish()
    assert made.scoring.on
