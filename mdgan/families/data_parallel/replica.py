"""Adds to the copies of `step.py` what a run needs: the weights they send, and checkpoints."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mdgan.families.data_parallel.step import ImageBuffer, LocalStep, MeanStep
from mdgan.families.data_parallel.vectors import GENERATOR, weight_vectors
from mdgan.gan import model_state
from mdgan.gan.labels import Samples, num_classes_of
from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.optimizer_settings import Policy

_IMAGES = "images."
_LABELS = "labels."
_OF_MODELS = ("generator.", "optimizer.", "worker.discriminator.")
"""Prefixes of names in `LocalGAN.state` that the server's next question replaces."""


class KeptImages(ImageBuffer):
    """An image buffer that checkpoints save."""

    def __init__(self, shape: Sequence[int], num_classes: int | None) -> None:
        super().__init__()
        self._shape = torch.Size(shape)
        self._num_classes = num_classes

    def state(self) -> dict[str, Tensor]:
        """A copy: `0`, `1`, … are the images, the oldest first, and `labels.0`, … their classes."""
        state = {}
        for number, batch in enumerate(self.batches):
            state[str(number)] = batch.images.clone()
            if batch.labels is not None:
                state[f"{_LABELS}{number}"] = batch.labels.clone()
        return state

    def read(self, state: Mapping[str, Tensor], device: torch.device) -> list[Samples]:
        """The batches in what `state` returned, or raises `KeyError` or `RuntimeError`."""
        labelled = self._num_classes is not None
        numbers = [str(number) for number in range(len(state) // (2 if labelled else 1))]
        expected = {*numbers, *(f"{_LABELS}{number}" for number in numbers if labelled)}
        if state.keys() != expected:
            raise KeyError(f"no batches of generated samples: {sorted(state)}")
        batches = [Samples(state[number], state.get(f"{_LABELS}{number}")) for number in numbers]
        for images, labels in ((batch.images, batch.labels) for batch in batches):
            if images.shape[1:] != self._shape or images.dtype != torch.float32:
                raise RuntimeError(f"no generated images: {images.dtype} {list(images.shape)}")
            if labels is None:
                continue
            fits = labels.dtype == torch.int64 and labels.shape == images.shape[:1]
            if not fits or not bool(((labels >= 0) & (labels < (self._num_classes or 0))).all()):
                raise RuntimeError(f"no classes of generated images: {labels.dtype}")
        return [batch.to(device) for batch in batches]


class Replica(LocalStep):
    """A worker's copy of both networks on a host; the server's weights replace those of it."""

    images: KeptImages

    def __init__(self, gan: LocalGAN, shape: Sequence[int]) -> None:
        super().__init__(gan, KeptImages(shape, num_classes_of(gan.discriminator)))
        self._weights = weight_vectors(self.models)

    def take_over(self, weights: Mapping[str, Tensor]) -> None:
        """Takes over the server's weights and buffers, by the names of `weight_vectors`."""
        for name, vector in weights.items():
            self._weights[name].write(vector)
        if GENERATOR in weights:
            self.generated = None

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the worker's next answer depends on, besides the networks."""
        now = self.gan.state()
        kept = {name: now[name] for name in now if not name.startswith(_OF_MODELS)}
        return {**kept, **model_state.under(_IMAGES, self.images.state())}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Restores what `state` returned; False if the worker's number of samples has changed."""
        model_state.check_names(state, "noise", "random.", "worker.", _IMAGES)
        images = self.images.read(model_state.part_of(state, _IMAGES), self.gan.trained.device)
        now = self.gan.state()
        models = {name: now[name] for name in now if name.startswith(_OF_MODELS)}
        kept = {name: state[name] for name in state if not name.startswith(_IMAGES)}
        same_data = self.gan.load_state({**kept, **models})
        self.images.batches, self.generated = images, None
        return same_data


class ReferenceReplica(MeanStep):
    """A copy with optimizers: the server's, or that of a host that takes the same steps."""

    def __init__(self, models: Mapping[str, nn.Module], policies: Mapping[str, Policy]) -> None:
        super().__init__(models, policies)
        self._weights = weight_vectors(models)

    @property
    def device(self) -> torch.device:
        """The device of both networks."""
        return next(self.models[GENERATOR].parameters()).device

    def weights(self, name: str) -> Tensor:
        """The present weights of a network, or the buffers of both, as they travel."""
        return self._weights[name].read()

    def moments(self, name: str) -> dict[str, Tensor]:
        """The tensors in the state of a network's optimizer, not copies of them."""
        network = self.networks[name]
        return model_state.optimizer_tensors(network.model, network.optimizer)

    def load_moments(self, name: str, moments: Mapping[str, Tensor]) -> None:
        """Replaces the state of a network's optimizer by what `moments` returned; weights stay."""
        network = self.networks[name]
        model_state.load_moments(network.model, network.optimizer, moments)

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next iteration depends on, by network and `…_moments`."""
        state: dict[str, Tensor] = {}
        for name, network in self.networks.items():
            state |= model_state.under(f"{name}.", network.model.state_dict())
            state |= model_state.under(f"{name}_moments.", self.moments(name))
        return {name: tensor.detach().clone() for name, tensor in state.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned, or raises `KeyError` or `RuntimeError`."""
        prefixes = [f"{name}{end}" for name in self.networks for end in (".", "_moments.")]
        model_state.check_names(state, *prefixes)
        for name, network in self.networks.items():
            weights = model_state.part_of(state, f"{name}.")
            moments = model_state.part_of(state, f"{name}_moments.")
            model_state.load_model(network.model, network.optimizer, weights, moments=moments)
