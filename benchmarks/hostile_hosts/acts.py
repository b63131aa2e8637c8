"""What hostile hosts change of what they send; each otherwise does all that an honest host does."""

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
"""Messages more for each answer."""


@dataclass
class Place:
    """What a hostile host knows.

    Attributes:
        rank: its own.
        honest: the ranks of honest hosts.
        server: where that is.
        identity: its own certificate.
        hello: what its host says when it joins.
        link: to the server, the newest.
        hosts: where other hosts hand out discriminators, as swaps have told.
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
    """What one hostile host does; here nothing.

    Attributes:
        from_iteration: in which it begins, so that the server knows how long answers usually take.
    """

    from_iteration = 20

    def says(self, message: Message, _place: Place) -> Sequence[Message]:
        """What leaves instead of a message."""
        return [message]

    def gives(self, message: Message) -> Message:
        """What is given in a swap instead of a discriminator."""
        return message

    def begins(self, place: Place) -> None:
        """Called when the host begins; a lasting attack starts its own thread here."""


class Answers(Act):
    """Changes each feedback."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        self._change = change

    def says(self, message: Message, _place: Place) -> Sequence[Message]:
        """The feedback changed, the rest as it is."""
        if message.kind != FEEDBACK:
            return [message]
        tensors = {
            name: self._change(tensor) if name.startswith("answers.") else tensor
            for name, tensor in message.tensors.items()
        }
        return [replace(message, tensors=tensors)]


class Adds(Act):
    """Sends more with each feedback."""

    def __init__(self, more: Callable[[Message, Place], Sequence[Message]]) -> None:
        self._more = more

    def says(self, message: Message, place: Place) -> Sequence[Message]:
        """The feedback, then what is added."""
        return [message, *self._more(message, place)] if message.kind == FEEDBACK else [message]


class Pings(Act):
    """Answers no question; gRPC goes on to answer pings."""

    def says(self, message: Message, _place: Place) -> Sequence[Message]:
        """Nothing instead of feedback."""
        return [] if message.kind == FEEDBACK else [message]


class Swaps(Act):
    """Gives noise in swaps, tells wrong digests of it, and blames honest hosts."""

    def says(self, message: Message, place: Place) -> Sequence[Message]:
        """Lies about swaps."""
        if message.kind != SWAPPED:
            return [message]
        lies = {str(place.rank): secrets.token_hex(32)}
        blamed = list(place.honest)
        return [replace(message, fields={"given": lies, "taken": lies, "slow": blamed})]

    def gives(self, message: Message) -> Message:
        """Weights as large as the right ones, which mean nothing."""
        tensors = {
            name: torch.randn_like(tensor) * tensor.std() if tensor.dim() > 1 else tensor
            for name, tensor in message.tensors.items()
        }
        return replace(message, tensors=tensors)


class Malformed(Act):
    """Sends bytes that are no message, five times as often as it answers."""

    def says(self, message: Message, place: Place) -> Sequence[Message]:
        """The message, after bytes of its kind and of others."""
        from mdgan.transport.frames import Frame

        if message.kind == FEEDBACK and hasattr(place.link, "_put"):
            for kind in (FEEDBACK, SWAPPED, Kind.SPANS, Kind.STATE, "NOTHING"):
                place.link._put(Frame(kind, place.iteration, secrets.token_bytes(900)))
        return [message]


class Relays(Act):
    """Leaves parcels with the server for takers that no swap has."""

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
        """The message, or nothing any more over this link."""
        call = getattr(place.link, "_call", None)
        if message.kind == FEEDBACK and message.iteration % 5 == 0 and call is not None:
            call.cancel()
        return [message]


class Raid(Act):
    """Answers as it should, and does something beside, again and again.

    Args:
        once: is called until the process ends, with the call's own state.
        pause_seconds: between two calls.
    """

    def __init__(self, once: Callable[[Place, dict[str, Any]], None], pause_seconds: float) -> None:
        self._once, self._pause_seconds = once, pause_seconds

    def begins(self, place: Place) -> None:
        """Starts it."""
        threading.Thread(target=self._run, args=(place,), daemon=True).start()

    def _run(self, place: Place) -> None:
        state: dict[str, Any] = {}
        while True:
            try:
                self._once(place, state)
            except Exception:  # whatever refuses it, it tries again
                state.clear()
            time.sleep(self._pause_seconds)


def meddle(link: HostTransport, act: Act, place: Place, begun: threading.Event) -> None:
    """Has a host's link send, give and hear as an act wants, once it begins."""
    send, receive, exchange = link.send, link.receive, link.exchange

    def says(message: Message) -> int:
        if not begun.is_set():
            return send(message)
        return sum(send(said) for said in act.says(message, place))

    def hears(timeout_seconds: float) -> Any:
        event = receive(timeout_seconds)
        if isinstance(event, Received):
            message = event.message
            place.iteration = message.iteration
            if message.kind == SWAP:
                told = message.fields["addresses"]
                place.hosts.update({int(n): at for n, at in told.items() if isinstance(at, str)})
            is_time = message.kind == BATCHES and message.iteration >= act.from_iteration
            if is_time and not begun.is_set():
                begun.set()
                act.begins(place)
            if message.kind == Kind.STOP and message.fields["shut_out"]:
                threading.Event().wait()  # what it does beside goes on
        return event

    def gives(
        iteration: int,
        outgoing: Mapping[int, Message],
        incoming: Collection[int],
        addresses: Mapping[int, Any],
        tickets: Tickets,
    ) -> dict[int, Message | Lost]:
        if begun.is_set():
            outgoing = {taker: act.gives(own) for taker, own in outgoing.items()}
        return exchange(iteration, outgoing, incoming, addresses, tickets)

    vars(link).update(send=says, receive=hears, exchange=gives)


def _noise(tensor: Tensor) -> Tensor:
    return torch.randn_like(tensor) * tensor.std()


def _real(message: Message, _place: Place) -> Sequence[Message]:
    return [real(message.iteration, {"sums": torch.zeros(64)})] * FLOOD


def _reasons(message: Message, _place: Place) -> Sequence[Message]:
    return [checkpointed(message.iteration, {}, f"the disk is full {n}") for n in range(FLOOD)]


def _of_others(message: Message, place: Place) -> Sequence[Message]:
    told = {str(rank): 1e-9 for rank in place.honest}
    return [ready(message.iteration, list(place.honest), told)]


CHANGES: Mapping[str, Act] = {
    "adds 7 to its feedback": Answers(lambda tensor: tensor + 7),
    "answers NaN": Answers(lambda tensor: tensor * torch.nan),
    "answers noise": Answers(_noise),
    "answers -5 times the truth": Answers(lambda tensor: -5 * tensor),
    "answers pings alone": Pings(),
    "sums of real samples unasked": Adds(_real),
    "reasons why checkpoints fail": Adds(_reasons),
    "READY that speaks of others": Adds(_of_others),
    "bytes that are no message": Malformed(),
    "parcels for takers of no swap": Relays(),
    "cuts its own connection": Reconnects(),
    "noise and lies in swaps": Swaps(),
}
"""By what they do."""
