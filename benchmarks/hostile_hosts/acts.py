"""How hostile hosts change what they send; in all else each acts like an honest host."""

import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mdgan.credentials.identity import Identity
from mdgan.families.mdgan.messages import BATCHES, DISCRIMINATORS, FEEDBACK, SWAP, SWAPPED
from mdgan.messages import Kind, Message, checkpointed, ready, real
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Lost, Received, Tickets
from mdgan.transport.host_end import HostTransport

TIMEOUTS = Timeouts(connect=20.0)
FLOOD = 20
"""Additional messages for each answer."""


@dataclass
class Place:
    """The knowledge of a hostile host.

    Attributes:
        rank: its own.
        honest: the ranks of honest hosts.
        server: the server's address.
        identity: its own certificate.
        hello: the fields of the hello with which it joins.
        link: its newest link to the server.
        hosts: by rank, the addresses at which others hand out discriminators, from swaps.
        iteration: of the last question.
    """

    rank: int
    honest: Sequence[int]
    server: str
    identity: Identity
    hello: Mapping[str, Any]
    link: HostTransport
    hosts: dict[int, str]
    iteration: int = 0


class Act:
    """An act of a hostile host; this base class does nothing.

    Attributes:
        from_iteration: the act's first; by then the server knows how long answers usually take.
    """

    from_iteration = 20

    def says(self, message: Message, _place: Place) -> Sequence[Message]:
        """The messages that the host sends instead of one message."""
        return [message]

    def gives(self, message: Message) -> Message:
        """The message that the host hands over in a swap instead of a discriminator."""
        return message

    def begins(self, place: Place) -> None:
        """Called when the host begins; a lasting attack starts its own thread here."""


