"""How much a client trains in a round: less if it is short of memory or speed.

Guerraoui et al. 2020, "FeGAN: Scaling Distributed GANs", sections 3.2 and 3.4: clients measure what
they are capable of, the server fits a linear model, and weaker clients get fewer iterations or
smaller batches, once for the whole training. The paper gives neither formula; ours are below.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from statistics import fmean, median
from typing import Annotated, Any

import msgspec
import numpy as np

from mdgan.families.federated.forms import LoadForm

Points = Sequence[tuple[int, float]]
"""Measurements: batch size, and seconds per iteration."""

Line = tuple[float, float]
"""Seconds per iteration: a constant, and seconds per sample of the batch; neither is negative."""

_NOISE = 1.1
"""A client slower than the median by less than this factor may owe that to measurement noise."""

_BatchSize = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_Seconds = Annotated[float, msgspec.Meta(ge=1e-9, le=1e6)]
_Bytes = Annotated[int, msgspec.Meta(ge=1, le=2**60)]


class Capability(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a client has measured of itself.

    Attributes:
        seconds: batch sizes, and how long one iteration with each took; at least one pair.
        memory_bytes: how much training may use.
        fixed_bytes: how much the models and optimizers take with any batch size.
        bytes_per_sample: how much each sample of a batch takes in addition.
    """

    seconds: Annotated[
        tuple[tuple[_BatchSize, _Seconds], ...], msgspec.Meta(min_length=1, max_length=64)
    ]
    memory_bytes: _Bytes
    fixed_bytes: _Bytes
    bytes_per_sample: _Bytes


@dataclass(frozen=True)
class Load:
    """What a client does in one round.

    Attributes:
        iterations: local training iterations, at most E.
        batch_size: at most B.
    """

    iterations: int
    batch_size: int


def training_loads(
    capabilities: Mapping[int, Capability | None], iterations: int, batch_size: int
) -> dict[int, Load]:
    """The load of each client, from the measurements of all.

    Memory is a hard limit: a client that cannot hold a batch of B gets the largest that fits, at
    least 1. A client that would then take longer for E iterations than the median client gets as
    many as the median client's time allows, but never fewer than half (the paper's weak devices get
    up to half). Up to a tenth more than the median client's time is allowed.

    Args:
        capabilities: of all clients; None for one without measurements, which gets the full load.
        iterations: E ≥ 1.
        batch_size: B ≥ 1.

    Returns:
        Client → its load.
    """
    known = {n: capability for n, capability in capabilities.items() if capability is not None}
    overall = [point for capability in known.values() for point in capability.seconds]
    batch_sizes = {n: _batch_that_fits(known[n], batch_size) for n in known}
    iteration_seconds = {
        n: _predict(_line_of(known[n].seconds, overall), batch_sizes[n]) for n in known
    }
    loads = {n: Load(iterations, batch_size) for n in capabilities}
    if known:
        allowed_seconds = iterations * median(iteration_seconds.values())
        for n, seconds in iteration_seconds.items():
            in_time = min(iterations, floor(allowed_seconds / seconds))
            if iterations * seconds <= _NOISE * allowed_seconds:
                in_time = iterations
            loads[n] = Load(max(_half(iterations), in_time), batch_sizes[n])
    return loads


def weak_loads(
    clients: Iterable[int], fraction: float, what: str, iterations: int, batch_size: int
) -> dict[int, Load]:
    """The loads of the paper's trial in which some clients are weak (figure 16).

    Args:
        clients: of any order; the last ⌊fraction·N⌋ by rank are weak.
        fraction: in [0, 1].
        what: the weak ones get half of the batch size (`memory`) or of the iterations (`speed`),
            rounded up.
        iterations: E ≥ 1, of the other clients.
        batch_size: B ≥ 1, of the other clients.

    Returns:
        Client → its load.
    """
    ordered = sorted(clients)
    num_weak = floor(round(fraction * len(ordered), 9))  # 0.29 · 100 is 28.999999999999996
    full = Load(iterations, batch_size)
    weak = Load(iterations, _half(batch_size))
    if what == "speed":
        weak = Load(_half(iterations), batch_size)
    first_weak = len(ordered) - num_weak
    return {n: weak if place >= first_weak else full for place, n in enumerate(ordered)}


