"""Augments all samples before D sees them; the transformations are in `augmentation.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from mdgan.errors import BadInput
from mdgan.gan.regularizers.contract import Regularizer
from mdgan.settings.declare import Settings, ValueKind, key_setting, number, setting, suggest
from mdgan.settings.excludes import Condition, table
from mdgan.spelling import flag

if TYPE_CHECKING:
    from torch import Tensor

_NAMES = _DIFFAUGMENT, _ADA = "diffaugment", "ada"
_ADA_TARGET = 0.6  # of Karras et al. 2020, section 3.2.
_ADA_SAMPLES = 500_000
"""After this many real samples of a worker p can have risen from 0 to 1, as in the same section: p
must change more slowly than D learns, however many samples the worker holds."""
_BATCHES_BETWEEN = 4  # real batches between two changes of p, as in the same section
_GUESSING_AT_0 = ("bce", "hinge")
"""Discriminator losses with which D calls a sample real if its logit is above 0."""
_NOT_AT_0 = Condition(
    f"{flag('discriminator_loss', 'least-squares')} or wasserstein",
    lambda training: training.discriminator_loss not in _GUESSING_AT_0,
    lambda training: flag("discriminator_loss", training.discriminator_loss),
)
_SMALLEST = 4  # pictures with fewer pixels each way would not move at all
_STATE = "adaptive"


def _augmentation_name(text: str) -> str:
    if text not in _NAMES:
        raise ValueError(f"must be {' or '.join(_NAMES)}{suggest(text, _NAMES)}")
    return text


class AugmentationSettings(Settings, group="models"):
    """Which augmentation all samples go through, and how often."""

    augment: str | None = setting(
        None,
        "What all samples go through before a discriminator sees them: diffaugment (colour, "
        "translation, cutout), or ada, which does that the more often the more the discriminator "
        "overfits.",
        ValueKind(str, _augmentation_name, known=lambda _others: _NAMES),
        metavar="NAME",
        default_text="nothing",
        other_names=("--augmentation", "--diffaugment", "--ada"),
    )
    ada_target: float | None = key_setting(
        None,
        "With --augment ada: the mean sign of the logits of real samples that is aimed at.",
        number(lambda target: -1 < target < 1, "must be above -1 and below 1"),
        metavar="R",
        symbol="r_t",
        default_text=str(_ADA_TARGET),
    )

    excludes = table("augment!=ada | ada_target | is for {augment=ada}; add that")


class Augmentation(Regularizer):
    """Augments a worker's real samples, and the generated ones, with probability p.

    Args:
        target: ADA's aim for E[sign D(x)] on real samples; None for DiffAugment, whose p is 1.
        samples: the number of samples in which ADA can raise p from 0 to 1.
    """

    name = "augmentation"
    changes_images = True
    excludes = table(
        """
        @not_at_0 | augment=ada |
            asks how many real samples have a logit above 0, which means little with {when}; use one
            of bce, hinge, or {augment=diffaugment}
        """,
        not_at_0=_NOT_AT_0,
    )
    reads_real_samples = (
        "augment=ada",
        "it counts the logits of real samples; {augment=diffaugment} does not",
    )

    def __init__(self, target: float | None = None, samples: int = _ADA_SAMPLES) -> None:
        adapts = target is not None
        self.asked = flag("augment", _ADA if adapts else _DIFFAUGMENT)
        self.p = 0.0 if adapts else 1.0
        """The probability of each transformation."""
        self._target = target
        self._rise = samples
        self._signs, self._samples, self._batches = 0.0, 0, 0

    @classmethod
    def of(cls, settings: AugmentationSettings) -> Augmentation | None:
        if settings.augment != _ADA:
            return None if settings.augment is None else cls()
        return cls(_ADA_TARGET if settings.ada_target is None else settings.ada_target)

    def check_shape(self, shape: tuple[int, ...], dataset: str) -> None:
        """Refuses samples that are no pictures, and pictures that are too small to move."""
        if len(shape) != 3:
            why = f"moves and recolours pictures, and samples of {dataset} have the shape {shape}"
            raise BadInput(self.asked, why, "leave it out")
        _, height, width = shape
        if min(height, width) < _SMALLEST:
            raise BadInput(
                self.asked,
                f"pictures of {dataset} have {height}×{width} pixels, which cannot move by an "
                "eighth",
                f"leave it out (at least {_SMALLEST}×{_SMALLEST})",
            )

    def see(self, images: Tensor) -> Tensor:
        from mdgan.gan.augmentation import augment

        return augment(images, self.p)

    def note_real(self, logits: Tensor) -> None:
        """With ADA, changes p after every fourth real batch.

        r_t = E[sign D(x)] over the batches since the last change. p rises if r_t is above the
        target, and falls if it is below (Karras et al. 2020, equation 1 and section 3.2).
        """
        if self._target is None:
            return
        self._signs += float(logits.sign().nan_to_num().sum())
        self._samples += logits.numel()
        self._batches += 1
        if self._batches < _BATCHES_BETWEEN:
            return
        difference = self._signs / self._samples - self._target
        direction = (difference > 0) - (difference < 0)
        step = direction * self._samples / self._rise
        self.p = min(max(self.p + step, 0.0), 1.0)
        self._signs, self._samples, self._batches = 0.0, 0, 0

    def state(self) -> dict[str, Tensor]:
        """ADA's p, and its counts since the last change of p, float64 [4]."""
        import torch

        if self._target is None:
            return {}
        numbers = [self.p, self._signs, float(self._samples), float(self._batches)]
        return {_STATE: torch.tensor(numbers, dtype=torch.float64)}

    @override
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        import torch

        if state.keys() - {_STATE}:
            raise KeyError(f"tensors that do not fit: {sorted(state)}")
        if self._target is None:
            return
        numbers = state.get(_STATE, torch.zeros(4, dtype=torch.float64))
        if numbers.shape != (4,) or numbers.dtype != torch.float64:
            raise RuntimeError(f"{_STATE} is {numbers.dtype} {list(numbers.shape)}")
        p, signs, samples, batches = numbers.tolist()
        if not (0 <= p <= 1 and 0 <= batches < _BATCHES_BETWEEN and abs(signs) <= samples < 2**53):
            raise RuntimeError(f"{_STATE} is out of range")
        self.p, self._signs = p, signs
        self._samples, self._batches = int(samples), int(batches)
