"""A generator with its optimizer and random numbers: all state that its training needs."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mdgan.gan.labels import Samples, draw_labels, inputs, num_classes_of, uniform_counts
from mdgan.gan.model_state import check_names, load_model, optimizer_tensors, part_of, under
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import TrainedModel
from mdgan.gan.randomness import RandomState, restore_generator


class Generator(TrainedModel):
    """G with its optimizer over w. `noise` draws z and y, `random_state` is for dropout."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        z_dim: int,
        noise: torch.Generator,
        random_state: RandomState,
        policy: Policy | None = None,
    ) -> None:
        super().__init__(model, optimizer, policy)
        num_classes = num_classes_of(model)
        self.label_counts = None if num_classes is None else uniform_counts(num_classes)
        """Classes are generated in proportion to these, int64 [K]: equally often unless the
        algorithm sets other counts. None if G is not conditional."""
        self.z_dim = z_dim
        self._noise = noise
        self.random_state = random_state

    def draw(self, num_samples: int, weights: Mapping[str, Tensor] | None = None) -> Samples:
        """Draws X = G(z), z ~ N(0, I), with its graph; X = G(z, y) if G is conditional."""
        z, labels = self.draw_inputs(num_samples)
        arguments = inputs(z, labels)
        with self.random_state.in_place():
            images: Tensor = (
                self.model(*arguments)
                if weights is None
                else torch.func.functional_call(self.model, dict(weights), arguments)
            )
        return Samples(images, labels)

    def draw_inputs(self, num_samples: int) -> tuple[Tensor, Tensor | None]:
        """Draws the inputs of G: z, [num_samples, z_dim], and y if G is conditional."""
        z = torch.randn(num_samples, self.z_dim, generator=self._noise).to(self.device)
        if self.label_counts is None:
            return z, None
        return z, draw_labels(self.label_counts, num_samples, self._noise).to(self.device)

    def put_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Sets the gradient of each of `parameters` for `step`, without copying."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient

    def state(self) -> dict[str, Tensor]:
        """Copies everything that the next step depends on, besides the gradient."""
        state = {
            **under("generator.", self.model.state_dict()),
            **under("optimizer.", optimizer_tensors(self.model, self.optimizer)),
            "noise": self._noise.get_state(),
            **under("random.", self.random_state.tensors()),
        }
        return {name: tensor.detach().clone() for name, tensor in state.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a `state`; KeyError or RuntimeError if it does not fit."""
        check_names(state, "generator.", "optimizer.", "noise", "random.")
        weights, moments = part_of(state, "generator."), part_of(state, "optimizer.")
        load_model(self.model, self.optimizer, weights, moments=moments)
        self.random_state.restore(part_of(state, "random."))
        restore_generator(self._noise, state["noise"])
