"""Which slot trains which clients in a round.

Sani et al. 2024, "Pollen: High-throughput Federated Learning Simulation via Resource-Aware Client
Placement", section 4. Placement never changes what is learned, only how long a round takes.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

Strategy = Literal["rr", "bb", "lb"]

Seconds = Callable[[str, int], float]
"""Kind of slot and number of batches ≥ 1 → how long a client is expected to take; finite."""


class Slot(NamedTuple):
    """A place on a machine where one client trains at a time.

    Attributes:
        host: the rank of the process that the slot belongs to.
        number: of the slot among those of its host.
        kind: what the host tells of it, such as "Xeon @ 2.5 GHz, 2 slots on 1 core"; slots of the
            same kind are expected to be equally fast.
    """

    host: int
    number: int
    kind: str


Placement = dict[Slot, list[int]]
"""What each slot trains, in this order."""


def place(
    strategy: Strategy,
    clients: Sequence[int],
    num_batches: Mapping[int, int],
    slots: Iterable[Slot],
    seconds: Seconds,
) -> Placement:
    """Gives every client of a round to one slot.

    Args:
        strategy: `rr`: as many clients for every slot; the first slots take the remainder (section
            4.1). `bb`: the largest client first, always to the slot with the fewest batches (4.1).
            `lb`: the largest client first, always to the slot with the fewest predicted seconds; of
            those with equally many to the fastest kind (4.2).
        clients: in the order in which they were drawn.
        num_batches: by client, x ≥ 1; `rr` does not read it.
        slots: at least one, in any order; the lower host, then the lower number comes first.
        seconds: predictions; only `lb` asks for them, once for each kind and x.

    Returns:
        Every slot, maybe with nothing to do, and every client once.
    """
    ordered = sorted(slots)
    if strategy == "rr":
        return _equally_many(clients, ordered)
    largest_first = sorted(clients, key=num_batches.__getitem__, reverse=True)
    if strategy == "bb":
        return _least_loaded(largest_first, num_batches, ordered, lambda _, x: x)
    kinds, sizes = {slot.kind for slot in ordered}, {num_batches[client] for client in clients}
    predicted = {kind: {x: seconds(kind, x) for x in sizes} for kind in kinds}
    total = {kind: sum(predicted[kind][num_batches[n]] for n in clients) for kind in kinds}
    fastest_first = sorted(ordered, key=lambda slot: total[slot.kind])
    return _least_loaded(largest_first, num_batches, fastest_first, lambda k, x: predicted[k][x])


def _equally_many(clients: Sequence[int], slots: Sequence[Slot]) -> Placement:
    each, left = divmod(len(clients), len(slots))
    begins = [each * n + min(n, left) for n in range(len(slots) + 1)]
    return {slot: list(clients[begins[n] : begins[n + 1]]) for n, slot in enumerate(slots)}


def _least_loaded(
    clients: Iterable[int], num_batches: Mapping[int, int], slots: Sequence[Slot], cost: Seconds
) -> Placement:
    """Gives each client to the slot that has least to do so far; of equal ones, to the first."""
    placement: Placement = {slot: [] for slot in slots}
    loads = [(0.0, n) for n in range(len(slots))]
    for client in clients:
        load, n = loads[0]
        placement[slots[n]].append(client)
        heapq.heapreplace(loads, (load + cost(slots[n].kind, num_batches[client]), n))
    return placement