class Answers(Act):
    """Changes each feedback."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        self._change = change

    def says(self, message: Message, _place: Place) -> Sequence[Message]:
        """Changes the feedback, and no other tensor or message."""
        if message.kind != FEEDBACK:
            return [message]
        tensors = {
            name: self._change(tensor) if name.startswith("answers.") else tensor
            for name, tensor in message.tensors.items()
        }
        return [replace(message, tensors=tensors)]


class Adds(Act):
    """Sends additional messages with each feedback."""

    def __init__(self, more: Callable[[Message, Place], Sequence[Message]]) -> None:
        self._more = more

    def says(self, message: Message, place: Place) -> Sequence[Message]:
        """The feedback, then the additional messages."""
        return [message, *self._more(message, place)] if message.kind == FEEDBACK else [message]


class Pings(Act):
    """Answers no question, while gRPC still answers pings."""

    def says(self, message: Message, _place: Place) -> Sequence[Message]:
        """No message instead of feedback."""
        return [] if message.kind == FEEDBACK else [message]


class Swaps(Act):
    """Hands over noise in swaps, reports wrong digests, and blames honest hosts for delays."""

    def says(self, message: Message, place: Place) -> Sequence[Message]:
        """Lies in the report about a swap."""
        if message.kind != SWAPPED:
            return [message]
        lies = {str(place.rank): secrets.token_hex(32)}
        blamed = list(place.honest)
        return [replace(message, fields={"given": lies, "taken": lies, "slow": blamed})]

    def gives(self, message: Message) -> Message:
        """Noise of the size of the right weights."""
        tensors = {
            name: torch.randn_like(tensor) * tensor.std() if tensor.dim() > 1 else tensor
            for name, tensor in message.tensors.items()
        }
        return replace(message, tensors=tensors)


class Malformed(Act):
    """Sends bytes that are no message, five times as often as it answers."""

    def says(self, message: Message, place: Place) -> Sequence[Message]:
        """The message, after random bytes that claim its kind and others."""
        from mdgan.transport.frames import Frame

        if message.kind == FEEDBACK and hasattr(place.link, "_put"):
            for kind in (FEEDBACK, SWAPPED, Kind.SPANS, Kind.STATE, "NOTHING"):
                place.link._put(Frame(kind, place.iteration, secrets.token_bytes(900)))
        return [message]


class Relays(Act):
    """Leaves parcels with the server for takers of no swap."""

    def says(self, message: Message, place: Place) -> Sequence[Message]:
        """The message, after parcels for every host."""
        from mdgan.transport.frames import encode

        if message.kind == FEEDBACK and hasattr(place.link, "_put"):
            parcel = Message(DISCRIMINATORS, place.iteration, {}, {"1/x": torch.zeros(9000)})
            for taker in range(1, FLOOD + 1):
                place.link._put(replace(encode(parcel), taker=taker))
        return [message]


class Reconnects(Act):
    """Cuts its connection every five questions."""

    def says(self, message: Message, place: Place) -> Sequence[Message]:
        """The message; every fifth time it cuts the link first."""
        call = getattr(place.link, "_call", None)
        if message.kind == FEEDBACK and message.iteration % 5 == 0 and call is not None:
            call.cancel()
        return [message]


class Raid(Act):
    """Answers honestly, and attacks beside that, again and again.

    Args:
        once: attacks once; called until the process ends, with a state that it may keep.
        pause_seconds: between two calls.
    """

    def __init__(self, once: Callable[[Place, dict[str, Any]], None], pause_seconds: float) -> None:
        self._once, self._pause_seconds = once, pause_seconds

    def begins(self, place: Place) -> None:
        """Starts the attack in its own thread."""
        threading.Thread(target=self._run, args=(place,), daemon=True).start()

    def _run(self, place: Place) -> None:
        state: dict[str, Any] = {}
        while True:
            try:
                self._once(place, state)
            except Exception:  # it tries again, whatever refused it
                state.clear()
            time.sleep(self._pause_seconds)


def meddle(link: HostTransport, act: Act, place: Place, begun: threading.Event) -> None:
    """Makes a host's link send and hand over what an act wants, once the act has begun."""
    send, receive, exchange = link.send, link.receive, link.exchange

    def says(message: Message) -> int:
        if not begun.is_set():
            return send(message)
        return sum(send(each) for each in act.says(message, place))

    def hears(timeout_seconds: float) -> Any:
        event = receive(timeout_seconds)
        if isinstance(event, Received):
            message = event.message
            place.iteration = message.iteration
            if message.kind == SWAP:
                addresses = message.fields["addresses"]
                place.hosts.update(
                    {int(n): at for n, at in addresses.items() if isinstance(at, str)}
                )
            is_time = message.kind == BATCHES and message.iteration >= act.from_iteration
            if is_time and not begun.is_set():
                begun.set()
                act.begins(place)
            if message.kind == Kind.STOP and message.fields["shut_out"]:
                threading.Event().wait()  # its raid goes on
        return event

    def gives(
        iteration: int,
        outgoing: Mapping[int, Message],
        incoming: Collection[int],
        addresses: Mapping[int, Any],
        tickets: Tickets,
    ) -> dict[int, Message | Lost]:
        if begun.is_set():
            outgoing = {taker: act.gives(parcel) for taker, parcel in outgoing.items()}
        return exchange(iteration, outgoing, incoming, addresses, tickets)

    vars(link).update(send=says, receive=hears, exchange=gives)


def _noise(tensor: Tensor) -> Tensor:
    return torch.randn_like(tensor) * tensor.std()


def _real(message: Message, _place: Place) -> Sequence[Message]:
    return [real(message.iteration, {"sums": torch.zeros(64)})] * FLOOD


def _reasons(message: Message, _place: Place) -> Sequence[Message]:
    return [checkpointed(message.iteration, {}, f"the disk is full {n}") for n in range(FLOOD)]


def _sizes_of_others(message: Message, place: Place) -> Sequence[Message]:
    sizes = {str(rank): 1e-9 for rank in place.honest}
    return [ready(message.iteration, list(place.honest), sizes)]


CHANGES: Mapping[str, Act] = {
    "adds 7 to its feedback": Answers(lambda tensor: tensor + 7),
    "answers NaN": Answers(lambda tensor: tensor * torch.nan),
    "answers noise": Answers(_noise),
    "answers -5 times the truth": Answers(lambda tensor: -5 * tensor),
    "answers pings alone": Pings(),
    "sums of real samples unasked": Adds(_real),
    "reasons why checkpoints fail": Adds(_reasons),
    "READY that speaks of others": Adds(_sizes_of_others),
    "bytes that are no message": Malformed(),
    "parcels for takers of no swap": Relays(),
    "cuts its own connection": Reconnects(),
    "noise and lies in swaps": Swaps(),
}
"""By a description of the act."""
