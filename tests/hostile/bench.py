"""Runs with a hostile host: a real one whose messages of one kind are changed as they leave.

The server, the honest hosts and the rest of the hostile host are what users have, all in one
process. To add a case, say which messages are changed, from which iteration on, and how:

    def test_losses_of_another_shape(tmp_path: Path) -> None:
        liar = Hostile("FEEDBACK", lambda message: with_tensor(message, "losses", torch.zeros(1)))
        assert not hostile_run(tmp_path, liar).harm

The function gets each message of that kind and returns what leaves in its place: a message, several
in a list, or none. `DISCRIMINATORS` are what other hosts fetch in a swap, and `HELLO` is what the
host says when it joins. A `Stranger` is a second host of the liar's, which joins while training is
under way and claims ranks. `hostile_run` notes what must not happen in any run; see there.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from safetensors.torch import load
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.families.mdgan.messages import SWAP
from mdgan.launch import processes
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Admit, Lost, Received, Tickets
from mdgan.transport.frames import Frame
from mdgan.transport.memory import MemoryHostTransport, MemoryNetwork
from tests.processes import Finished, generator_bytes, read_events, run_here, wait_until

RANK = 4
"""The hostile one of the four ranks; each is its own host."""
HONEST = (1, 2, 3)
TINY = (
    *("--transport", "memory", "--world-size", "5", "--workers-per-host", "1", "--threads", "1"),
    *("--batch-size", "4", "--sample-interval", "0", "--checkpoint-interval", "0"),
)
FAMILIES: Mapping[str, Sequence[str]] = {
    "mdgan": ("--iterations", "8", "--swap-interval", "2"),
    "fl-gan": ("--algorithm", "fl-gan", "--iterations", "6", "--round-iterations", "1"),
    "paragan": ("--algorithm", "paragan", "--iterations", "5"),
    "clients": (
        *("--algorithm", "fl-gan", "--iterations", "6", "--round-iterations", "1"),
        *("--clients", "8", "--slots", "1"),
    ),
}
ANSWER = {"mdgan": "FEEDBACK", "fl-gan": "UPDATE", "paragan": "GGRADIENT", "clients": "UPDATE"}
"""The kind of message that each family's hosts answer with."""

Change = Callable[[Message], Message | Sequence[Message] | None]


@dataclass(frozen=True)
class Stranger:
    """A host that joins while training is under way, and answers every question.

    One that claims the liar's own rank comes when the liar's link has just been lost.

    Attributes:
        workers: the ranks that it claims.
        answer: makes what it answers to a question; None: nothing.
        hello: what it says instead of what a host says, field by field.
        told: what it tells of its workers when it arrives.
        holds: the ranks that it says it can go on with; all of them if None.
    """

    workers: Sequence[int]
    answer: Callable[[Message], Message | None] = lambda _question: None
    hello: Mapping[str, Any] = field(default_factory=dict)
    told: Any = field(default_factory=dict)
    holds: Sequence[int] | None = None


@dataclass(frozen=True)
class Hostile:
    """What is wrong with the hostile host.

    Attributes:
        kind: of the messages that are changed.
        change: from a message to what leaves in its place.
        from_iteration: earlier messages leave as they are.
        brings: joins just before the first message is changed.
        stalls: whether it lays nothing out in swaps, so that others wait for it.
    """

    kind: str
    change: Change = lambda message: message
    from_iteration: int = 0
    brings: Stranger | None = None
    stalls: bool = False


class HostileRun:
    """What became of a run.

    Attributes:
        result: its exit status, and what it told.
        folder: of the run.
        refusals: why strangers were not let in.
        harm: what the hostile host has done that it must not be able to do.
    """

    def __init__(self, result: Finished, folder: Path, refusals: Sequence[str] = ()) -> None:
        self.result = result
        self.folder = folder
        self.refusals = refusals
        self.harm: list[str] = []

    def ranks(self, event: str) -> set[int]:
        """The ranks that an event of some name was about."""
        return {rank for row in read_events(self.folder, event) for rank in row["workers"]}

    def attendance(self) -> Mapping[str, Mapping[str, int]]:
        """By rank, how often it has answered, was late, refused or lost."""
        (row,) = read_events(self.folder, "attendance")
        counts: Mapping[str, Mapping[str, int]] = row["workers"]
        return counts

    @property
    def out(self) -> set[int]:
        """The ranks that lost their link or were shut out."""
        return self.ranks("lost") | self.ranks("shut out")

    @property
    def generator(self) -> bytes:
        """As it lies on disk."""
        return generator_bytes(self.folder)


