"""What `mdgan plan` must know of clients without a home: what they take, and where they are placed.

The strategies are those of a run. What they expect of a client is what it takes, so that a plan's
rounds are those of a run whose predictions have settled.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

import torch

from mdgan.engine.settings import num_participants
from mdgan.errors import BadInput
from mdgan.families.contract import ClassCounts, Placing, PlannedHost, Planning, Share, mean_size
from mdgan.families.federated.fegan import new_sampling
from mdgan.families.federated.forms import parse_load
from mdgan.families.federated.placed_messages import (
    Account,
    Offer,
    Task,
    Trained,
    placed_order,
    sum_update,
    trained,
)
from mdgan.families.federated.placement import Slot, Strategy, place
from mdgan.families.federated.settings import PULL, FederatedSettings
from mdgan.families.federated.training_load import Load, choose_loads
from mdgan.families.federated.training_time import Curve, curve_at, fit_curve
from mdgan.gan.model_vector import ModelVector
from mdgan.messages import Message
from mdgan.records.placements import Placed
from mdgan.settings.machine import num_cores
from mdgan.transport.frames import encode

_LOADS = (1, 2, 4)
"""What clients of the short run train, in proportion; each slot gets one of each."""
_MOST_PLAYED = 16
"""Iterations of a client of the short run."""
_WARM_UP = 2
"""Rounds that do not count."""
_DRAWN, _DRAWS = 30, 2_000_000
"""The most rounds that are drawn, and about how many clients may be looked at for them."""
_KIND = "Some Processor v4 @ 2.50GHz: 16 slot(s) on 16 core(s)"
"""About as long as what hosts call their slots."""


def placed_planning(
    usual: Planning[FederatedSettings],
    settings: FederatedSettings,
    vector: ModelVector,
    class_counts: ClassCounts | None,
) -> Planning[FederatedSettings]:
    """A plan of rounds in which clients are placed.

    Args:
        usual: the plan with a home for each client.
        settings: of the planned run.
        vector: says how long both models are.
        class_counts: of every client; None if that is not known.

    Raises:
        BadInput: how clients are placed, or what they train, is not known before the run.
    """
    if settings.placing.placement == PULL:
        raise BadInput("--placement pull: is there for comparison; plan rr, bb or lb")
    if settings.rounds.training_load.name == "samples" and class_counts is None:
        raise BadInput(
            "--training-load samples: what clients train depends on what they hold, and the data "
            "cannot be read here; say --data-dir, or --shard-size if all hold as many"
        )
    counts = dict(enumerate(class_counts or [[1]] * settings.num_clients, start=1))
    full = Load(usual.iterations, settings.training.batch_size)
    loads = choose_loads(settings.rounds.training_load, len(counts), list(counts), full, {}, counts)
    longest = max(load.iterations for load in loads.values())
    slots = settings.placing.slots if isinstance(settings.placing.slots, int) else num_cores()
    per_slot = len(_LOADS)
    short = usual.settings.but(
        clients=per_slot * slots,
        slots=slots,
        placement="rr",
        training_load=parse_load("samples"),
        round_iterations=max(
            1, min(longest, _MOST_PLAYED) * sum(_LOADS) // (per_slot * max(_LOADS))
        ),
        participation=1.0,
        sampling="poisson" if settings.rounds.sampling == "poisson" else "random",
        weighting="uniform",
    )
    cohort = num_participants(settings.participation, len(counts))
    placing = Placing(
        len(counts),
        cohort,
        slots,
        _about(settings, class_counts, [load.iterations for load in loads.values()]),
        _measured_seconds,
        partial(_shares, settings, loads, counts, vector.shape),
    )
    return replace(
        usual,
        settings=short,
        played_iterations=usual.iterations,
        remedies={},
        with_groups=lambda one, hosts: one.but(clients=per_slot * slots * sum(hosts)),
        placing=placing,
    )


def _about(
    settings: FederatedSettings, class_counts: ClassCounts | None, iterations: Sequence[int]
) -> str:
    """What is known of the clients."""
    least, most = min(iterations), max(iterations)
    trains = f"{least} iterations" if least == most else f"{least} to {most} iterations"
    if class_counts is None:
        return f"a client trains {trains}"
    held = f"{mean_size(class_counts):g} samples"
    if any(len(counts) > 1 for counts in class_counts):
        held = f"{held} on average by --partition {settings.data.partition}"
    return f"a client trains {trains} and holds {held}"


def _seconds(recorded: Sequence[Placed]) -> dict[int, list[float]]:
    """What clients of the short run took, by their number of batches."""
    found: dict[int, list[float]] = {}
    for row in recorded:
        for slot in row.slots if row.number >= _WARM_UP else ():
            for each in slot.trained:
                found.setdefault(int(each.batches), []).append(max(each.seconds, 1e-6))
    return found


def _measured_seconds(recorded: Sequence[Placed]) -> dict[int, float]:
    return {x: fmean(seconds) for x, seconds in sorted(_seconds(recorded).items())}


def _curve(recorded: Sequence[Placed]) -> Curve:
    """Equation 3 through what clients took, so that the rounds of the short run fit."""
    found = _seconds(recorded)
    a, b, d = fit_curve((x, len(seconds), fmean(seconds)) for x, seconds in found.items())
    # A host's round ends with its last slot, and takes turns on cores with others.
    took, foretold = [], []
    for row in recorded:
        slots = [slot.trained for slot in row.slots if row.number >= _WARM_UP and slot.trained]
        if slots:
            took.append(max(each.begin + each.seconds for trained in slots for each in trained))
            sums = [sum(curve_at((a, b, d), int(each.batches)) for each in own) for own in slots]
            foretold.append(max(sums))
    friction = sum(took) / sum(foretold)
    return friction * a, friction * b, friction * d


def _shares(
    settings: FederatedSettings,
    loads: Mapping[int, Load],
    counts: Mapping[int, Sequence[int]],
    shape: tuple[int, ...],
    recorded: Sequence[Placed],
    hosts: Sequence[PlannedHost],
    a_step: int,
) -> list[Share]:
    """See `Placing.shares`: of the rounds that are drawn, the one nearest to their mean."""
    curve = _curve(recorded)
    batches = {client: load.iterations for client, load in loads.items()}
    slots = [
        Slot(number, slot, repr(host.speed))
        for number, host in enumerate(hosts)
        for slot in range(host.slots)
    ]

    def seconds(kind: str, x: int) -> float:
        return curve_at(curve, x) / float(kind)

    def taken(slot: Slot, clients: Sequence[int]) -> float:
        return sum(seconds(slot.kind, batches[client]) for client in clients)

    strategy: Strategy = settings.placing.placement  # type: ignore[assignment] # `pull` is refused before
    rounds = [
        place(strategy, chosen, batches, slots, seconds)
        for chosen in _drawn(settings, counts, a_step)
    ]
    makespans = [max(taken(*each) for each in placement.items()) for placement in rounds]
    mean = fmean(makespans)
    usual = min(range(len(rounds)), key=lambda n: abs(makespans[n] - mean))
    of_hosts: list[list[tuple[Slot, list[int]]]] = [[] for _ in hosts]
    for slot, clients in sorted(rounds[usual].items()):
        of_hosts[slot.host].append((slot, clients))
    return [
        _share([clients for _, clients in own], [taken(*each) for each in own], loads, shape)
        for own in of_hosts
    ]


def _drawn(
    settings: FederatedSettings, counts: Mapping[int, Sequence[int]], a_step: int
) -> Iterator[list[int]]:
    """The clients of the run's first rounds."""
    # Poisson sampling would draw as many on average.
    rule = "random" if settings.rounds.sampling == "poisson" else settings.rounds.sampling
    sampling = new_sampling(rule, a_step / len(counts), settings.training.seed)
    for number in range(max(2, min(_DRAWN, _DRAWS // (len(counts) * a_step)))):
        chosen = sampling.choose(number, counts)
        sampling.took_part(number, chosen)
        yield chosen


def _share(
    lists: Sequence[Sequence[int]],
    seconds: Sequence[float],
    loads: Mapping[int, Load],
    shape: tuple[int, ...],
) -> Share:
    """What one host does, by the clients of its slots and how long each of these trains."""
    clients = [client for own in lists for client in own]
    if not clients:
        return Share(0, 0.0, 0.0, 0.0, 0.0)
    tasks = [[Task(client, loads[client], 1 / len(clients)) for client in own] for own in lists]
    told = [Trained(client, 0, 0.1234567, 0.1234567, (0.1234567, 0.1234567)) for client in clients]
    account = Account(told, Offer([_KIND] * len(lists)))
    models = torch.zeros(shape)
    back = _size(trained(1, account)) + _size(sum_update(1, 1, models.double(), torch.zeros(2)))
    return Share(
        len(clients), max(seconds), fmean(seconds), _size(placed_order(1, models, tasks)), back
    )


def _size(message: Message) -> float:
    return len(encode(message).body)
