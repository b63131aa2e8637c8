"""What `mdgan plan` says of FL-GAN and FeGAN: short rounds to measure, and the costs of a round.

Placement is that of a run. It knows how long a client takes, as in a run whose predictions have
settled.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap
from statistics import fmean

import torch

from mdgan.engine.settings import num_participants
from mdgan.errors import BadInput
from mdgan.families import contract
from mdgan.families.federated import messages
from mdgan.families.federated.averaging import new_sampling
from mdgan.families.federated.placement import Curve, Slot, Strategy, curve_at, fit_curve, place
from mdgan.families.federated.settings import PULL, ClusterForm, FederatedSettings, parse_load
from mdgan.families.federated.training_load import choose_loads
from mdgan.gan.build import Models, build_model, num_parameters
from mdgan.gan.model_vector import ModelVector
from mdgan.gan.optimizers import training_bytes
from mdgan.messages import Message
from mdgan.records.rows import Placed
from mdgan.settings.machine import num_cores
from mdgan.spelling import count, flag, key
from mdgan.transport.frames import encode

_FLOAT_BYTES = 4
_PLAYED_ITERATIONS = 4
_LOADS = (1, 2, 4)
"""The relative loads of placed clients in the short run; each slot gets one client of each."""
_MOST_PLAYED = 16  # iterations of a placed client of the short run
_WARM_UP = 2  # rounds that do not count
_DRAWN, _DRAWS = 30, 2_000_000
"""The most rounds that `_drawn` draws, and about how many clients it may look at."""
_KIND = "Some Processor v4 @ 2.50GHz: 16 slot(s) on 16 core(s)"
"""A text about as long as the kinds that hosts offer."""


def planning(
    settings: FederatedSettings, models: Models, class_counts: contract.ClassCounts | None
) -> contract.Planning[FederatedSettings]:
    """The plan's short run, with rounds of a few iterations, and what follows from it."""
    if class_counts is None and settings.rounds.round_iterations is None:
        why = "how long a round is depends on how many samples a worker has"
        way_out = f"say --shard-size or {flag('round_iterations')}"
        raise BadInput(key("round_epochs", f"{settings.rounds.round_epochs or 1:g}"), why, way_out)
    both = [build_model(kind, 0) for kind in (models.generator, models.discriminator)]
    training = settings.training
    mean_size = contract.mean_size(class_counts or [[]])
    length = min(settings.round_length(mean_size), training.iterations)
    played = min(length, _PLAYED_ITERATIONS)
    # Noise has labels, and no groups.
    short = settings.but(round_iterations=played, round_epochs=None, clusters=ClusterForm())
    usual = contract.Planning(
        short,
        enough_workers=settings.aggregation.needs_answers,
        iterations=length,
        played_iterations=played,
        worker_bytes=training_bytes(
            (both[0], training.policy("generator")), (both[1], training.policy("discriminator"))
        ),
        notes=_notes(settings, _FLOAT_BYTES * sum(map(num_parameters, both))),
    )
    if settings.placing.clients is None:
        return usual
    return _placed_planning(usual, settings, ModelVector(*both).shape, class_counts=class_counts)


def _notes(settings: FederatedSettings, both: int) -> dict[str, tuple[str, float]]:
    """Table III (Hardy et al. 2019), with the bytes of both models' weights."""
    num_workers = num_participants(settings.participation, settings.num_workers)
    of_all, of_one = "Table III: {}, N(|θ| + |w|)", "Table III: {} a worker, |θ| + |w|"
    return {
        "server sends": (of_all, both * num_workers),
        "server receives": (of_all, both * num_workers),
        "host receives": (of_one, both),
        "host sends": (of_one, both),
    }


def _placed_planning(
    usual: contract.Planning[FederatedSettings],
    settings: FederatedSettings,
    shape: tuple[int, ...],
    class_counts: contract.ClassCounts | None,
) -> contract.Planning[FederatedSettings]:
    """Turns the plan of clients on their own ranks into one of placed clients."""
    if settings.placing.placement == PULL:
        raise BadInput(flag("placement", "pull"), "is there for comparison", "plan rr, bb or lb")
    if settings.rounds.training_load.name == "samples" and class_counts is None:
        why = "what clients train depends on what they hold, and the data cannot be read here"
        way_out = f"say {flag('data_dir')}, or --shard-size if all hold as many"
        raise BadInput(flag("training_load", "samples"), why, way_out)
    counts = dict(enumerate(class_counts or [[1]] * settings.num_clients, start=1))
    full = messages.Load(usual.iterations, settings.training.batch_size)
    less = choose_loads(settings.rounds.training_load, len(counts), full, {}, counts)
    loads = {client: less.get(client, full) for client in counts}
    iterations = [load.iterations for load in loads.values()]
    slots = settings.placing.slots if isinstance(settings.placing.slots, int) else num_cores()
    per_slot = len(_LOADS)
    played = min(max(iterations), _MOST_PLAYED) * sum(_LOADS) // (per_slot * max(_LOADS))
    short = usual.settings.but(
        clients=per_slot * slots,
        slots=slots,
        placement="rr",
        training_load=parse_load("samples"),
        round_iterations=max(1, played),
        participation=1.0,
        sampling="poisson" if settings.rounds.sampling == "poisson" else "random",
        weighting="uniform",
    )
    placing = contract.Placing(
        len(counts),
        num_participants(settings.participation, len(counts)),
        slots,
        about=_about(settings, class_counts, iterations),
        seconds=lambda rows: {x: fmean(took) for x, took in sorted(_seconds(rows).items())},
        shares=partial(_shares, settings, loads, counts, shape),
    )
    return replace(
        usual, settings=short, played_iterations=usual.iterations, notes={}, placing=placing
    )


