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
            `lb`: the largest client first, always to the slot that is predicted to be done with it
            first; of those that are done at once to the fastest kind (4.2, but for a difference
            that `docs/decisions.md` explains).
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
        return _done_first(largest_first, num_batches, ordered, lambda _, x: x)
    kinds, sizes = {slot.kind for slot in ordered}, {num_batches[client] for client in clients}
    predicted = {kind: {x: seconds(kind, x) for x in sizes} for kind in kinds}
    total = {kind: sum(predicted[kind][num_batches[n]] for n in clients) for kind in kinds}
    fastest_first = sorted(ordered, key=lambda slot: total[slot.kind])
    return _done_first(largest_first, num_batches, fastest_first, lambda k, x: predicted[k][x])


def _equally_many(clients: Sequence[int], slots: Sequence[Slot]) -> Placement:
    each, left = divmod(len(clients), len(slots))
    begins = [each * n + min(n, left) for n in range(len(slots) + 1)]
    return {slot: list(clients[begins[n] : begins[n + 1]]) for n, slot in enumerate(slots)}


def _done_first(
    clients: Iterable[int], num_batches: Mapping[int, int], slots: Sequence[Slot], cost: Seconds
) -> Placement:
    """Gives each client to the slot that is done with it first; of equal ones, to the first."""
    placement: Placement = {slot: [] for slot in slots}
    loads: dict[str, list[tuple[float, int]]] = {}  # by kind, heaps of load and place in `slots`
    for n, slot in enumerate(slots):
        loads.setdefault(slot.kind, []).append((0.0, n))
    for client in clients:
        x = num_batches[client]
        done, n = min((of[0][0] + cost(kind, x), of[0][1]) for kind, of in loads.items())
        placement[slots[n]].append(client)
        heapq.heapreplace(loads[slots[n].kind], (done, n))
    return placement
