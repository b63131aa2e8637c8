"""A host's side of swaps: it gives and takes discriminators as the server has drawn."""

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from mdgan.engine.host_keys import OpenParcels
from mdgan.families.mdgan.messages import DISCRIMINATORS
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.model_state import part_of
from mdgan.messages import Message, of_workers
from mdgan.transport.base import Lost

_log = logging.getLogger(__name__)

Exchange = Callable[
    [int, Mapping[int, Message], Collection[int], Mapping[int, Sequence[Any] | None]],
    Mapping[int, Message | Lost],
]
"""`HostTransport.exchange`."""


def carry_out(
    order: Message, workers: Mapping[int, Worker], exchange: Exchange, parcels: OpenParcels
) -> tuple[dict[int, str], dict[int, str]]:
    """Gives and takes discriminators; a worker that gets none that it can use keeps its own.

    Among the workers of this host they move by reference, where that leaves no worker without one.
    Returns SHA-256 of what each worker here gave, and of what each got.
    """
    rows: list[list[int]] = order.fields["moves"]
    moves = {giver: taker for giver, _, taker, _ in rows if giver in workers}
    for giver in moves:  # what a host that has just come back has learnt early stays here
        workers[giver].undo_real_half()
    given = {giver: workers[giver].discriminator.digest() for giver in moves}
    inside = _closed(
        {g: t for g, t in moves.items() if t in workers and workers[g].discriminator.is_finite()}
    )
    taken = {taker: given[giver] for giver, taker in inside.items()}
    owned = {giver: workers[giver].discriminator for giver in inside}

    others = {n: worker for n, worker in workers.items() if n not in inside}
    arrived = _copies(order, others, exchange, parcels)
    for giver, taker in inside.items():
        workers[taker].take(owned[giver])
    for taker, state in arrived.items():
        with contextlib.suppress(KeyError, RuntimeError):  # broken, or not of this architecture
            workers[taker].load_discriminator(state)
            taken[taker] = workers[taker].discriminator.digest()
    return given, taken


def _closed(moves: Mapping[int, int]) -> dict[int, int]:
    """The moves that form cycles: every giver among them also takes."""
    closed = dict(moves)
    while open_ends := closed.keys() ^ set(closed.values()):
        closed = {g: t for g, t in closed.items() if not open_ends & {g, t}}
    return closed


def _copies(
    order: Message, workers: Mapping[int, Worker], exchange: Exchange, parcels: OpenParcels
) -> dict[int, Mapping[str, Tensor]]:
    """The copies of discriminators that these workers get, from here and from other hosts."""
    copies: dict[int, Mapping[str, Tensor]] = {}
    away: dict[int, dict[int, Mapping[str, Tensor]]] = {}
    from_hosts: dict[int, int] = {}
    for giver, givers_host, taker, takers_host in order.fields["moves"]:
        if giver in workers:
            place = copies if taker in workers else away.setdefault(takers_host, {})
            place[taker] = workers[giver].discriminator.state()
        elif taker in workers:
            from_hosts[taker] = givers_host
    outgoing = {}
    for host, states in away.items():
        message = Message(DISCRIMINATORS, order.iteration, {}, of_workers(states))
        if (parcel := parcels.pack(host, message)) is not None:
            outgoing[host] = parcel
    addresses = {int(host): where for host, where in order.fields["addresses"].items()}
    incoming = exchange(order.iteration, outgoing, set(from_hosts.values()), addresses)
    opened = {
        host: _opened(host, order.iteration, parcel, parcels)
        for host, parcel in incoming.items()
        if isinstance(parcel, Message)
    }
    for taker, host in from_hosts.items():
        if host in opened:
            copies[taker] = part_of(opened[host], f"{taker}/")
    return copies


def _opened(
    host: int, iteration: int, parcel: Message, parcels: OpenParcels
) -> Mapping[str, Tensor]:
    """What another host has given; nothing if it was changed on the way."""
    try:
        return parcels.open(host, DISCRIMINATORS, iteration, parcel)
    except ValueError as error:
        _log.warning("a discriminator in the swap of iteration %d is refused: %s", iteration, error)
        return {}
