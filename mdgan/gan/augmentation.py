"""Differentiable augmentation of everything that D sees, real and generated alike.

Zhao et al. 2020, "Differentiable Augmentation for Data-Efficient GAN Training" (DiffAugment);
Karras et al. 2020, "Training Generative Adversarial Networks with Limited Data" (ADA). Random
numbers are torch's default ones on the samples' device, drawn for each sample apart.

Shapes are written [b, C, H, W].
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from mdgan.gan.regularizer_settings import AugmentationRules

_MOST_SHIFT = 0.125
_CUTOUT = 0.5
_STATE = "adaptive"
SMALLEST = 4
"""Pictures with fewer pixels each way would not move at all."""


def augment(samples: Tensor, probability: Tensor | float = 1.0) -> Tensor:
    """DiffAugment's colour, translation and cutout (Zhao et al. 2020, section 3).

    Brightness changes by up to ±0.5, saturation by a factor in [0, 2], contrast by one in
    [0.5, 1.5]; the picture moves by up to an eighth of its size, zeros following; and a rectangle
    of half its height and width becomes zero.

    Args:
        samples: [b, C, H, W].
        probability: p, with which each of the three happens to a sample; 1 in DiffAugment.

    Returns:
        [b, C, H, W], with the graph to `samples`, which may be differentiated twice.
    """
    for transform in (_recoloured, _translated, _cut_out):
        changed = transform(samples)
        happens = _uniform(samples) < probability  # drawn always, so that p changes no other number
        samples = torch.where(happens, changed, samples)
    return samples


def _uniform(samples: Tensor) -> Tensor:
    """A random number in [0, 1[ for each sample, [b, 1, 1, 1]."""
    return torch.rand(len(samples), 1, 1, 1, device=samples.device, dtype=samples.dtype)


def _recoloured(samples: Tensor) -> Tensor:
    samples = samples + (_uniform(samples) - 0.5)
    grey = samples.mean(1, keepdim=True)
    samples = (samples - grey) * (_uniform(samples) * 2) + grey
    level = samples.mean((1, 2, 3), keepdim=True)
    return (samples - level) * (_uniform(samples) + 0.5) + level


def _translated(samples: Tensor) -> Tensor:
    height, width = samples.shape[-2:]
    most_down, most_right = most_shift(height), most_shift(width)
    down, right = (_whole(samples, most) for most in (most_down, most_right))
    rows = _places(samples, height) + down + most_down
    columns = _places(samples, width) + right + most_right
    padded = F.pad(samples, (most_right, most_right, most_down, most_down))
    batch = torch.arange(len(samples), device=samples.device)[:, None, None]
    # A gather has second derivatives, which grid_sample lacks; a penalty needs them.
    return padded.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )


def most_shift(size: int) -> int:
    """The most pixels that a picture of so many moves by: an eighth, rounded."""
    return int(size * _MOST_SHIFT + 0.5)


def _whole(samples: Tensor, most: int) -> Tensor:
    """A whole number in [−most, most] for each sample, [b, 1]."""
    return torch.randint(-most, most + 1, (len(samples), 1), device=samples.device)


def _places(samples: Tensor, size: int) -> Tensor:
    return torch.arange(size, device=samples.device).expand(len(samples), size)


def _cut_out(samples: Tensor) -> Tensor:
    kept = []
    for size in samples.shape[-2:]:
        half = int(size * _CUTOUT + 0.5)
        middle = torch.randint(0, size + 1 - half % 2, (len(samples), 1), device=samples.device)
        first = middle - half // 2
        places = _places(samples, size)
        kept.append((places < first) | (places >= first + half))
    down, right = kept
    mask = down[:, None, :, None] | right[:, None, None, :]
    return samples * mask


BATCHES_BETWEEN = 4
"""Real batches between two changes of p, as in Karras et al. 2020, section 3.2."""


class Augmentation:
    """What a shard's samples, and the generated ones beside them, go through.

    With ADA it holds p, which real batches move: it belongs to the shard.

    Args:
        rules: None for no augmentation.
    """

    def __init__(self, rules: AugmentationRules | None = None) -> None:
        self._rules = rules
        self._p = 0.0 if rules is None or rules.adapts else 1.0
        self._signs = 0.0
        self._samples = 0
        self._batches = 0

    @property
    def on(self) -> bool:
        """Whether there is any."""
        return self._rules is not None

    @property
    def p(self) -> float:
        """The probability of each transformation."""
        return self._p

    def __call__(self, samples: Tensor) -> Tensor:
        """The samples as D sees them, [b, C, H, W], with their graph."""
        return samples if self._rules is None else augment(samples, self._p)

    def note_real(self, logits: Tensor) -> None:
        """D has learnt from a real batch; every fourth time p moves towards the target.

        r_t = E[sign D(x)] of the batches since the last change; p rises if it is above the target,
        and falls if it is below (Karras et al. 2020, equation 1 and section 3.2).

        Args:
            logits: D(x) of augmented real samples, without a graph.
        """
        if self._rules is None or not self._rules.adapts:
            return
        self._signs += float(logits.sign().nan_to_num().sum())
        self._samples += logits.numel()
        self._batches += 1
        if self._batches < BATCHES_BETWEEN:
            return
        difference = self._signs / self._samples - self._rules.target
        direction = (difference > 0) - (difference < 0)
        step = direction * self._samples / self._rules.images
        self._p = min(max(self._p + step, 0.0), 1.0)
        self._signs, self._samples, self._batches = 0.0, 0, 0

    def state(self) -> dict[str, Tensor]:
        """p, and what was counted since its last change, float64 [4]; empty if p is fixed."""
        if self._rules is None or not self._rules.adapts:
            return {}
        numbers = [self._p, self._signs, float(self._samples), float(self._batches)]
        return {_STATE: torch.tensor(numbers, dtype=torch.float64)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues where `state` was taken; with none, p begins at 0. A fixed p stays.

        Raises:
            KeyError, RuntimeError: the state is malformed; nothing changed.
        """
        if state.keys() - {_STATE}:
            raise KeyError(f"tensors that do not fit: {sorted(state)}")
        if self._rules is None or not self._rules.adapts:
            return
        numbers = state.get(_STATE, torch.zeros(4, dtype=torch.float64))
        if numbers.shape != (4,) or numbers.dtype != torch.float64:
            raise RuntimeError(f"{_STATE} is {numbers.dtype} {list(numbers.shape)}")
        p, signs, samples, batches = numbers.tolist()
        if not (0 <= p <= 1 and 0 <= batches < BATCHES_BETWEEN and abs(signs) <= samples < 2**53):
            raise RuntimeError(f"{_STATE} is out of range")
        self._p, self._signs = p, signs
        self._samples, self._batches = int(samples), int(batches)
