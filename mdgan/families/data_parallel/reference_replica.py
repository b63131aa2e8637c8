"""A replica of both networks with optimizers: the server's, or one that takes the same steps."""

from collections.abc import Mapping
from functools import cache, partial

import torch
from torch import Tensor, nn

from mdgan.families.data_parallel.replica import GENERATOR, Reduction, weight_vectors
from mdgan.gan.model_state import (
    check_names,
    load_model,
    load_moments,
    optimizer_tensors,
    part_of,
    under,
)
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import TrainedModel, make_optimizer


class ReferenceReplica:
    """A replica with optimizers.

    Attributes:
        models: both networks, by name; `networks`: the same, with their optimizers.
        vector: what a reduction averages.
    """

    def __init__(self, models: Mapping[str, nn.Module], policies: Mapping[str, Policy]) -> None:
        self.models = models
        self.networks = {
            name: TrainedModel(model, make_optimizer(model, policies[name]), policies[name])
            for name, model in models.items()
        }
        self._weights = weight_vectors(models)
        self.vector = cache(partial(Reduction.vector, models=models))

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        return next(self.models[GENERATOR].parameters()).device

    def weights(self, name: str) -> Tensor:
        """The present weights of a network, or the buffers of both, as they travel."""
        return self._weights[name].read()

    def at(self, iteration: int, scales: Mapping[str, float]) -> None:
        """Learning rates become those of an iteration."""
        for name, network in self.networks.items():
            network.at(iteration, scales[name])

    def put(self, reduction: Reduction, mean: Tensor) -> None:
        """Puts the mean of all workers' gradients in place, and that of their buffers."""
        self.vector(reduction).write(mean)

    def step(self, reduction: Reduction) -> None:
        """One optimizer step of each network in a reduction."""
        for name in reduction.networks:
            self.networks[name].step()

    def moments(self, name: str) -> dict[str, Tensor]:
        """What the optimizer of a network keeps: the tensors themselves."""
        network = self.networks[name]
        return optimizer_tensors(network.model, network.optimizer)

    def load_moments(self, name: str, moments: Mapping[str, Tensor]) -> None:
        """The optimizer of a network goes on with what `moments` gave; weights stay.

        Raises:
            KeyError, RuntimeError: this does not fit the network.
        """
        network = self.networks[name]
        load_moments(network.model, network.optimizer, moments)

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next iteration depends on, by network and `…_moments`."""
        state: dict[str, Tensor] = {}
        for name, network in self.networks.items():
            state |= under(f"{name}.", network.model.state_dict())
            state |= under(f"{name}_moments.", self.moments(name))
        return {name: tensor.detach().clone() for name, tensor in state.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned, or raises `KeyError` or `RuntimeError`."""
        prefixes = [f"{name}{end}" for name in self.networks for end in (".", "_moments.")]
        check_names(state, *prefixes)
        for name, network in self.networks.items():
            weights, moments = part_of(state, f"{name}."), part_of(state, f"{name}_moments.")
            load_model(network.model, network.optimizer, weights, moments)
