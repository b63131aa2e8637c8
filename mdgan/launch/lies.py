"""Hosts that lie, for `mdgan chaos --hostile`: what leaves such a host in place of the truth.

A lie is a planned fault whose phase is a kind of message (see `mdgan.launch.faults`). It is told
with the first such message from its iteration on:

    change P V  says it with part P replaced by value V
    always P V  does so from then on
    again N     says it and then says it N-th of `TIMES` times more
    shift N     says it as if it belonged to another iteration
    as N        says it and says the same as a message of another kind
    claim N     opens another link, with the N-th of `CLAIMS` as its hello; nothing is said there

Numbers count what there is, and then from the first again. With the kind HELLO the replaced message
is the hello of another link.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf, nan
from operator import methodcaller
from typing import Any, NamedTuple, cast

import msgspec
import torch
from torch import Tensor

from mdgan import messages
from mdgan.engine.hello import MOST_RANKS
from mdgan.engine.host.loop import Connect
from mdgan.errors import Interrupted, one_line
from mdgan.launch.faults import Fault, FaultFolder, Planned, Strike
from mdgan.messages import Kind, Message
from mdgan.transport.base import Lost, Received
from mdgan.transport.host_end import HostTransport

TIMES = (1, 3, 1000)
_SHIFTS = (-(10**6), -1, 1, 10**6)
_SHOWN = 40
_TO_COME_SECONDS = 5.0
_TO_STAY_SECONDS = 10.0
_LOOK_SECONDS = 0.5


def _filled(value: float, tensor: Tensor) -> Tensor:
    return torch.full(tensor.shape, value)


VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**400, 1e308, nan, inf, "", "x", "\x1b[2J", "9" * 5000),
    *([], [[]], [None], [-1], [1], [4, 4], [[1]], [[4], []], [99], [10**30], [nan]),
    *({}, {"1": 1}, {"1": "0" * 64}, {"99": []}, {"4": nan}, {"": {}}, {"x": {"x": []}}),
)
"""In place of a field: of a wrong type, negative, huge, NaN, empty, of another's rank."""
TENSORS: Mapping[str, Callable[[Tensor], Tensor]] = {
    **{f"nothing but {value}": partial(_filled, value) for value in (nan, inf, 3e38, -1.0)},
    **{str(kind): methodcaller("to", kind) for kind in (torch.int64, torch.float64)},
    "true and false": lambda t: t.to(torch.bool),
    "none of it": lambda t: t[:0] if t.dim() else torch.zeros(0),
    "a number": lambda _: torch.tensor(1.0),
    "two of them": lambda t: torch.stack([t, t]),
    "twice as long": lambda t: torch.cat([t, t]) if t.dim() else t,
    "flat": lambda t: t.flatten(),
}
"""In place of a tensor."""


def _claim(hello: Mapping[str, Any], workers: Collection[int], **others: Any) -> Mapping[str, Any]:
    """The hello of a host that claims some ranks, each with the samples of a worker here."""
    of_one = {name: next(iter(hello[name].values())) for name in ("num_samples", "class_counts")}
    of_all = {name: dict.fromkeys(map(str, workers), value) for name, value in of_one.items()}
    host = next(iter(workers))
    return {**hello, "host": host, "workers": list(workers), "key": "other", **of_all, **others}


CLAIMS: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "itself once more": lambda hello: hello,
    "itself, of generation 1000000": lambda hello: {**hello, "generation": 10**6},
    "itself with another key": lambda hello: {**hello, "key": "other"},
    "the rank of another host": lambda hello: _claim(hello, [1 if hello["host"] > 1 else 2]),
    "ranks 20 to 24": lambda hello: _claim(hello, range(20, 25)),
    "15,000 ranks": lambda hello: _claim(hello, range(50, 15_050)),
    "a rank with many samples": lambda hello: _claim(
        hello, [25], num_samples={"25": MOST_RANKS}, class_counts={"25": [MOST_RANKS]}
    ),
}
"""What another host says as it joins, made from the hello of the host that brings it."""


class Lie(NamedTuple):
    """Which part of a message is replaced, and by what.

    Attributes:
        part: counts the fields and tensors of the message, and then from the first again.
        value: counts the values that may stand there, and then from the first again; 0: none.
    """

    part: int
    value: int

    def told(self, message: Message) -> Message:
        """The message with that part replaced or missing."""
        return self.replaced(message)[0]

    def replaced(self, message: Message) -> tuple[Message, str]:
        """The message with that part replaced or missing, and which part by what, in words."""
        parts = [*sorted(message.fields), *sorted(message.tensors)]
        if not parts:
            return message, "nothing, as it is empty"
        name = parts[self.part % len(parts)]
        fields, tensors, by = {**message.fields}, {**message.tensors}, "nothing"
        if name in fields:
            del fields[name]
            if place := self.value % (len(VALUES) + 1):
                fields[name] = VALUES[place - 1]
                by = repr(VALUES[place - 1])[:_SHOWN] if place != _HUGE else "10^400"
        else:
            tensor = tensors.pop(name)
            if place := self.value % (len(TENSORS) + 1):
                by = list(TENSORS)[place - 1]
                tensors[name] = TENSORS[by](tensor)
        return replace(message, fields=fields, tensors=tensors), f"{name} by {by}"


_HUGE = 1 + VALUES.index(10**400)  # Python does not write so many digits


