"""A host's side of swaps: it gives and takes discriminators as the server has drawn."""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from mdgan.families.mdgan.messages import DISCRIMINATORS
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.model_state import part_of
from mdgan.messages import Message, of_workers
from mdgan.transport.base import Lost

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
) -> tuple[dict[int, str], dict[int, str]]:
    """Gives and takes discriminators; a worker that gets none that it can use keeps its own.

    Among the workers of this host they move by reference, where that leaves no worker without one.
    Weights alone are always copied, since every worker keeps its optimizer.

    Args:
        order: a SWAP message.
        workers: of this host.
        exchange: with other hosts.
        weights_only: whether optimizers stay where they are.

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
    arrived = _copies(order, others, exchange, weights_only=weights_only)
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
    order: Message, workers: Mapping[int, Worker], exchange: Exchange, *, weights_only: bool
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
        host: Message(DISCRIMINATORS, order.iteration, tensors=of_workers(states))
        for host, states in away.items()
    }
    addresses = {int(host): where for host, where in order.fields["addresses"].items()}
    parcels = exchange(order.iteration, outgoing, incoming, addresses)
    for _, givers_host, taker, _ in order.fields["moves"]:
        parcel = parcels.get(givers_host)
        if taker in workers and isinstance(parcel, Message):
            here[taker] = part_of(parcel.tensors, f"{taker}/")
    return here
