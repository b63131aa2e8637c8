"""One link: a process group of exactly two ranks, so that a death breaks nobody else's link."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mdgan.messages import Message
from mdgan.timeouts import Timeouts
from mdgan.transport import wire
from mdgan.transport.rendezvous import Store, corner_of

# A wait that expires destroys the link, so deadlines are timeouts of the inbox, never of a link.
_FOREVER = timedelta(days=365)
_HEADER_TAG, _BODY_TAG = 0, 1


Group = Any
"""One of torch's process groups, gloo's or NCCL's; its stubs leave out send and recv."""

LinkOpener = Callable[[Store, str, int], "Link"]


class Link:
    """Sends and receives messages to and from one peer.

    One thread may send while another receives; no two may do the same.

    Args:
        headers: the gloo group; carries headers, and bodies unless `bodies` is given.
        rank: 0 or 1, this end's rank in the group.
        bodies: an NCCL group for the bodies, with the device they live on.
    """

    def __init__(
        self,
        headers: Group,
        rank: int,
        bodies: tuple[Group, torch.device] | None = None,
    ) -> None:
        self._peer = 1 - rank
        self._headers = headers
        self._bodies, self._device = bodies or (headers, torch.device("cpu"))
        self._in_flight: list[tuple[dist.Work, Tensor]] = []

    def send(self, message: Message) -> int:
        """Starts sending a copy of a message, after the one before has left.

        Returns:
            The bytes it takes.

        Raises:
            RuntimeError: the peer is gone.
        """
        header, body = wire.encode(message)
        self.flush(_FOREVER)
        body = body.to(self._device)
        self._in_flight = [
            (self._headers.send([header], self._peer, _HEADER_TAG), header),
            (self._bodies.send([body], self._peer, _BODY_TAG), body),
        ]
        return len(header) + len(body)

    def flush(self, timeout: timedelta) -> None:
        """Waits until everything sent has left.

        Raises:
            RuntimeError: the peer is gone, or the time is up and the link destroyed.
        """
        in_flight, self._in_flight = self._in_flight, []
        for work, _ in in_flight:
            work.wait(timeout)

    def receive(self, timeout: timedelta = _FOREVER) -> tuple[Message, int]:
        """Waits for the next message.

        Returns:
            The message and the bytes it took.

        Raises:
            RuntimeError: the peer is gone, sent no message, or the time is up and the link
                destroyed.
        """
        packed = torch.empty(wire.HEADER_BYTES, dtype=torch.uint8)
        self._headers.recv([packed], self._peer, _HEADER_TAG).wait(timeout)
        header = wire.decode_header(packed)
        body = torch.empty(header.body_bytes, dtype=torch.uint8, device=self._device)
        self._bodies.recv([body], self._peer, _BODY_TAG).wait(timeout)
        return wire.decode(header, body.cpu()), len(packed) + len(body)


def why_broken(error: RuntimeError) -> str:
    """A broken link's cause in a few words; gloo's own text names its source files."""
    text = str(error).partition("\n")[0]
    if isinstance(error, wire.WireError):
        return text
    if "closed by peer" in text or "reset by peer" in text or "Broken pipe" in text:
        return "its connection closed"
    if "Timed out" in text or "timeout" in text.lower():
        return "it did not answer in time"
    return text


@dataclass(frozen=True)
class LinkOptions:
    """How this process opens links.

    Attributes:
        address: the local address that gloo listens on; None if an interface is given.
        interface: the network interface that gloo listens on.
        nccl_device: the GPU that bodies go through, or None for gloo throughout.
    """

    address: str | None
    interface: str | None
    nccl_device: torch.device | None = None


def link_opener(options: LinkOptions, timeouts: Timeouts) -> LinkOpener:
    """Prepares this process for links: one listening port for all of them.

    Returns:
        A function of (store, name, rank) that opens a link with whoever calls it with the same
        name and the other rank; it raises RuntimeError if nobody does in time.
    """
    if options.interface is not None:
        device = dist.ProcessGroupGloo.create_device(interface=options.interface)
    else:
        device = dist.ProcessGroupGloo.create_device(hostname=options.address)
    limit = timedelta(seconds=timeouts.link)

    def open_link(store: Store, name: str, rank: int) -> Link:
        settings = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined] # not in torch's stubs
        settings._devices = [device]
        settings._timeout = limit
        settings._threads = 1  # they serve collectives, which we never call
        prefixed = corner_of(store, name)
        headers = dist.ProcessGroupGloo(prefixed, rank, 2, settings)
        if options.nccl_device is None:
            return Link(headers, rank)
        torch.cuda.set_device(options.nccl_device)
        nccl = dist.ProcessGroupNCCL(
            corner_of(prefixed, "nccl"), rank, 2, dist.ProcessGroupNCCL.Options()
        )
        return Link(headers, rank, (nccl, options.nccl_device))

    return open_link