def hostile_run(
    folder: Path,
    hostile: Hostile,
    family: str = "mdgan",
    flags: Sequence[str] = (),
    *,
    spoils_answers: bool = False,
    may_be_believed: bool = False,
) -> HostileRun:
    """Runs with a hostile host, and notes as `harm` what must not happen in any such run.

    The run ends well, with a finite generator. No honest rank is lost, shut out or refused
    anything, and each has answered as often as in the same run without a liar. The hostile rank is
    out, or what it said had no effect: the generator is, bit for bit, that of the same run without
    a liar, or with one that said nothing instead. A `Stranger` that was let in takes part, so there
    the generators differ.

    Args:
        folder: an empty one.
        hostile: what is wrong with the hostile host.
        family: of `FAMILIES`.
        flags: others.
        spoils_answers: whether honest hosts may be made to answer what cannot be used. It must cost
            none its place, but then answers are refused, and are missing from the generator.
        may_be_believed: whether the server may take what is said for what the host computed.
    """
    honest = _honest_run(family, *flags)
    ran = _run(folder, hostile, family, *flags)
    result = f"\n{ran.result}"
    if ran.result.status or "Traceback" in ran.result.errors:
        ran.harm.append(f"the run did not end well{result}")
        return ran
    if not all(tensor.isfinite().all() for tensor in load(ran.generator).values()):
        ran.harm.append(f"the generator is not finite{result}")
    if ran.out.intersection(HONEST):
        ran.harm.append(f"honest ranks are out: {sorted(ran.out)}{result}")
    for rank, usual in honest.counts.items():
        if int(rank) in HONEST:
            record = ran.attendance()[rank]
            refused = record.get("refused", 0)
            if refused and not spoils_answers:
                ran.harm.append(f"honest rank {rank} was refused {refused} answers{result}")
            if record["answered"] + refused * spoils_answers < usual["answered"]:
                ran.harm.append(f"honest rank {rank}: {record} instead of {usual}{result}")
    is_believed = spoils_answers or may_be_believed
    if not is_believed and (hostile.brings is None or ran.refusals):
        silent = replace(hostile, change=lambda _message: None)
        had_no_effect = RANK in ran.out or ran.generator == honest.generator
        if not had_no_effect and ran.generator != _silent_run(silent, family, *flags):
            ran.harm.append(f"the hostile rank is not out, and what it said had an effect{result}")
    return ran


@dataclass(frozen=True)
class _Honest:
    generator: bytes
    counts: Mapping[str, Mapping[str, int]]


@lru_cache
def _honest_run(family: str, *flags: str) -> _Honest:
    with TemporaryDirectory() as folder:
        ran = _run(Path(folder), None, family, *flags)
        assert ran.result.status == 0, ran.result
        return _Honest(ran.generator, ran.attendance())


def _silent_run(hostile: Hostile, family: str, *flags: str) -> bytes:
    with TemporaryDirectory() as folder:
        return _run(Path(folder), hostile, family, *flags).generator


def _run(folder: Path, hostile: Hostile | None, family: str, *flags: str) -> HostileRun:
    refusals: list[str] = []
    network = partial(HostileNetwork, hostile, refusals)
    with patch.object(processes, "MemoryNetwork", network):
        arguments = [*TINY, *FAMILIES[family], *flags]
        result = run_here("train", *arguments, "--out", "run", cwd=folder)
    return HostileRun(result, folder / "run", refusals)


