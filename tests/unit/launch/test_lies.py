"""Hosts that lie as planned: what leaves in place of the truth, when, and how often."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mdgan.launch.faults import LIES, Fault, FaultFolder, Planned
from mdgan.launch.lies import CLAIMS, Lie, lying
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Received
from mdgan.transport.host_end import HostTransport
from mdgan.transport.memory import MemoryNetwork

HELLO = {
    "host": 2,
    "workers": [2, 3],
    "num_samples": {"2": 5, "3": 6},
    "class_counts": {"2": [5], "3": [6]},
    "generation": 1,
    "key": "mine",
}


class Network:
    """A server that lets all hosts in but those of a later generation, and hears what they say."""

    def __init__(self) -> None:
        self.hellos: list[Mapping[str, Any]] = []
        self._network = MemoryNetwork(Timeouts(), self._admit)

    def connect(self, hello: Mapping[str, Any], _timeout_seconds: float = 5.0) -> HostTransport:
        return self._network.join(hello["host"], hello)

    def heard(self) -> list[Message]:
        """What has come since the last time."""
        found = []
        while (event := self._network.server.receive(0.0)) is not None:
            found += [event.message] if isinstance(event, Received) else []
        return found

    def _admit(self, hello: Mapping[str, Any]) -> Mapping[str, Any] | str:
        self.hellos.append(hello)
        return "too new" if hello["generation"] > 1 else {"iteration": 0}


@pytest.fixture
def network() -> Network:
    return Network()


def feedback(iteration: int) -> Message:
    return Message("FEEDBACK", iteration, {"sums": [[2]]}, {"values": torch.ones(3)})


def liar(network: Network, folder: Path, *faults: Fault) -> HostTransport:
    """The link of host 2, whose lies may be told at once."""
    for number in range(len(faults)):
        FaultFolder(folder).allow(number)
    planned = Planned(faults, FaultFolder(folder))
    return lying(network.connect, planned, [2, 3])(HELLO, 5.0)


def lie(way: str, *numbers: int, kind: str = "FEEDBACK") -> Fault:
    return Fault("host-2", way, kind, 7, numbers)


def said_by(network: Network, link: HostTransport, *iterations: int) -> list[tuple[str, int]]:
    for iteration in iterations:
        link.send(feedback(iteration))
    return [(message.kind, message.iteration) for message in network.heard()]


def test_a_host_without_planned_lies_says_the_truth(network: Network, tmp_path: Path) -> None:
    assert lying(network.connect, Planned(), [2, 3]) == network.connect
    link = liar(network, tmp_path, Fault("host-3", "again", "FEEDBACK", 1, (0,)))
    assert said_by(network, link, 6, 8) == [("FEEDBACK", 6), ("FEEDBACK", 8)]


def test_a_lie_of_a_host_that_is_gone_is_told_by_another(network: Network, tmp_path: Path) -> None:
    link = liar(network, tmp_path, Fault("host-3", "again", "FEEDBACK", 1, (0,)))
    FaultFolder(tmp_path).redirect(0, None, "host-4")
    FaultFolder(tmp_path).redirect(0, "host-4", "host-2")
    assert said_by(network, link, 6, 8) == [("FEEDBACK", 6)] * 2 + [("FEEDBACK", 8)]
    (strike,) = FaultFolder(tmp_path).struck().values()
    assert strike.role == "host-2"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lie("again", 1), [("FEEDBACK", 8)] * 4),
        (lie("shift", 1), [("FEEDBACK", 7)]),
        (lie("shift", 0), [("FEEDBACK", 0)]),
        (lie("as", list(Kind).index(Kind.LEAVE)), [("FEEDBACK", 8), ("LEAVE", 8)]),
    ],
    ids=["again", "earlier", "long ago", "another kind"],
)
def test_a_lie_is_told_once(
    network: Network, tmp_path: Path, fault: Fault, said: list[tuple[str, int]]
) -> None:
    link = liar(network, tmp_path, fault)
    assert said_by(network, link, 6, 8, 9) == [("FEEDBACK", 6), *said, ("FEEDBACK", 9)]
    (strike,) = FaultFolder(tmp_path).struck().values()
    assert (strike.number, strike.iteration) == (0, 8)
    assert strike.did.startswith("said it")


@pytest.mark.parametrize(("way", "changed"), [("change", [8]), ("always", [8, 9, 10])])
def test_a_part_is_replaced_once_or_from_then_on(
    network: Network, tmp_path: Path, way: str, changed: list[int]
) -> None:
    link = liar(network, tmp_path, lie(way, 0, 0))
    for iteration in (6, 8, 9, 10):
        link.send(feedback(iteration))
    assert [m.iteration for m in network.heard() if "sums" not in m.fields] == changed
    (strike,) = FaultFolder(tmp_path).struck().values()
    assert strike.did == "replaced sums by nothing"


def test_a_lie_waits_until_it_may_be_told_and_for_its_kind(
    network: Network, tmp_path: Path
) -> None:
    planned = Planned((lie("again", 0), lie("again", 0, kind="SPANS")), FaultFolder(tmp_path))
    link = lying(network.connect, planned, [2])(HELLO, 5.0)
    assert said_by(network, link, 8) == [("FEEDBACK", 8)]
    FaultFolder(tmp_path).allow(0)
    FaultFolder(tmp_path).allow(1)
    assert said_by(network, link, 9) == [("FEEDBACK", 9)] * 2
    assert list(FaultFolder(tmp_path).struck()) == [0]


def test_what_is_laid_out_for_another_host_is_replaced(network: Network, tmp_path: Path) -> None:
    link = liar(network, tmp_path, lie("change", 1, 4))
    honest = network.connect({**HELLO, "host": 5})
    link.exchange(7, {5: feedback(7)}, [], {})
    arrived = honest.exchange(7, {}, [2], {2: None})[2]
    assert isinstance(arrived, Message)
    assert arrived.tensors["values"].tolist() == [-1.0] * 3


def test_a_link_that_follows_lies_on(network: Network, tmp_path: Path) -> None:
    FaultFolder(tmp_path).allow(0)
    connect = lying(network.connect, Planned((lie("always", 0, 0),), FaultFolder(tmp_path)), [2])
    for _ in range(2):
        link = connect(HELLO, 5.0)
        link.send(feedback(8))
        link.close()
    assert ["sums" in message.fields for message in network.heard()] == [False, False]


@pytest.mark.parametrize("number", range(len(CLAIMS)), ids=list(CLAIMS))
def test_a_host_brings_another_which_ends_with_it(
    network: Network, tmp_path: Path, number: int
) -> None:
    link = liar(network, tmp_path, lie("claim", number, kind="HELLO"))
    link.send(feedback(7))
    link.close()
    (strike,) = FaultFolder(tmp_path).struck().values()
    first, second = network.hellos
    assert first.items() >= HELLO.items()
    assert list(second["num_samples"]) == list(map(str, second["workers"]))
    assert second["host"] == second["workers"][0]
    ends = "refused this host: too new" if second["generation"] > 1 else "was let in"
    assert strike.did.startswith("came as ")
    assert strike.did.endswith(ends)


def test_a_hello_with_a_part_replaced(network: Network, tmp_path: Path) -> None:
    """Part 4 is the number of samples; without it the liar's own end would break."""
    link = liar(network, tmp_path, lie("change", 4, 0, kind="HELLO"))
    link.send(feedback(7))
    link.close()
    assert "num_samples" not in network.hellos[1]
    (strike,) = FaultFolder(tmp_path).struck().values()
    assert strike.did == "came with a hello with num_samples by nothing: was let in"


@given(st.integers(0, 999), st.integers(0, 999))
def test_one_part_is_replaced_and_words_say_which(part: int, value: int) -> None:
    truth = Message("FEEDBACK", 3, {"sums": [[2]]}, {"values": torch.ones(3, 2)})
    told, what = Lie(part, value).replaced(truth)
    assert (told.kind, told.iteration) == (truth.kind, truth.iteration)
    parts = {**truth.fields, **truth.tensors}
    kept = {name: v for name, v in {**told.fields, **told.tensors}.items() if v is parts[name]}
    assert len(kept) == len(parts) - 1
    name, by, _ = what.partition(" by ")
    assert by
    assert name not in kept
    assert len(what) < 99


def test_every_planned_lie_has_as_many_numbers_as_it_takes(
    network: Network, tmp_path: Path
) -> None:
    for place, (way, count) in enumerate(LIES.items()):
        folder = tmp_path / str(place)
        folder.mkdir()
        kind = "HELLO" if way == "claim" else "FEEDBACK"
        link = liar(network, folder, lie(way, *[999] * count, kind=kind))
        link.send(feedback(7))
        link.close()
        assert len(FaultFolder(folder).struck()) == 1
