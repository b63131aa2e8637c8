"""The server's side of masked sums, with hosts that a test plays and that drop out."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from mdgan import messages
from mdgan.engine.host_keys import HostKeys, run_digest
from mdgan.engine.stages.contract import Leaving
from mdgan.engine.stages.mask_host import HostMask
from mdgan.messages import Kind, Message
from tests.claims.registry import claim
from tests.unit.families.mdgan.played import IDENTITY, Played, feedback_of, generator_after
from tests.unit.families.mdgan.stage import Stage


class Masking(Played):
    """A host of one worker that masks what it answers."""

    def arrive(self, stage: Stage, *, lacks: bool = False, least: int = 3) -> None:
        self.masks = HostMask(HostKeys(self.workers), stage.form, least)
        told = self.masks.begin(run_digest(self.welcome, IDENTITY))
        self.key = told["key"]
        self.link.send(messages.ready(0, [] if lacks else self.workers, None, told))

    def take(self, kind: str, iteration: int | None = None) -> Message:
        message = super().take(kind, iteration)
        for told in self.seen:
            if told.kind == Kind.KEYS:
                self.masks.keys.learn(told.fields["keys"])
        return message

    def answer_masked(self, *, broken: bool = False) -> None:
        question, (worker,) = self.take("BATCHES"), self.workers
        answer = feedback_of(worker, question.iteration)
        leaving = Leaving(
            question,
            {worker: answer * torch.nan if broken else answer},
            {worker: torch.zeros(2)},
            {worker: question.fields["groups"][str(worker)]},
            about=lambda: {0: b"", 1: b"", 2: b""},
        )
        self.send(self.masks.pack(leaving))

    def confirm(self) -> None:
        self.send(self.masks.confirm(self.take(Kind.SURVIVORS)))

    def reveal(self) -> None:
        self.send(self.masks.reveal(self.take(Kind.UNMASK)))


@contextmanager
def secure(
    folder: Path, number: int, kappa: int, least: Mapping[int, int] | None = None
) -> Iterator[tuple[Stage, dict[int, Masking]]]:
    stage = Stage(folder, num_workers=number, iterations=1, kappa=kappa, secure_aggregation=True)
    hosts = {n: Masking(stage.network, n) for n in range(1, number + 1)}
    stage.actor.start()
    for n, host in hosts.items():
        host.arrive(stage, least=(least or {}).get(n, 3))
    try:
        yield stage, hosts
    finally:
        stage.close()


def all_answer(hosts: Iterable[Masking]) -> None:
    for host in hosts:
        host.answer_masked()


def all_reveal(hosts: Iterable[Masking]) -> None:
    for host in hosts:
        host.reveal()


def asked(hosts: dict[int, Masking], kind: Kind) -> set[int]:
    return {number for number, host in hosts.items() if kind in host.message_kinds()}


def test_a_host_that_answers_and_drops_out_then_is_in_the_sum(tmp_path: Path) -> None:
    """It is asked for nothing more, and no other host for its answer."""
    with secure(tmp_path, 7, 1) as (stage, hosts):
        all_answer(hosts.values())
        hosts[1].take(Kind.UNMASK)
        stage.cut(7)
        stage.cut(6)
        for n in range(2, 6):
            hosts[n].reveal()
        hosts[1].send(hosts[1].masks.reveal(hosts[1].seen[-1]))
        stage.finished(*[hosts[n] for n in range(1, 6)])
        assert not asked(hosts, Kind.SURVIVORS)
        assert [row["workers"] for row in stage.metrics()] == [7]
        assert stage.has_learnt(generator_after([range(1, 8)], kappa=1))


def test_sums_are_as_large_as_the_host_wants_that_insists_on_most(tmp_path: Path) -> None:
    """Two sums of four hosts each would be enough for all but one."""
    with secure(tmp_path, 8, 2, least={3: 5}) as (stage, hosts):
        all_answer(hosts.values())
        all_reveal(hosts.values())
        stage.finished(*hosts.values())
        assert [row["workers"] for row in stage.metrics()] == [8]


def test_a_run_waits_for_as_many_hosts_as_all_insist_on(tmp_path: Path) -> None:
    with secure(tmp_path, 5, 1, least=dict.fromkeys(range(1, 7), 5)) as (stage, hosts):
        all_answer(hosts[n] for n in range(1, 5))
        hosts[5].take("BATCHES")
        stage.cut(5)
        newcomer = Masking(stage.network, 6)
        newcomer.arrive(stage, least=5)
        every = [*(hosts[n] for n in range(1, 5)), newcomer]
        all_answer(every)
        all_reveal(every)
        stage.finished(*every)
        assert [row["workers"] for row in stage.metrics()] == [5]


@pytest.mark.parametrize("wanted", [5, 60_000])
def test_a_run_goes_on_without_a_host_that_insists_on_more_than_there_are(
    tmp_path: Path, wanted: int
) -> None:
    with secure(tmp_path, 5, 1, least={3: wanted}) as (stage, hosts):
        if wanted == 5:
            all_answer(hosts[n] for n in range(1, 5))
            hosts[5].take("BATCHES")
            stage.cut(5)
        others = [host for n, host in hosts.items() if n != 3 and (n != 5 or wanted > 5)]
        all_answer(others)
        all_reveal(others)
        stage.finished(*others, hosts[3])
        assert [row["workers"] for row in stage.metrics()] == [len(others)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda key: key, "the key of another host"),
        (lambda key: key + "\n", "a malformed key"),
        (lambda key: key[:-2] + f"{int(key[-2:], 16) | 128:02x}", "written otherwise"),
        (lambda _: "00" * 32, "ValueError"),
        (lambda _: "AAAA", "a malformed key"),
    ],
)
def test_a_newcomer_with_no_key_of_its_own_is_refused(
    tmp_path: Path, change: Callable[[str], str], why: str
) -> None:
    """If the others were told of it, they would take part in no sum with the two."""
    with secure(tmp_path, 4, 1) as (stage, hosts):
        all_answer(hosts.values())
        newcomer = Masking(stage.network, 5)
        own = HostKeys([5]).make_key(run_digest(newcomer.welcome, IDENTITY))
        newcomer.link.send(messages.ready(0, [5], None, {**own, "key": change(hosts[1].key)}))
        assert newcomer.lost()
        all_reveal(hosts.values())
        stage.finished(*hosts.values())
        (lost,) = stage.events("lost")
        assert lost["workers"] == [5]
        assert why in lost["reason"]


def test_a_sum_that_lacks_an_answer_is_that_of_the_others(tmp_path: Path) -> None:
    with secure(tmp_path, 8, 2) as (stage, hosts):
        all_answer(host for n, host in hosts.items() if n != 8)
        stage.cut(8)
        for n in (2, 4, 6):
            hosts[n].confirm()
        left = [hosts[n] for n in range(1, 8)]
        all_reveal(left)
        stage.finished(*left)
        assert asked(hosts, Kind.SURVIVORS) == {2, 4, 6}
        assert [row["workers"] for row in stage.metrics()] == [7]
        assert stage.has_learnt(generator_after([range(1, 8)], [range(1, 9)]))


@pytest.mark.parametrize("phase", ["confirming", "revealing"])
def test_hosts_may_drop_out_until_two_thirds_are_left(tmp_path: Path, phase: str) -> None:
    """Of 7 hosts one does not answer, and one is gone later; its answer is in the sum."""
    with secure(tmp_path, 7, 1) as (stage, hosts):
        all_answer(host for n, host in hosts.items() if n != 7)
        stage.cut(7)
        confirming = range(1, 6 if phase == "confirming" else 7)
        for n in confirming:
            hosts[n].confirm()
        if phase == "confirming":
            hosts[6].take(Kind.SURVIVORS)
        else:
            hosts[6].take(Kind.UNMASK)
        stage.cut(6)
        left = [hosts[n] for n in range(1, 6)]
        all_reveal(left)
        stage.finished(*left)
        assert [row["workers"] for row in stage.metrics()] == [6]
        assert stage.has_learnt(generator_after([range(1, 7)], [range(1, 8)], kappa=1))


@claim("too-few-left", "Where too few hosts are left, the sum is left out and training goes on")
def test_a_sum_that_too_few_hosts_survive_is_left_out(tmp_path: Path) -> None:
    """Hosts 2, 4 and 6 would be the second sum of 7 hosts; two of three cannot unmask it."""
    with secure(tmp_path, 7, 2) as (stage, hosts):
        all_answer(host for n, host in hosts.items() if n != 6)
        stage.cut(6)
        all_reveal(hosts[n] for n in (1, 3, 5, 7))
        stage.finished(*[hosts[n] for n in (1, 2, 3, 4, 5, 7)])
        assert asked(hosts, Kind.UNMASK) == {1, 3, 5, 7}
        assert not asked(hosts, Kind.SURVIVORS)
        assert [row["workers"] for row in stage.metrics()] == [4]


def test_the_others_do_without_a_host_that_abstains(tmp_path: Path) -> None:
    with secure(tmp_path, 4, 1) as (stage, hosts):
        for n, host in hosts.items():
            host.answer_masked(broken=n == 2)
        for n in (1, 3, 4):
            hosts[n].confirm()
        all_reveal(hosts[n] for n in (1, 3, 4))
        stage.finished(*hosts.values())
        assert [row["workers"] for row in stage.metrics()] == [3]
        assert stage.events("attendance")[-1]["workers"]["2"].get("refused", 0) == 1


def test_each_key_is_told_once(tmp_path: Path) -> None:
    with secure(tmp_path, 4, 1) as (stage, hosts):
        all_answer(hosts.values())
        all_reveal(hosts.values())
        stage.finished(*hosts.values())
        for host in hosts.values():
            told = [m.fields["keys"] for m in host.seen if m.kind == Kind.KEYS]
            workers = [key["workers"] for keys in told for key in keys]
            assert sorted(workers) == [[n] for n in hosts if n != host.number]


@pytest.mark.parametrize(
    "key", [{}, {"workers": [2], "key": "00" * 32}, {"workers": [3], "key": "ab" * 32}, 7]
)
def test_a_host_with_a_key_that_is_none_is_let_go_and_harms_no_other(
    tmp_path: Path, key: object
) -> None:
    stage = Stage(tmp_path, num_workers=4, iterations=1, secure_aggregation=True, strikes=1)
    hosts = {n: Masking(stage.network, n) for n in range(1, 5)}
    stage.actor.start()
    try:
        hosts[2].link.send(Message(Kind.READY, 0, {"holds": [2], "told": {}, "key": key}))
        for n in (1, 3, 4):
            hosts[n].arrive(stage)
        stage.wait_for_event("shut out")
        all_answer(hosts[n] for n in (1, 3, 4))
        all_reveal(hosts[n] for n in (1, 3, 4))
        stage.finished(hosts[1], hosts[3], hosts[4])
        assert [row["workers"] for row in stage.metrics()] == [3]
    finally:
        stage.close()