def lying(connect: Connect, planned: Planned, workers: Sequence[int]) -> Connect:
    """Links a host with the server so that it lies as planned; as it is if no lie is planned.

    Args:
        connect: what links it.
        planned: faults and lies.
        workers: the ranks that the host carries.
    """
    role = f"host-{workers[0]}"
    lies = planned.lies(role)
    if not lies or planned.folder is None:
        return connect
    return _Liar(lies, role, planned.folder, connect)


class _Liar:
    """Lies for one host, over all links that it ever has."""

    def __init__(
        self, lies: Mapping[int, Fault], role: str, folder: FaultFolder, connect: Connect
    ) -> None:
        self._lies = dict(lies)
        self._role = role
        self._begun: set[int] = set()
        self._folder = folder
        self._connect = connect
        self._hello: Mapping[str, Any] = {}
        self._strangers: list[threading.Thread] = []
        self._leaving = threading.Event()

    def __call__(self, hello: Mapping[str, Any], timeout_seconds: float) -> HostTransport:
        self._hello = hello
        # All that a `HostTransport` has, the link has.
        return cast(HostTransport, _LyingLink(self._connect(hello, timeout_seconds), self))

    def said(self, message: Message) -> list[Message]:
        """What leaves in place of a message."""
        all_said = [message]
        for number, fault in list(self._lies.items()):
            is_due = message.iteration >= fault.iteration
            if not is_due or fault.phase not in (message.kind, Kind.HELLO):
                continue
            is_first = number not in self._begun
            if is_first and not self._folder.claim(number, fault, self._role):
                continue
            self._begun.add(number)
            if fault.action != "always":
                del self._lies[number]
            now = time.time(), time.monotonic()
            strike = Strike(number, os.getpid(), message.iteration, *now, role=self._role)
            if fault.phase == Kind.HELLO:
                self._bring(strike, fault)
                continue
            lies = [_told(fault, said) for said in all_said]
            all_said = [lie for said, _ in lies for lie in said]
            if is_first:
                self._tell(strike, lies[0][1])
        return all_said

    def part(self) -> None:
        """The link of this host is closed: ends those of others that it has brought."""
        self._leaving.set()
        for stranger in self._strangers:
            stranger.join()
        self._strangers.clear()
        self._leaving.clear()

    def _tell(self, strike: Strike, did: str) -> None:
        self._folder.tell_struck(msgspec.structs.replace(strike, did=did))

    def _bring(self, strike: Strike, fault: Fault) -> None:
        """Another host comes, from this process."""
        if fault.action == "claim":
            claim = list(CLAIMS)[fault.numbers[0] % len(CLAIMS)]
            hello, did = CLAIMS[claim](self._hello), f"came as {claim}"
        else:
            message, what = Lie(*fault.numbers).replaced(Message(Kind.HELLO, 0, self._hello))
            hello, did = message.fields, f"came with a hello with {what}"
        self._tell(strike, did)
        stranger = threading.Thread(target=self._serve, args=(strike, did, hello), daemon=True)
        stranger.start()
        self._strangers.append(stranger)

    def _serve(self, strike: Strike, did: str, hello: Mapping[str, Any]) -> None:
        try:
            link = self._connect(hello, _TO_COME_SECONDS)
        # It is refused (BadInput, a ValueError), or this end of the link does not bear it.
        except (Interrupted, ArithmeticError, LookupError, TypeError, ValueError, OSError) as error:
            self._tell(strike, f"{did}: {one_line(error)}")
            return
        self._tell(strike, f"{did}: was let in")
        with contextlib.closing(link):
            link.send(messages.ready(0, hello["workers"]))
            until = time.monotonic() + _TO_STAY_SECONDS
            while not self._leaving.is_set() and time.monotonic() < until:
                event = link.receive(_LOOK_SECONDS)
                if isinstance(event, Lost) or (
                    isinstance(event, Received) and event.message.kind == Kind.STOP
                ):
                    break


def _told(fault: Fault, message: Message) -> tuple[list[Message], str]:
    """What leaves in place of a message, and what that is in words."""
    first = fault.numbers[0]
    if fault.action in ("change", "always"):
        lie, what = Lie(*fault.numbers).replaced(message)
        return [lie], f"replaced {what}"
    if fault.action == "again":
        times = TIMES[first % len(TIMES)]
        return [message] * (1 + times), f"said it {1 + times} times"
    if fault.action == "shift":
        iteration = max(0, message.iteration + _SHIFTS[first % len(_SHIFTS)])
        return [replace(message, iteration=iteration)], f"said it as of iteration {iteration}"
    kind = list(Kind)[first % len(Kind)]
    return [message, replace(message, kind=kind)], f"said it as {kind}, too"


class _LyingLink:
    """A host's end that says what a liar says in place of the truth."""

    def __init__(self, link: HostTransport, liar: _Liar) -> None:
        self._link = link
        self._liar = liar

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def send(self, message: Message) -> int:
        return sum(map(self._link.send, self._liar.said(message)))

    def exchange(
        self,
        iteration: int,
        outgoing: Mapping[int, Message],
        incoming: Collection[int],
        addresses: Mapping[int, Any],
    ) -> dict[int, Message | Lost]:
        # One parcel for each: of several messages the last lies there.
        said = {taker: lie for taker, m in outgoing.items() for lie in self._liar.said(m)}
        return self._link.exchange(iteration, said, incoming, addresses)

    def close(self) -> None:
        self._link.close()
        self._liar.part()