def loads_by_samples(class_counts: Mapping[int, Sequence[int]], full: Load) -> dict[int, Load]:
    """Loads in proportion to what clients hold: with `--round-epochs E` each trains E epochs.

    Args:
        class_counts: of all clients.
        full: of a client with the mean number of samples.

    Returns:
        Client → its load, at least one iteration.
    """
    sizes = {client: sum(counts) for client, counts in class_counts.items()}
    mean = fmean(sizes.values())
    return {
        client: Load(max(1, round(full.iterations * size / mean)), full.batch_size)
        for client, size in sizes.items()
    }


def load_share(load: Load, full: Load) -> float:
    """Iterations times batch size, relative to the full load: the factor of the KL weight."""
    return (load.iterations * load.batch_size) / (full.iterations * full.batch_size)


def fit_line(points: Points) -> Line:
    """The straight line of seconds against batch size, by least squares over non-negative lines.

    Noise can make the best line fall, or begin below zero. Then the best level line, or the best
    that begins at zero, is the best non-negative one.

    Args:
        points: at least one; the line is level if all have the same batch size.

    Returns:
        See `Line`; above 0 at every batch size ≥ 1, as all measurements are.
    """
    sizes = np.array([size for size, _ in points], dtype=np.float64)
    seconds = np.array([second for _, second in points], dtype=np.float64)
    if len(np.unique(sizes)) == 1:
        return float(seconds.mean()), 0.0
    columns = np.stack([np.ones_like(sizes), sizes], axis=1)
    start, slope = np.linalg.lstsq(columns, seconds, rcond=None)[0].tolist()
    if slope < 0:
        return float(seconds.mean()), 0.0
    if start < 0:
        return 0.0, float(sizes @ seconds / (sizes @ sizes))
    return start, slope


def _line_of(own: Points, overall: Points) -> Line:
    """A client's line; with one batch size measured, its slope is that of all clients' points."""
    if len({size for size, _ in own}) > 1:
        return fit_line(own)
    size, seconds = own[0][0], fmean(second for _, second in own)
    slope = min(fit_line(overall)[1], seconds / size)  # so that it begins at zero or above
    return seconds - slope * size, slope


def _predict(line: Line, batch_size: int) -> float:
    start, slope = line
    return start + slope * batch_size


def _batch_that_fits(capability: Capability, batch_size: int) -> int:
    room = (capability.memory_bytes - capability.fixed_bytes) // capability.bytes_per_sample
    return max(1, min(batch_size, room))


def _half(count: int) -> int:
    return (count + 1) // 2


def choose_loads(
    form: LoadForm,
    num_workers: int,
    workers: Sequence[int],
    full: Load,
    told: Mapping[int, Mapping[str, Any]],
    class_counts: Mapping[int, Sequence[int]],
) -> dict[int, Load]:
    """The server's choice of training loads (Guerraoui et al. 2020, section 3.4).

    Args:
        form: `--training-load`.
        num_workers: N at the start; of these a fraction may be weak.
        workers: those that take part.
        full: what a strong worker does.
        told: by host, what it said of its workers when it arrived.
        class_counts: by worker, the samples of each class that it holds; of all workers.
    """
    found: dict[int, Load] = {}
    if form.name == "measured":
        found = training_loads(_capabilities(told), full.iterations, full.batch_size)
    elif form.name == "samples":
        found = loads_by_samples(class_counts, full)
    elif form.name == "weak":
        every_worker = range(1, num_workers + 1)
        found = weak_loads(every_worker, form.fraction, form.what, full.iterations, full.batch_size)
    return {worker: found.get(worker, full) for worker in workers}


def _capabilities(told: Mapping[int, Mapping[str, Any]]) -> dict[int, Capability]:
    """What hosts told of their workers, as far as it is well-formed; a host may lie."""
    found: dict[int, Capability] = {}
    for said in told.values():
        records = said.get("capabilities", {})
        for worker, record in records.items() if isinstance(records, dict) else ():
            try:
                found[int(worker)] = msgspec.convert(record, Capability)
            except (ValueError, msgspec.ValidationError):
                continue  # as a host that told nothing: the full load
    return found
