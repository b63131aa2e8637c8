"""The average of a generator over training, which makes better samples than the generator.

Yazici et al. 2019, "The Unusual Effectiveness of Averaging in GAN Training"; Karras et al. 2018,
"Progressive Growing of GANs", appendix A.1.
"""

from collections.abc import Callable, Mapping
from math import expm1, log

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mdgan.gan.model_vector import places_of_buffers


class GeneratorAverage:
    """The exponential moving average w̄ of all weights, and of all floating-point buffers.

    With w_i after iteration i and a half-life of H iterations, w̄_i = Σ_j c_j w_j / Σ_j c_j over all
    iterations j ≤ i, c_j = 2^(−(i − j)/H): the weights before the first iteration are not in it.
    Training never uses w̄. A mean of spectral norm's unit vectors is no unit vector, so w̄ does its
    own power iteration.

    Args:
        model: of the same architecture; becomes G with w̄, after the first iteration.
    """

    def __init__(self, source: nn.Module, model: nn.Module, halflife: float) -> None:
        self.model = model
        self._source = source
        self._halflife = halflife
        self._normed = [layer for layer in model.modules() if parametrize.is_parametrized(layer)]
        self._find_present, self._find_means = _averaged(source), _averaged(model)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Sets w̄ to the generator's present weights."""
        self.model.load_state_dict(self._source.state_dict())

    @torch.no_grad()
    def take_in(self, before: int, iteration: int) -> None:
        """Adds the generator after an iteration, or after a round of several, to the average.

        The generator counts for all iterations since that of the last call, `before`, 0 at first.
        Its share depends on the two numbers alone, so a checkpoint holds only the weights.
        """
        share = self._sum(iteration - before) / self._sum(iteration)
        pairs = list(zip(self._find_means(), self._find_present(), strict=True))
        floating = [pair for pair in pairs if pair[0].is_floating_point()]
        means, present = map(list, zip(*floating, strict=True)) if floating else ([], [])
        torch._foreach_lerp_(means, present, share)
        for mean, value in pairs:
            if not mean.is_floating_point():  # such as BatchNorm's count of batches
                mean.copy_(value)
        for layer in self._normed:
            _ = layer.weight  # does a step of power iteration, as the model is in training mode

    def _sum(self, num_iterations: int) -> float:
        """Σ 2^(−k/H) over k = 0, 1, … for some iterations, relative to that over all."""
        return -expm1(-log(2) * num_iterations / self._halflife)

    def state(self) -> dict[str, Tensor]:
        """A copy of w̄ and the buffers, by the model's own names."""
        return {name: t.detach().clone() for name, t in self.model.state_dict().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned."""
        self.model.load_state_dict(dict(state))


def _averaged(model: nn.Module) -> Callable[[], list[Tensor]]:
    """Finds the averaged tensors once, as looking up a small model takes longer than averaging."""
    normed = [p for p in model.modules() if isinstance(p, parametrize.ParametrizationList)]
    of_norms = {part for layer in normed for part in layer.modules()}
    places = [place for place in places_of_buffers(model) if place[0] not in of_norms]
    weights: list[Tensor] = list(model.parameters())
    return lambda: [*weights, *(getattr(module, name) for module, name in places)]
