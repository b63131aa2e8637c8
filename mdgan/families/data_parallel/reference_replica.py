"""A replica that takes the steps, the server's or one in every host of a ring, and who has it."""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from mdgan.families.data_parallel.replica import (
    DISCRIMINATOR,
    GENERATOR,
    GradientVector,
    Reduction,
    weight_vectors,
)
from mdgan.gan.model_state import (
    check_names,
    digest_of,
    load_model,
    load_moments,
    optimizer_tensors,
    part_of,
    under,
)
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import TrainedModel, make_optimizer


class ReferenceReplica:
    """A replica with optimizers; `models` are both networks, by name."""

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
        """Learning rates become those of an iteration."""
        for name, network in self._networks.items():
            network.at(iteration, scales[name])

    def put(self, reduction: Reduction, *mean: Tensor) -> None:
        """Puts the mean of all workers' gradients in place, and that of their buffers."""
        self.vector(reduction).write(*mean)

    def step(self, reduction: Reduction) -> None:
        """One optimizer step of each network in a reduction."""
        for name in reduction.networks:
            self._networks[name].step()

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next iteration depends on, by network and `…_moments`."""
        state: dict[str, Tensor] = {}
        for name, network in self._networks.items():
            state |= under(f"{name}.", network.model.state_dict())
            state |= under(f"{name}_moments.", self.moments(name))
        return {name: tensor.detach().clone() for name, tensor in state.items()}

    def digest(self) -> str:
        """A fingerprint of everything that the next iteration depends on, to the last bit."""
        return digest_of(self.state())

    def moments(self, name: str) -> dict[str, Tensor]:
        """What the optimizer of a network keeps: the tensors themselves."""
        network = self._networks[name]
        return optimizer_tensors(network.model, network.optimizer)

    def load_moments(self, name: str, moments: Mapping[str, Tensor]) -> None:
        """The optimizer of a network goes on with what `moments` returned; weights stay."""
        load_moments(self._networks[name].model, self._networks[name].optimizer, moments)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned, or raises `KeyError` or `RuntimeError`."""
        prefixes = [f"{name}{end}" for name in self._networks for end in (".", "_moments.")]
        check_names(state, *prefixes)
        for name, network in self._networks.items():
            weights, moments = part_of(state, f"{name}."), part_of(state, f"{name}_moments.")
            load_model(network.model, network.optimizer, weights, moments)


class SentWeights:
    """Which weights every host has, so that none is sent twice; in a ring also which moments."""

    def __init__(self, replica: ReferenceReplica) -> None:
        self._replica = replica
        self._has: dict[int, set[str]] = {}
        self._read: dict[str, Tensor] = {}

    def missing(self, host: int, names: Sequence[str]) -> dict[str, Tensor]:
        """The weights of some names that a host lacks; from here on it has them."""
        has = self._has.setdefault(host, set())
        lacking = [name for name in names if name not in has]
        has.update(lacking)
        for name in lacking:
            if name not in self._read:
                self._read[name] = self._replica.weights(name)
        return {name: self._read[name] for name in lacking}

    def moments(self, host: int) -> dict[str, dict[str, Tensor]]:
        """What the optimizers keep whose networks a host could not step with yet, by network."""
        has = self._has.setdefault(host, set())
        lacking = [name for name in (GENERATOR, DISCRIMINATOR) if _moments_of(name) not in has]
        has.update(map(_moments_of, lacking))
        return {name: self._replica.moments(name) for name in lacking}

    def note_step(self, reduction: Reduction, stepped: Collection[int] = ()) -> None:
        """The networks in a reduction are others now, but for hosts that took the same step."""
        changed = reduction.changed
        for name in changed:
            self._read.pop(name, None)
        for host, has in self._has.items():
            if host not in stepped:
                has -= {*changed, *map(_moments_of, reduction.networks)}

    def forget(self, host: int) -> None:
        """A host has nothing any more."""
        self._has.pop(host, None)

    def keep_only(self, hosts: Collection[int]) -> None:
        """Forgets hosts that are gone."""
        self._has = {host: has for host, has in self._has.items() if host in hosts}


def _moments_of(network: str) -> str:
    return f"moments of the {network}"
