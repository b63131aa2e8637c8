"""What a client can do: how fast it trains here, and how much memory it may use for that."""

import time
from collections.abc import Mapping
from statistics import median
from typing import Any

import msgspec
import psutil
import torch
from torch import Tensor, nn

from mdgan.engine.message_sizes import training_bytes
from mdgan.families.federated.fl_gan import Client
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.federated.training_load import Capability
from mdgan.gan.build import Models
from mdgan.gan.labels import call, num_classes_of

_TRIES = 3
_KEPT = 2
"""A layer's output is kept for the backward pass, and gets a gradient."""


def tell_capabilities(
    clients: Mapping[int, Client],
    settings: FederatedSettings,
    models: Models,
    num_clients_here: int,
) -> dict[str, Any]:
    """What this host's clients tell the server when they arrive.

    Args:
        clients: by rank; they are the same after it.
        settings: of the run.
        models: of the run.
        num_clients_here: how many clients share this machine's memory.

    Returns:
        Field `capabilities`, by rank; empty unless `--training-load measured`.
    """
    if settings.rounds.training_load.name != "measured":
        return {}
    fixed, per_sample = _bytes_needed(models, settings)
    memory = psutil.virtual_memory().available // max(1, num_clients_here)
    found = {
        rank: Capability(
            _seconds(client, settings.training.batch_size), int(memory), fixed, per_sample
        )
        for rank, client in clients.items()
    }
    return {"capabilities": {str(rank): msgspec.to_builtins(able) for rank, able in found.items()}}


def _seconds(client: Client, batch_size: int) -> tuple[tuple[int, float], ...]:
    """Batch sizes, and the seconds of an iteration with each; the client is the same after it."""
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


def _bytes_needed(models: Models, settings: FederatedSettings) -> tuple[int, int]:
    """What both models take with their optimizers, and what each sample of a batch adds."""
    generator, discriminator = models.generator(), models.discriminator()
    samples = torch.zeros(2, *models.shape)
    z = torch.zeros(2, models.z_dim)
    outputs = _outputs(generator, z) + _outputs(discriminator, samples)
    fixed = training_bytes(
        (generator, settings.training.policy("generator")),
        (discriminator, settings.training.policy("discriminator")),
    )
    return fixed, max(1, _KEPT * outputs // len(samples))


@torch.no_grad()
def _outputs(model: nn.Module, inputs: Tensor) -> int:
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
