"""The base classes of regularisers, and the list of regularisers of a discriminator's learner.

Settings import the files here, and must not wait for torch: so functions here import torch.
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
"""The samples of a penalty: real ones, generated ones, or mixtures of both."""
WEIGHT = number(lambda weight: 0 < weight < inf, "must be above 0; leave it out for no penalty")
"""The kind of value of a penalty's setting."""


class Regularizer(ABC):
    """One regulariser of one learner; a subclass overrides the hooks that it needs.

    Shapes are written [.., b, *shape]: a learner calls hooks with its batch, and `--vectorize`
    calls them with the batches of R learners, [R, b, *shape].
    """

    name: ClassVar[str]  # under which checkpoints hold its state
    changes_images: ClassVar[bool] = False  # whether `see` does anything
    excludes: ClassVar[tuple[Excludes, ...]] = ()
    """The settings of training with which it cannot be combined."""
    reads_real_samples: ClassVar[tuple[str, str]] = ("", "")
    """Why differential privacy excludes it: its setting, as in a row of `excludes`, and how it uses
    real samples other than by gradients of single ones. Empty if it does not."""

    asked: Mention  # its flag with the user's value, such as `--r1 10`

    @classmethod
    @abstractmethod
    def of(cls, settings: Any) -> Self | None:
        """Makes the regulariser if its section of the settings asks for it, else None."""

    def check_shape(self, shape: tuple[int, ...], dataset: str) -> None:
        """Raises BadInput if it cannot be used with samples of this shape."""

    def change_model(self, model: nn.Module) -> None:
        """Changes a discriminator that has just been made; raises ValueError if it cannot."""

    def see(self, images: Tensor) -> Tensor:
        """Changes real or generated samples, [b, *shape], before D judges them; keeps the graph."""
        return images

    def note_real(self, logits: Tensor) -> None:
        """Called after a local step with the logits of the real batch, which have no graph."""

    def state(self) -> dict[str, Tensor]:
        """Copies its state, which belongs to the shard and does not move in a swap."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a `state`, or begins anew if it is empty.

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
        """Computes the penalty, a mean over b samples, from D(x) and ∇D(x), with their graphs."""


class Regularizers:
    """The regularisers of one learner, in the order of their registry."""

    def __init__(self, regularizers: Iterable[Regularizer] = ()) -> None:
        self.all = tuple(regularizers)
        self.change_images = any(one.changes_images for one in self.all)
        self._penalties = {
            place: [p for p in self.all if isinstance(p, Penalty) and p.place == place]
            for place in (REAL, FAKE, BETWEEN)
        }

    def at(self, place: str) -> list[Penalty]:
        """The penalties at a place: `REAL`, `FAKE` or `BETWEEN`."""
        return self._penalties[place]

    def see(self, images: Tensor) -> Tensor:
        """Lets all regularisers change samples, [b, *shape], before D judges them."""
        for regularizer in self.all:
            images = regularizer.see(images)
        return images

    def penalized(self, place: str, loss: Tensor, logits: Tensor, images: Tensor) -> Tensor:
        """Adds the penalties at a place to a loss, [..].

        Args:
            logits: D(x), [.., b]; a sample's logit depends on that sample alone.
            images: x, [.., b, *shape], which must require gradients if there are penalties.
        """
        if not self.at(place):
            return loss
        import torch

        (slopes,) = torch.autograd.grad(logits.sum(), images, create_graph=True)
        for penalty in self.at(place):
            loss = loss + penalty.of_samples(logits, slopes)
        return loss

    def note_real(self, logits: Tensor) -> None:
        """Passes the logits of real samples to every regulariser."""
        for regularizer in self.all:
            regularizer.note_real(logits)

    def state(self) -> dict[str, Tensor]:
        """Copies the states of all regularisers, each under its name and a dot."""
        return {f"{one.name}.{n}": t for one in self.all for n, t in one.state().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a `state`; ignores tensors of regularisers that this list lacks."""
        for regularizer in self.all:
            prefix = f"{regularizer.name}."
            regularizer.load_state(
                {n.removeprefix(prefix): state[n] for n in state if n.startswith(prefix)}
            )


def regularized(
    build: Callable[[], nn.Module], regularizers: Iterable[Regularizer], source: str
) -> nn.Module:
    """Builds a discriminator, which `source` defines, and lets regularisers change it."""
    model = build()
    for regularizer in regularizers:
        try:
            regularizer.change_model(model)
        except ValueError as error:
            why = f"the discriminator of {source}: {error}"
            raise BadInput(regularizer.asked, why) from error
    return model


def mix(real: Tensor, fake: Tensor) -> Tensor:
    """x̂ = εx + (1 − ε)x̃ with ε ~ U[0, 1] for each sample, drawn from torch's default generator."""
    import torch

    share = torch.rand(len(real), *(1 for _ in real.shape[1:]), device=real.device)
    return share * real + (1 - share) * fake
