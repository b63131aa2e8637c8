"""A host's side of swaps: it gives and takes discriminators as the server has drawn."""

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mdgan.engine.host_keys import SEALED, HostKeys
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
    order: Message,
    workers: Mapping[int, Worker],
    exchange: Exchange,
    *,
    weights_only: bool = False,
    keys: HostKeys | None = None,
) -> tuple[dict[int, str], dict[int, str]]:
    """Gives and takes discriminators; a worker that gets none that it can use keeps its own.

    Among the workers of this host they move by reference, where that leaves no worker without one.
    Weights alone are always copied, since every worker keeps its optimizer.

    Args:
        order: a SWAP message.
        workers: of this host.
        exchange: with other hosts.
        weights_only: whether optimizers stay where they are.
        keys: encrypt discriminators for the hosts that get them, so that a server which relays them
            cannot read them; None: they travel as they are.

    Returns:
        SHA-256 of what each worker here gave, and of what each worker here got.
    """

    def digest(worker: int) -> str:
        return workers[worker].discriminator.digest(weights_only=weights_only)

    rows: list[list[int]] = order.fields["moves"]
    moves = {giver: taker for giver, _, taker, _ in rows if giver in workers}
    for giver in moves:  # what a host that has just come back has learnt early stays here
        workers[giver].undo_real_half()
    given = {giver: digest(giver) for giver in moves}
    within = {} if weights_only else {g: t for g, t in moves.items() if t in workers}
    inside = _closed({g: t for g, t in within.items() if _is_usable(workers[g])})
    taken = {taker: given[giver] for giver, taker in inside.items()}
    owned = {giver: workers[giver].discriminator for giver in inside}

    others = {n: worker for n, worker in workers.items() if n not in inside}
    arrived = _copies(order, others, exchange, keys, weights_only=weights_only)
    for giver, taker in inside.items():
        workers[taker].take(owned[giver])
    for taker, state in arrived.items():
        with contextlib.suppress(KeyError, RuntimeError):  # broken, or not of this architecture
            workers[taker].load_discriminator(state, keeps_optimizer=weights_only)
            taken[taker] = digest(taker)
    return given, taken


def _is_usable(giver: Worker) -> bool:
    """Whether other workers would take its discriminator; the same as `load_discriminator` asks."""
    return giver.discriminator.is_finite()


def _closed(moves: Mapping[int, int]) -> dict[int, int]:
    """The moves that form cycles: every giver among them also takes."""
    closed = dict(moves)
    while open_ends := closed.keys() ^ set(closed.values()):
        closed = {g: t for g, t in closed.items() if not open_ends & {g, t}}
    return closed


def _copies(
    order: Message,
    workers: Mapping[int, Worker],
    exchange: Exchange,
    keys: HostKeys | None,
    *,
    weights_only: bool,
) -> dict[int, Mapping[str, Tensor]]:
    """The copies of discriminators that these workers get, from here and from other hosts."""
    here: dict[int, Mapping[str, Tensor]] = {}
    away: dict[int, dict[int, Mapping[str, Tensor]]] = {}
    for giver, _, taker, takers_host in order.fields["moves"]:
        if giver in workers:
            place = here if taker in workers else away.setdefault(takers_host, {})
            own = workers[giver].discriminator
            place[taker] = own.weights() if weights_only else own.state()
    incoming = {
        givers_host
        for giver, givers_host, taker, _ in order.fields["moves"]
        if taker in workers and giver not in workers
    }
    outgoing = {
        host: _parcel(host, Message(DISCRIMINATORS, order.iteration, {}, of_workers(states)), keys)
        for host, states in away.items()
        if keys is None or keys.knows(host)
    }
    addresses = {int(host): where for host, where in order.fields["addresses"].items()}
    parcels = exchange(order.iteration, outgoing, incoming, addresses)
    found = {
        host: _opened(host, order.iteration, parcel, keys)
        for host, parcel in parcels.items()
        if isinstance(parcel, Message)
    }
    for _, givers_host, taker, _ in order.fields["moves"]:
        if taker in workers and givers_host in found:
            here[taker] = part_of(found[givers_host], f"{taker}/")
    return here


def _parcel(host: int, parcel: Message, keys: HostKeys | None) -> Message:
    """What another host fetches."""
    if keys is None:
        return parcel
    return replace(parcel, tensors={SEALED: keys.seal_message(host, parcel)})


def _opened(
    host: int, iteration: int, parcel: Message, keys: HostKeys | None
) -> Mapping[str, Tensor]:
    """What another host has given; nothing if it was changed on the way."""
    if keys is None:
        return parcel.tensors
    try:
        sealed = parcel.tensors.get(SEALED, torch.empty(0))
        return keys.unseal_message(host, DISCRIMINATORS, iteration, sealed).tensors
    except ValueError as error:
        _log.warning("a discriminator in the swap of iteration %d is refused: %s", iteration, error)
        return {}
