"""How members of a group find a mean together: each adds up a part of it for all.

A member sends each other one that one's part of its gradients, adds up what comes for its own part,
and sends the mean of that to all. So 8 bytes of each weight leave a member and 8 come, however many
there are (Rajbhandari et al. 2020, "ZeRO", section 7.1). The bits are those of `average`: all that
is added up for a weight lies in one place. Buffers, which are few, go to all members.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mdgan.families.data_parallel.collective import Collective
from mdgan.families.data_parallel.replica import GradientVector
from mdgan.gan.exact_sum import MeanOfRows, average


class Counted(NamedTuple):
    """The workers whose gradients count."""

    members: Sequence[Sequence[int]]
    """By rank of the member that carries them."""
    weights: Mapping[int, float]
    """Of each of them in the mean."""

    @property
    def workers(self) -> list[int]:
        """All of them, in the order of their members."""
        return [worker for workers in self.members for worker in workers]


class DirectSum:
    """What one member adds up, and sends to the others."""

    def __init__(self, collective: Collective, num_members: int) -> None:
        self._collective = collective
        self.num_members = num_members
        self._means = MeanOfRows()

    def mean(
        self, like: GradientVector, counted: Counted, found: Mapping[int, Tensor]
    ) -> Tensor | None:
        """The mean of what members have found, who all call it at a time.

        Args:
            like: what is averaged.
            found: by worker, what this member's have found, float32 of the vector's shape.

        Returns:
            What `GradientVector.write` takes, float64 on the CPU; None if the group is broken.
        """
        own = [found[n].cpu() for n in counted.workers if n in found]
        blocks, width = like.shape
        cut = like.num_gradient_blocks
        mean = torch.empty(blocks * width, dtype=torch.float64)
        gradients = [vector[:cut].reshape(-1) for vector in own]
        if cut and not self._average(mean[: cut * width], gradients, counted):
            return None
        buffers = [vector[cut:].reshape(-1) for vector in own]
        if blocks > cut and not self._share(mean[cut * width :], buffers, counted):
            return None
        return mean.view(like.shape)

    def _average(self, mean: Tensor, own: Sequence[Tensor], counted: Counted) -> bool:
        """Each member finds the mean of a part."""
        part = -(-len(mean) // self.num_members)
        given = torch.zeros(self.num_members, len(own), part)
        for n, vector in enumerate(own):
            for piece, whole in zip(torch.split(vector, part), given[:, n], strict=False):
                whole[: len(piece)] = piece
        order = counted.workers
        taken = torch.empty(len(order), part)
        sizes_taken = [len(workers) * part for workers in counted.members]
        sizes_given = [len(own) * part] * self.num_members
        if not self._collective.trade(taken.view(-1), given.view(-1), sizes_taken, sizes_given):
            return False
        rows = [taken[n] for n in sorted(range(len(order)), key=order.__getitem__)]
        its_mean = torch.empty(part)
        self._means.write(its_mean, rows, counted.weights)
        whole = torch.empty(self.num_members * part)
        if not self._collective.gather(whole, its_mean):
            return False
        mean.copy_(whole[: len(mean)])
        return True

    def _share(self, mean: Tensor, own: Sequence[Tensor], counted: Counted) -> bool:
        """Each member gets everything."""
        most = max(map(len, counted.members))
        given = torch.zeros(most, len(mean))
        for row, vector in zip(given, own, strict=False):
            row.copy_(vector)
        whole = torch.empty(self.num_members, most, len(mean))
        if not self._collective.gather(whole.view(-1), given.view(-1)):
            return False
        found = {
            worker: row
            for workers, rows in zip(counted.members, whole, strict=True)
            for worker, row in zip(workers, rows, strict=False)
        }
        mean.copy_(average(found, (), counted.weights))
        return True
