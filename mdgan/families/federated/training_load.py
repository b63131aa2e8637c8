"""`--training-load`: how much a client trains in a round; less if it is short of memory or speed.

Guerraoui et al. 2020, "FeGAN: Scaling Distributed GANs", sections 3.2 and 3.4: clients measure
their capabilities, the server fits a linear model, and weaker clients get fewer iterations or
smaller batches, the same in all rounds. The paper gives no formula; ours are below.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import floor
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import psutil
import torch
from torch import Tensor, nn

from mdgan.families.federated.messages import Load
from mdgan.gan.build import Models
from mdgan.gan.labels import call, num_classes_of
from mdgan.gan.optimizers import training_bytes

if TYPE_CHECKING:
    from mdgan.engine.server.peers import Peers
    from mdgan.families.federated.round import Client
    from mdgan.families.federated.settings import FederatedSettings, LoadForm

_CAPABILITIES = "capabilities"  # the field in which hosts send their clients' measurements
_NOISE = 1.1
"""A client that is slower than the median by less than this factor may be so by chance."""
_TRIES = 3
_KEPT = 2  # memory holds a layer's output for the backward pass, and its gradient

_BatchSize = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_Seconds = Annotated[float, msgspec.Meta(ge=1e-9, le=1e6)]
_Bytes = Annotated[int, msgspec.Meta(ge=1, le=2**60)]


class Capability(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The measurements of a client: pairs of a batch size and the seconds of an iteration.

    `fixed_bytes` are the bytes of models and optimizers, whatever the batch size is.
    """

    seconds: Annotated[
        tuple[tuple[_BatchSize, _Seconds], ...], msgspec.Meta(min_length=1, max_length=64)
    ]
    memory_bytes: _Bytes
    fixed_bytes: _Bytes
    bytes_per_sample: _Bytes


# The server calls these.


def choose_loads(
    form: "LoadForm",
    num_clients: int,
    full: Load,
    measured: Mapping[int, Capability],
    class_counts: Mapping[int, Sequence[int]],
) -> dict[int, Load]:
    """By client, the loads that may be less than full (section 3.4); `num_clients` is N at first.

    Args:
        measured: by client, its measurements; see `told_of_clients`.
    """
    if form.name == "measured":
        return training_loads(measured, full)
    if form.name == "samples":
        return loads_by_samples(class_counts, full)
    if form.name == "weak":
        return weak_loads(num_clients, form.fraction, form.what, full=full)
    return {}


def training_loads(capabilities: Mapping[int, Capability], full: Load) -> dict[int, Load]:
    """The load of each client that has measured itself, from the measurements of all.

    A client with too little memory for a batch of B gets the largest batch that fits, at least 1.
    If it would then take over a tenth longer than the median client, it gets as many iterations as
    fit into the median client's time, but at least half (the paper's weak devices: up to half).
    """
    if not capabilities:
        return {}
    batch_sizes, seconds = dict[int, int](), dict[int, float]()
    for n, capability in capabilities.items():
        free_bytes = capability.memory_bytes - capability.fixed_bytes
        fits = free_bytes // capability.bytes_per_sample
        batch_sizes[n] = max(1, min(full.batch_size, fits))
        start, slope = fit_line(capability.seconds)
        seconds[n] = start + slope * batch_sizes[n]
    allowed_seconds = full.iterations * median(seconds.values())
    loads = {}
    for n, of_iteration in seconds.items():
        in_time = min(full.iterations, floor(allowed_seconds / of_iteration))
        if full.iterations * of_iteration <= _NOISE * allowed_seconds:
            in_time = full.iterations
        loads[n] = Load(max(_half(full.iterations), in_time), batch_sizes[n])
    return loads


def weak_loads(num_clients: int, fraction: float, what: str, full: Load) -> dict[int, Load]:
    """The loads of the paper's trial in which the last ⌊fraction·N⌋ clients are weak (figure 16).

    Weak clients get half of the batch size (`memory`) or of the iterations (`speed`), rounded up.
    """
    num_weak = floor(round(fraction * num_clients, 9))  # 0.29 · 100 is 28.999999999999996
    weak = Load(full.iterations, _half(full.batch_size))
    if what == "speed":
        weak = Load(_half(full.iterations), full.batch_size)
    strong = num_clients - num_weak
    return {n: full if n <= strong else weak for n in range(1, num_clients + 1)}


