"""Samples that are planted beside a worker's own, to be drawn, judged and cut as these are."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mdgan.gan.discriminator_learner import LearningRules
from mdgan.gan.labels import Samples, num_classes_of
from mdgan.gan.randomness import generator_for
from mdgan.gan.regularizers.contract import REAL, Regularizers
from mdgan.privacy.per_sample import clipped_sum, per_sample_gradients, still


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Parameters, or gradients of them, as one vector, float64 [d], on the CPU."""
    return torch.cat([each.detach().double().flatten().cpu() for each in tensors])


@dataclass(frozen=True)
class Planted:
    """The planted samples, as a step's discriminator sees them.

    Attributes:
        model: D, in training mode.
        rules: Ã.
        regularizers: of the run.
        like: some real samples, perhaps none, [.., C, H, W]; decide shape and device.
        clip: C.
    """

    model: nn.Module
    rules: LearningRules
    regularizers: Regularizers
    like: Samples
    clip: float

    def _samples(self, places: Tensor) -> Samples:
        """The planted samples with these numbers: black and white dots, the same in each step."""
        shape, classes = self.like.images.shape[1:], num_classes_of(self.model)
        made = [
            torch.randint(0, 2, shape, generator=generator_for(0, "planted", place)) * 2.0 - 1
            for place in places.tolist()
        ]
        images = torch.stack(made) if made else torch.empty(0, *shape)
        labels = None if classes is None else places % classes
        seen = Samples(images, labels).to(self.like.images.device)
        return seen.of(self.regularizers.see(seen.images)) if made else seen

    def summed(self, places: Tensor) -> Tensor:
        """The sum of some of their gradients, made and cut as those of real samples are.

        D's buffers are the same after any places.

        Args:
            places: int64 [n]; n may be 0.

        Returns:
            float64 [d], on the CPU.
        """
        samples = self._samples(places).padded(max(1, len(places)))
        penalties = self.regularizers.at(REAL)
        total, _ = clipped_sum(self.model, self.rules, samples, len(places), self.clip, penalties)
        return flat(total.values())

    def directions(self, number: int) -> Tensor:
        """What the gradient of each would be, but for dropout and augmentation, cut to norm C.

        Args:
            number: of the samples; their gradients are in memory together.

        Returns:
            float32 [number, d], on the CPU.
        """
        with still(self.model):
            found, _ = per_sample_gradients(
                self.model,
                self.rules,
                self._samples(torch.arange(number)),
                self.regularizers.at(REAL),
            )
        gradients = torch.cat([each.detach().flatten(1).cpu() for each in found.values()], dim=1)
        gradients = gradients.nan_to_num(0.0, 0.0, 0.0)  # as in a clipped sum
        norms = gradients.square().sum(1, keepdim=True).sqrt()
        return self.clip / norms.clamp(min=self.clip) * gradients
