"""What a regulariser supplies, and the list of them that a discriminator's learner has.

Settings declare regularisers, and are read without torch: files here import it where they compute.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mdgan.errors import BadInput
from mdgan.settings.declare import number, shortest
from mdgan.settings.excludes import Excludes
from mdgan.spelling import Mention, flag

if TYPE_CHECKING:
    from torch import Tensor, nn

REAL, FAKE, BETWEEN = "real", "fake", "between"
"""Where a penalty is taken: at real samples, at generated ones, or at mixtures of both."""
WEIGHT = number(lambda weight: 0 < weight < inf, "must be above 0; leave it out for no penalty")
"""The kind of a penalty's setting."""


class Regularizer(ABC):
    """One regulariser of one learner; a subclass overrides the hooks that it needs.

    Shapes are written [.., b, *shape]: a learner calls hooks with its batch, and `--vectorize`
    with [R, b, *shape], the batches of R learners.
    """

    name: ClassVar[str]  # what it keeps lies in checkpoints under this name
    changes_images: ClassVar[bool] = False  # whether `see` does anything
    excludes: ClassVar[tuple[Excludes, ...]] = ()
    """Rows of what settings of training it cannot be combined with."""
    reads_real_samples: ClassVar[tuple[str, str]] = ("", "")
    """Why differential privacy cannot have it: its setting, as in a row of `excludes`, and what it
    learns from real samples besides gradients of single ones; empty if nothing."""

    asked: Mention  # as the user gave it, such as `--r1 10`

    @classmethod
    @abstractmethod
    def of(cls, settings: Any) -> Self | None:
        """The regulariser, if the section of its settings asks for it."""

    def check_shape(self, shape: tuple[int, ...], dataset: str) -> None:
        """Refuses samples of a shape, by BadInput."""

    def change_model(self, model: nn.Module) -> None:
        """Changes a discriminator that has just been made; raises ValueError if it cannot."""

    def see(self, images: Tensor) -> Tensor:
        """What D sees of real and generated samples, [b, *shape], with its graph."""
        return images

    def note_real(self, logits: Tensor) -> None:
        """A local step has ended whose real batch had these logits, without a graph."""

    def state(self) -> dict[str, Tensor]:
        """A copy of what it has learnt; it belongs to the shard."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues where `state` was taken, or begins anew with none.

        Raises:
            KeyError, RuntimeError: the state is malformed; nothing changed.
        """
        if state:
            raise KeyError(f"tensors that do not fit: {sorted(state)}")


class Penalty(Regularizer):
    """A regulariser without state that adds to D's loss; its setting, a `WEIGHT`, has its name."""

    place: ClassVar[str]  # `REAL`, `FAKE` or `BETWEEN`

    def __init__(self, weight: float) -> None:
        self.asked = flag(self.name, shortest(weight))
        self.weight = weight

    @classmethod
    def of(cls, settings: Any) -> Self | None:
        weight = getattr(settings, cls.name)
        return None if weight is None else cls(weight)

    @abstractmethod
    def of_samples(self, logits: Tensor, slopes: Tensor) -> Tensor:
        """The penalty, a mean over b samples, of D(x) and ∇D(x) of each; both with their graph."""


class Regularizers:
    """The regularisers of one learner, in the order of their registry."""

    def __init__(self, those: Iterable[Regularizer] = ()) -> None:
        self.all = tuple(those)
        self.change_images = any(each.changes_images for each in self.all)
        self._penalties = {
            place: [p for p in self.all if isinstance(p, Penalty) and p.place == place]
            for place in (REAL, FAKE, BETWEEN)
        }

    def at(self, place: str) -> list[Penalty]:
        """The penalties that are taken at a place."""
        return self._penalties[place]

    def see(self, images: Tensor) -> Tensor:
        """What D sees of samples, [b, *shape]."""
        for each in self.all:
            images = each.see(images)
        return images

    def penalized(self, place: str, loss: Tensor, logits: Tensor, images: Tensor) -> Tensor:
        """A loss, [..], with the penalties that are taken there.

        Args:
            logits: D(x), [.., b]; a sample's logit depends on that sample alone.
            images: x, [.., b, *shape], which want gradients if there are penalties.
        """
        if not self.at(place):
            return loss
        import torch

        (slopes,) = torch.autograd.grad(logits.sum(), images, create_graph=True)
        for penalty in self.at(place):
            loss = loss + penalty.of_samples(logits, slopes)
        return loss

    def note_real(self, logits: Tensor) -> None:
        """Shows every regulariser the logits of real samples."""
        for each in self.all:
            each.note_real(logits)

    def state(self) -> dict[str, Tensor]:
        """What all keep, each under its name and a dot."""
        return {f"{one.name}.{n}": t for one in self.all for n, t in one.state().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Takes back what `state` gave; passes over regularisers that are not here."""
        for each in self.all:
            prefix = f"{each.name}."
            each.load_state(
                {n.removeprefix(prefix): state[n] for n in state if n.startswith(prefix)}
            )


def regularized(
    build: Callable[[], nn.Module], those: Iterable[Regularizer], source: str
) -> nn.Module:
    """Builds a discriminator, which `source` defines, and has regularisers change it."""
    model = build()
    for each in those:
        try:
            each.change_model(model)
        except ValueError as error:
            raise BadInput(each.asked, f"the discriminator of {source}: {error}") from error
    return model


def mix(real: Tensor, fake: Tensor) -> Tensor:
    """x̂ = εx + (1 − ε)x̃, ε ~ U[0, 1] for each sample from torch's default random numbers."""
    import torch

    share = torch.rand(len(real), *(1 for _ in real.shape[1:]), device=real.device)
    return share * real + (1 - share) * fake
