"""A replica that takes the steps: the server's, and in a ring one in every host."""

import hashlib
from collections.abc import Mapping
from itertools import chain

import torch
from torch import Tensor, nn

from mdgan.families.data_parallel.replica import (
    GENERATOR,
    GradientVector,
    Reduction,
    weight_vectors,
)
from mdgan.gan.model_state import (
    check_names,
    load_model,
    load_moments,
    optimizer_tensors,
    part_of,
    under,
)
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import make_optimizer
from mdgan.gan.trained_model import TrainedModel


class ReferenceReplica:
    """A replica with optimizers.

    Args:
        models: both networks, by name.
        policies: how each is optimized.

    Attributes:
        models: both networks, by name.
    """

    def __init__(self, models: Mapping[str, nn.Module], policies: Mapping[str, Policy]) -> None:
        self.models = models
        self._networks = {
            name: TrainedModel(model, make_optimizer(model, policies[name]), policies[name])
            for name, model in models.items()
        }
        self._weights = weight_vectors(models)
        self._answers: dict[Reduction, GradientVector] = {}

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        return next(self.models[GENERATOR].parameters()).device

    def vector(self, reduction: Reduction) -> GradientVector:
        """What a reduction averages."""
        return self._answers.setdefault(reduction, reduction.vector(self.models))

    def weights(self, name: str) -> Tensor:
        """The present weights of a network, or the buffers of both, as they travel."""
        return self._weights[name].read()

    def at(self, iteration: int, scales: Mapping[str, float]) -> None:
        """Learning rates become those of an iteration.

        Args:
            iteration: i; the first is 1.
            scales: what that of each network is multiplied by besides.
        """
        for name, network in self._networks.items():
            network.at(iteration, scales[name])

    def put(self, reduction: Reduction, *mean: Tensor) -> None:
        """Puts the mean of all workers' gradients in place, and that of their buffers.

        Args:
            reduction: which gradients.
            mean: as for `GradientVector.write`.
        """
        self.vector(reduction).write(*mean)

    def step(self, reduction: Reduction) -> None:
        """One optimizer step of each network in a reduction."""
        for name in reduction.networks:
            self._networks[name].step()

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next iteration depends on.

        Returns:
            `generator.…` and `discriminator.…`: weights and buffers; `generator_moments.…` and
            `discriminator_moments.…`: what the optimizers keep.
        """
        parts = chain.from_iterable(
            (
                under(f"{name}.", network.model.state_dict()),
                under(f"{name}_moments.", self.moments(name)),
            )
            for name, network in self._networks.items()
        )
        return {name: t.detach().clone() for part in parts for name, t in part.items()}

    def digest(self) -> str:
        """A fingerprint of everything that the next iteration depends on, to the last bit."""
        told = hashlib.blake2b(digest_size=16)
        for name, tensor in sorted(self.state().items()):
            told.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
            told.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return told.hexdigest()

    def moments(self, name: str) -> dict[str, Tensor]:
        """What the optimizer of a network keeps: the tensors themselves."""
        network = self._networks[name]
        return optimizer_tensors(network.model, network.optimizer)

    def load_moments(self, name: str, moments: Mapping[str, Tensor]) -> None:
        """The optimizer of a network goes on with what `moments` returned; weights stay.

        Raises:
            KeyError, RuntimeError: this does not fit the network.
        """
        load_moments(self._networks[name].model, self._networks[name].optimizer, moments)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned.

        Raises:
            KeyError, RuntimeError: the state does not fit these networks.
        """
        prefixes = [f"{name}{end}" for name in self._networks for end in (".", "_moments.")]
        check_names(state, *prefixes)
        for name, network in self._networks.items():
            weights, moments = part_of(state, f"{name}."), part_of(state, f"{name}_moments.")
            load_model(network.model, network.optimizer, weights, moments)
