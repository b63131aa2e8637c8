"""In which direction the gradients of each worker have pointed in recent iterations.

Feedback on a few samples gives a noisy gradient: those of honest workers on digits are nearly at
right angles to one another. Three workers that agree on a lie are then nearer to each other than
any honest ones are, and Krum, which prefers near neighbours, trusts them. The mean over many
iterations tells them apart: the noise averages out, and what is left of honest workers points the
same way (Karimireddy et al. 2021, "Learning from History for Byzantine Robust Optimization", who
aggregate such means; here they only decide which workers' gradients count in this iteration). The
mean is over directions, not gradients, so that one iteration with long gradients cannot dominate.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

MEMORY = 0.97
"""The part of a record that is kept from one iteration to the next: it covers about 30 iterations.
Chosen in trials against constant lies on digits: a shorter memory now and then trusted one."""


class TrackRecord:
    """Running means of the directions of every worker's gradients.

    A record begins with the first direction itself, which is longer than a mean of many: a
    newcomer is not trusted until it has a record.
    """

    def __init__(self) -> None:
        self._means: dict[int, Tensor] = {}

    def note(self, gradients: Mapping[int, Tensor]) -> None:
        """Adds the gradients of one iteration to the records.

        Args:
            gradients: by worker, [number of weights] each.
        """
        for worker, gradient in gradients.items():
            length = torch.linalg.vector_norm(gradient)
            direction = torch.where(length > 0, gradient / length, torch.zeros_like(gradient))
            before = self._means.get(worker, direction).to(direction.device)
            self._means[worker] = before.lerp(direction, 1 - MEMORY)

    def of(self, workers: Iterable[int]) -> Tensor:
        """The records of workers that have one, [m, number of weights]."""
        return torch.stack([self._means[worker] for worker in workers])

    def state(self) -> dict[str, Tensor]:
        """A copy of all records, by the number of the worker."""
        return {str(worker): mean.clone() for worker, mean in self._means.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned.

        Raises:
            KeyError: a name is not a worker's number; nothing changed.
        """
        foreign = sorted(name for name in state if not name.isdecimal())
        if foreign:
            raise KeyError(f"tensors that do not fit: {foreign}")
        self._means = {int(worker): mean.clone() for worker, mean in state.items()}