def _about(
    settings: FederatedSettings,
    class_counts: contract.ClassCounts | None,
    iterations: Sequence[int],
) -> str:
    """In words: how much clients train, and how many samples they hold."""
    least, most = min(iterations), max(iterations)
    trains = count(least, "iteration") if least == most else f"{least} to {most} iterations"
    if class_counts is None:
        return f"a client trains {trains}"
    held = f"{contract.mean_size(class_counts):g} samples"
    if any(len(counts) > 1 for counts in class_counts):
        held = f"{held} on average by {flag('partition', settings.data.partition)}"
    return f"a client trains {trains} and holds {held}"


def _seconds(recorded: Sequence[Placed]) -> dict[int, list[float]]:
    """The seconds of clients in the short run, by their number of batches."""
    seconds: dict[int, list[float]] = {}
    for row in recorded:
        for slot in row.slots if row.number >= _WARM_UP else ():
            for client in slot.trained:
                seconds.setdefault(int(client.batches), []).append(max(client.seconds, 1e-6))
    return seconds


def _curve(recorded: Sequence[Placed]) -> Curve:
    """Equation 3 through the clients' seconds, scaled so that it foretells the short rounds."""
    by_batches = _seconds(recorded)
    a, b, d = fit_curve((x, len(seconds), fmean(seconds)) for x, seconds in by_batches.items())
    # A host's round ends with its last slot; slots also wait for each other's cores.
    took, foretold = [], []
    for row in recorded:
        slots = [slot.trained for slot in row.slots if row.number >= _WARM_UP and slot.trained]
        if slots:
            took.append(max(client.begin + client.seconds for slot in slots for client in slot))
            sums = [sum(curve_at((a, b, d), int(n.batches)) for n in slot) for slot in slots]
            foretold.append(max(sums))
    friction = sum(took) / sum(foretold)
    return friction * a, friction * b, friction * d


def _shares(
    settings: FederatedSettings,
    loads: Mapping[int, messages.Load],
    counts: Mapping[int, Sequence[int]],
    shape: tuple[int, ...],
    recorded: Sequence[Placed],
    hosts: Sequence[contract.PlannedHost],
) -> list[contract.PlannedShare]:
    """The work of each host in a typical round: of those drawn, the one nearest to their mean."""
    curve = _curve(recorded)
    batches = {client: load.iterations for client, load in loads.items()}
    slots = [
        Slot(number, slot, repr(host.speed))
        for number, host in enumerate(hosts)
        for slot in range(host.slots)
    ]

    def seconds(kind: str, x: int) -> float:
        return curve_at(curve, x) / float(kind)

    def seconds_of(slot: Slot, clients: Sequence[int]) -> float:
        return sum(seconds(slot.kind, batches[client]) for client in clients)

    strategy: Strategy = settings.placing.placement  # type: ignore[assignment] # `pull` is refused before
    drawn = _drawn(settings, counts)
    rounds = [place(strategy, chosen, batches, slots, seconds) for chosen in drawn]
    makespans = [max(starmap(seconds_of, placement.items())) for placement in rounds]
    mean = fmean(makespans)
    usual = min(range(len(rounds)), key=lambda n: abs(makespans[n] - mean))
    of_hosts: list[list[tuple[Slot, list[int]]]] = [[] for _ in hosts]
    for slot, clients in sorted(rounds[usual].items()):
        of_hosts[slot.host].append((slot, clients))
    return [
        _share([clients for _, clients in slots], [*starmap(seconds_of, slots)], loads, shape)
        for slots in of_hosts
    ]


def _drawn(settings: FederatedSettings, counts: Mapping[int, Sequence[int]]) -> Iterator[list[int]]:
    """The clients of the run's first rounds."""
    a_step = num_participants(settings.participation, len(counts))
    rule, fraction = settings.rounds.sampling, a_step / len(counts)
    sampling = new_sampling(rule, fraction, settings.training.seed)
    for number in range(max(2, min(_DRAWN, _DRAWS // (len(counts) * a_step)))):
        chosen = sampling.choose(number, counts)
        sampling.took_part(number, chosen)
        yield chosen


def _share(
    lists: Sequence[Sequence[int]],
    seconds: Sequence[float],
    loads: Mapping[int, messages.Load],
    shape: tuple[int, ...],
) -> contract.PlannedShare:
    """The work of one host, from the clients of its slots and the seconds of each slot."""
    clients = [client for of_slot in lists for client in of_slot]
    if not clients:
        return contract.PlannedShare(0, 0.0, 0.0, out=0.0, back=0.0)
    weight, models = 1 / len(clients), torch.zeros(shape)
    tasks = [[messages.ClientTask(n, loads[n], weight) for n in of_slot] for of_slot in lists]
    reports = [
        messages.ClientReport(n, 0, 0.1234567, 0.1234567, (0.1234567, 0.1234567)) for n in clients
    ]
    report = messages.report_message(1, messages.HostReport(reports, [_KIND] * len(lists)))
    back = _size(report) + _size(messages.sum_message(1, 1, models.double(), reports=reports))
    return contract.PlannedShare(
        len(clients), max(seconds), fmean(seconds), _size(messages.order(1, models, tasks)), back
    )


def _size(message: Message) -> float:
    return len(encode(message).body)