def loads_by_samples(class_counts: Mapping[int, Sequence[int]], full: Load) -> dict[int, Load]:
    """Loads in proportion to the samples of clients: all train equally many epochs in a round."""
    sizes = {client: sum(counts) for client, counts in class_counts.items()}
    mean = fmean(sizes.values())
    return {
        client: Load(max(1, round(full.iterations * size / mean)), full.batch_size)
        for client, size in sizes.items()
    }


def fit_line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """The least-squares line of seconds against batch size that is nowhere negative.

    Returns its seconds at batch size 0, and seconds per sample; neither is negative. By noise the
    best of all lines may fall, or begin below zero. Then the best level line, or the best line
    through zero, is the best non-negative line.
    """
    sizes = np.array([size for size, _ in points], dtype=np.float64)
    seconds = np.array([second for _, second in points], dtype=np.float64)
    columns = np.stack([np.ones_like(sizes), sizes], axis=1)
    start, slope = np.linalg.lstsq(columns, seconds, rcond=None)[0].tolist()
    if slope < 0 or len(np.unique(sizes)) == 1:
        return float(seconds.mean()), 0.0
    if start < 0:
        return 0.0, float(sizes @ seconds / (sizes @ sizes))
    return start, slope


def _half(count: int) -> int:
    return (count + 1) // 2


def told_of_clients(peers: "Peers") -> dict[int, Capability]:
    """By client, the well-formed measurements that its own host has sent; a host may lie."""
    capability_of: dict[int, Capability] = {}
    for host, fields in peers.told().items():
        by_client: Any = fields.get(_CAPABILITIES)
        for client in peers.admission.carried(host) if isinstance(by_client, Mapping) else ():
            with suppress(msgspec.ValidationError):  # without measurements: the full load
                capability_of[client] = msgspec.convert(by_client.get(str(client)), Capability)
    return capability_of


# Hosts call these.


def capabilities(
    clients: "Mapping[int, Client]",
    settings: "FederatedSettings",
    models: Models,
    num_clients_here: int,
) -> dict[str, Any]:
    """The measurements of this host's clients, by rank, as a field of its hello."""
    if settings.rounds.training_load.name != "measured":
        return {}
    fixed, per_sample = _bytes_needed(models, settings)
    memory = int(psutil.virtual_memory().available // max(1, num_clients_here))
    size = settings.training.batch_size
    capability_of = {
        str(rank): Capability(_seconds(client, size), memory, fixed, per_sample)
        for rank, client in clients.items()
    }
    return {_CAPABILITIES: msgspec.to_builtins(capability_of)}


def _seconds(client: "Client", batch_size: int) -> tuple[tuple[int, float], ...]:
    """Batch sizes, and the seconds of an iteration with each; restores the client's state."""
    before, models = client.state(), client.vector.read()
    points = []
    for size in sorted({max(1, batch_size // 2), batch_size}):
        client.train(models, 1, size)  # warms up
        tries = []
        for _ in range(_TRIES):
            begin = time.perf_counter()
            client.train(models, 1, size)
            tries.append(time.perf_counter() - begin)
        points.append((size, median(tries)))
    client.load_state(before)
    return tuple(points)


def _bytes_needed(models: Models, settings: "FederatedSettings") -> tuple[int, int]:
    """The bytes of both models with their optimizers, and those of each sample in a batch."""
    generator, discriminator = models.generator(), models.discriminator()
    samples, z = torch.zeros(2, *models.shape), torch.zeros(2, models.z_dim)
    outputs = _output_bytes(generator, z) + _output_bytes(discriminator, samples)
    of_g, of_d = settings.training.policy("generator"), settings.training.policy("discriminator")
    fixed = training_bytes((generator, of_g), (discriminator, of_d))
    return fixed, max(1, _KEPT * outputs // len(samples))


@torch.no_grad()
def _output_bytes(model: nn.Module, inputs: Tensor) -> int:
    """The bytes that all layers of a model return for some inputs."""
    total = 0

    def add(_layer: nn.Module, _inputs: Any, output: Any) -> None:
        nonlocal total
        if isinstance(output, Tensor):
            total += output.numel() * output.element_size()

    layers = [layer for layer in model.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(add) for layer in layers]
    labels = None if num_classes_of(model) is None else torch.zeros(len(inputs), dtype=torch.int64)
    call(model, inputs, labels)
    for hook in hooks:
        hook.remove()
    return total