class HostileNetwork(MemoryNetwork):
    """A network on which one host lies.

    Args:
        hostile: what is wrong with it; None: nothing.
        refusals: why strangers were not let in; is added to.
        timeouts: the time limits.
        admit: see `MemoryNetwork`.
    """

    def __init__(
        self, hostile: Hostile | None, refusals: list[str], timeouts: Timeouts, admit: Admit
    ) -> None:
        limits = replace(timeouts, answer=40.0, swap=20.0, link=10.0)
        if hostile is not None and hostile.stalls:
            limits = replace(limits, swap=1.0, link=0.8, farewell=0.5)
        super().__init__(limits, admit)
        self.hostile = hostile
        self.refusals = refusals

    def join(self, host: int, hello: Mapping[str, Any]) -> MemoryHostTransport:
        """Changes what the hostile host says of itself."""
        if self.hostile is not None and host == RANK and self.hostile.kind == Kind.HELLO:
            changed = self.hostile.change(Message(Kind.HELLO, 0, hello))
            assert isinstance(changed, Message), "a host says one hello"
            hello = changed.fields
        link = super().join(host, hello)
        if isinstance(link, HostileLink):
            link.hello = hello
        return link

    def make_host(self, host: int, welcome: Mapping[str, Any]) -> MemoryHostTransport:
        """The hostile host gets a link that changes what it sends."""
        if self.hostile is None or host != RANK:
            return super().make_host(host, welcome)
        return HostileLink(self, self.hostile, welcome)

    def bring(self, stranger: Stranger, hello: Mapping[str, Any]) -> None:
        """Lets a stranger join, and answer in its own thread."""
        counts = next(iter(hello["class_counts"].values()))
        workers = [str(worker) for worker in stranger.workers]
        claims = {
            **hello,
            "host": stranger.workers[0],
            "workers": list(stranger.workers),
            "num_samples": dict.fromkeys(workers, sum(counts)),
            "class_counts": dict.fromkeys(workers, counts),
            "key": "a stranger's",
            **stranger.hello,
        }
        links: list[MemoryHostTransport] = []

        def is_decided() -> bool:
            try:
                links.append(self.join(stranger.workers[0], claims))
            except BadInput as error:
                if RANK in stranger.workers and "has joined already" in str(error):
                    return False
                self.refusals.append(str(error))
            return True

        wait_until(is_decided, "the server hears that the liar is gone")
        if not links:
            return
        (link,) = links
        holds = list(stranger.workers if stranger.holds is None else stranger.holds)
        ready = Message(Kind.READY, 0, {"holds": holds, "told": stranger.told})
        link.send(ready)
        threading.Thread(target=_serve, args=(stranger, link), daemon=True).start()


def _serve(stranger: Stranger, link: MemoryHostTransport) -> None:
    while not isinstance(event := link.receive(60.0), Lost | None):
        if isinstance(event, Received):
            if event.message.kind == Kind.STOP:
                break
            if event.message.kind == SWAP:  # it has nothing to give, and says so at once
                link.exchange(event.message.iteration, {}, [], {}, Tickets({}, {}))
            answer = stranger.answer(event.message)
            if answer is not None:
                link.send(answer)
    link.close()


class HostileLink(MemoryHostTransport):
    """Changes what the host sends.

    Args:
        network: that it is part of.
        hostile: what is wrong.
        welcome: what the server told.

    Attributes:
        hello: what the host said of itself.
    """

    def __init__(
        self, network: HostileNetwork, hostile: Hostile, welcome: Mapping[str, Any]
    ) -> None:
        super().__init__(network, RANK, welcome)
        self.hello: Mapping[str, Any] = {}
        self._hostile = hostile
        self._hostile_network = network
        self._brings = hostile.brings

    def send(self, message: Message) -> int:
        """See `HostTransport`."""
        return sum(map(super().send, self._changed(message)))

    def exchange(
        self,
        iteration: int,
        outgoing: Mapping[int, Message],
        incoming: Collection[int],
        addresses: Mapping[int, Any],
        tickets: Tickets,
    ) -> dict[int, Message | Lost]:
        """See `HostTransport`."""
        changed = {taker: lie for taker, truth in outgoing.items() for lie in self._changed(truth)}
        return super().exchange(iteration, changed, incoming, addresses, tickets)

    def _lay_out(
        self, iteration: int, frames: Mapping[int, Frame], tickets: Mapping[int, str]
    ) -> None:
        if not self._hostile.stalls:
            super()._lay_out(iteration, frames, tickets)

    def _changed(self, message: Message) -> Sequence[Message]:
        hostile = self._hostile
        if message.kind != hostile.kind or message.iteration < hostile.from_iteration:
            return [message]
        if self._brings is not None:
            stranger, self._brings = self._brings, None
            if RANK in stranger.workers:
                self._hostile_network.server.lose(self.guest, "its connection closed")
                self.lose_server("its connection closed")
            self._hostile_network.bring(stranger, self.hello)
        changed = hostile.change(message)
        if isinstance(changed, Message):
            return [changed]
        return changed or []


def with_fields(message: Message, **fields: Any) -> Message:
    """The same message with other fields."""
    return replace(message, fields={**message.fields, **fields})


def with_tensor(message: Message, name: str, tensor: Tensor) -> Message:
    """The same message with another tensor."""
    return replace(message, tensors={**message.tensors, name: tensor})


def with_tensors(message: Message, change: Callable[[Tensor], Tensor]) -> Message:
    """The same message with each of its tensors changed."""
    return replace(message, tensors={n: change(tensor) for n, tensor in message.tensors.items()})
