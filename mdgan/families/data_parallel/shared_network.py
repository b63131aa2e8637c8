"""A network in memory that the processes of one machine share, and the averaging of its buffers.

Each worker writes its gradients to a row of the memory. The weights are in pieces, and each piece
has an owner: the process that averages all gradients of it, and steps its weights and moments in
place. So processes send nothing, and share the optimizer's work (Rajbhandari et al. 2020, "ZeRO",
section 5.1).

The bits are those of one process. Sums on a grid do not depend on which process adds up what
(`exact_sum.py`). Adam steps each weight by itself; but its kernel rounds the last weights of a
tensor, which fill no vector register, in another way. So pieces of Adam end after whole vectors.
All other optimizers, and a bound on the norm of the gradient, get whole tensors.
"""

from collections.abc import Sequence
from itertools import accumulate, chain
from operator import is_

import numpy as np
import torch
from torch import Tensor, nn

from mdgan.families.data_parallel.meeting import shared_array, shared_tensor
from mdgan.families.data_parallel.vectors import WHOLE
from mdgan.gan.model_vector import HALF, places_of_buffers
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import COUNTS, TrainedModel, kept_by

PIECE = 1 << 15
"""About how many weights a piece of Adam's has at most, so that a core's cache holds it."""
_ALIGNED = 16
"""A tensor's values begin at a multiple of this place, as torch allocates them: sums of others may
be rounded in another way."""
STEPPED, COUNT, NUMBERS = 0, 1, 2
"""The places in a row of `SharedNetwork.noted`, one for each piece: whether it was ever stepped;
the optimizer's count of steps; and from `NUMBERS` on the numbers in the optimizer's state."""


class Piece:
    """Weights that one process steps: tensors or parts of tensors, one after the other."""

    def __init__(self, number: int, begin: int) -> None:
        self.number = number
        self._begin = self._end = begin
        self._forms: list[tuple[int, torch.Size, tuple[int, ...]]] = []

    @property
    def count(self) -> int:
        """How many numbers the piece has, with the gaps between tensors."""
        return self._end - self._begin

    def add(self, like: Tensor) -> None:
        """Appends weights with the shape and strides of a tensor."""
        self._forms.append((self._end - self._begin, like.shape, like.stride()))
        self._end += _up(like.numel())

    def of(self, flat: Tensor) -> Tensor:
        """The piece's part of all weights, moments or gradients, […, count]."""
        return flat[..., self._begin : self._end]

    def tensors(self, values: Tensor) -> list[Tensor]:
        """Views of the piece's values, [count], as the tensors that the optimizer steps."""
        first = values.storage_offset()
        return [values.as_strided(shape, stride, first + at) for at, shape, stride in self._forms]


def _cut(trained: Sequence[Tensor], size: int | None) -> tuple[list[Piece], list[int]]:
    """Cuts tensors into pieces of a size, or between tensors; and the piece each begins in."""
    pieces: list[Piece] = []
    piece_of, end = [], 0
    for tensor in trained:
        parts = [tensor.detach()]
        if size is not None:
            flat, room = parts[0].as_strided((tensor.numel(),), (1,)), size - end % size
            parts = list(torch.tensor_split(flat, list(range(room, len(flat), size))))
        for n, part in enumerate(parts):
            if size is None or end % size == 0:
                pieces.append(Piece(len(pieces), end))
            if n == 0:
                piece_of.append(len(pieces) - 1)
            pieces[-1].add(part)
            end += _up(part.numel())
    return pieces, piece_of


class SharedNetwork:
    """A network in common memory.

    Args:
        model: a network of the architecture.
        workers: those that write gradients.
        num_owners: how many processes share the steps.

    Attributes:
        gradients: a row for each worker; see `row_of`.
    """

    def __init__(
        self, model: nn.Module, policy: Policy, workers: Sequence[int], num_owners: int
    ) -> None:
        self.policy = policy
        self.kept = kept_by(policy)
        ordered = trained_first(model)
        trained = [parameter for parameter in ordered if parameter.requires_grad]
        self._begins = [0, *accumulate(_up(parameter.numel()) for parameter in ordered)]
        count = self._begins[len(trained)]
        whole = policy.inner != "adam" or policy.clip_norm is not None
        # Chooses the size of pieces so that each owner gets the same number of them.
        num_pieces = num_owners * -(-count // (num_owners * PIECE))
        size = None if whole else _up(-(-count // max(1, num_pieces)))
        self.pieces, self._piece_of = _cut(trained, size)
        self._all_weights = shared_tensor(self._begins[-1])
        self.weights = self._all_weights[:count]
        self.moments = {name: shared_tensor(count) for name in self.kept.moments}
        self.gradients = shared_tensor(len(workers) * count).view(len(workers), count)
        self.row_of = {worker: row for row, worker in enumerate(sorted(workers))}
        self.num_noted = NUMBERS + len(self.kept.numbers)
        self.noted = shared_array(np.float64, len(self.pieces), self.num_noted)

    def views(self, flat: Tensor, model: nn.Module) -> list[Tensor]:
        """Views, by parameter, of all weights, or of moments or gradients of the trained ones."""
        return [
            flat.as_strided(parameter.shape, parameter.stride(), flat.storage_offset() + begin)
            for parameter, begin in zip(trained_first(model), self._begins, strict=False)
            if begin < len(flat)
        ]

    @torch.no_grad()
    def take_in(self, network: TrainedModel) -> None:
        """Moves the server's weights and moments into the memory, unless they are there already."""
        model, states = network.model, network.optimizer.state
        ordered = trained_first(model)
        for parameter, view in zip(ordered, self.views(self._all_weights, model), strict=True):
            if parameter.data_ptr() != view.data_ptr():
                view.copy_(parameter)
                parameter.data = view
        for name, flat in self.moments.items():
            for parameter, view in zip(ordered, self.views(flat, model), strict=False):
                state = states.get(parameter, {})
                if name in state and state[name].data_ptr() != view.data_ptr():
                    view.copy_(state[name])
                    state[name] = view
        count = network.optimizer.param_groups[0].get(COUNTS[0], 0)
        for parameter, piece in zip(ordered, self._piece_of, strict=False):
            state = states.get(parameter, {})
            numbers = [float(state.get(name, 0.0)) for name in self.kept.numbers]
            self.noted[piece] = [bool(state), count, *numbers]

    def tell(self, network: TrainedModel) -> None:
        """Writes the state of the server's optimizer, as if it had taken the steps itself."""
        ordered, states = trained_first(network.model), network.optimizer.state
        moments = {name: self.views(flat, network.model) for name, flat in self.moments.items()}
        for n, (parameter, piece) in enumerate(zip(ordered, self._piece_of, strict=False)):
            noted = self.noted[piece]
            numbers = zip(self.kept.numbers, noted[NUMBERS:], strict=True)
            state = {name: torch.tensor(value, dtype=torch.float32) for name, value in numbers}
            state |= {name: views[n] for name, views in moments.items()}
            states[parameter] = state if noted[STEPPED] else {}
        if self.kept.counts_steps and len(self.pieces):
            network.optimizer.param_groups[0][COUNTS[0]] = int(self.noted[0, COUNT])


class LentModel:
    """A worker's copy of a network, and views of its weights and gradients in common memory."""

    def __init__(self, network: SharedNetwork, model: nn.Module, worker: int) -> None:
        self._ordered = trained_first(model)
        self._weights = network.views(network._all_weights, model)
        self._laid_down = network.gradients[network.row_of[worker]]
        self._gradients = network.views(self._laid_down, model)

    def lend(self) -> None:
        """Makes the model use the weights in common memory."""
        for parameter, view in zip(self._ordered, self._weights, strict=True):
            parameter.data = view

    def take_back(self) -> None:
        """Gives the model private weights again, with the same values."""
        for parameter in self._ordered:
            parameter.data = parameter.data.clone()

    @torch.no_grad()
    def lay_down(self) -> Tensor:
        """Writes the worker's gradients to its row, zeros where there are none; returns the row."""
        views, gradients = [], []
        for parameter, view in zip(self._ordered, self._gradients, strict=False):
            if parameter.grad is None:
                view.zero_()
            else:
                views.append(view)
                gradients.append(parameter.grad)
        if gradients:
            torch._foreach_copy_(views, gradients)
        return self._laid_down


def trained_first(model: nn.Module) -> list[nn.Parameter]:
    """All parameters, first those that require gradients."""
    return sorted(model.parameters(), key=lambda parameter: not parameter.requires_grad)


def _up(count: int) -> int:
    return -(-count // _ALIGNED) * _ALIGNED


class BuffersInOne:
    """Makes the buffers of some models on the CPU views of two tensors, floats and whole numbers.

    Two tensors are much faster to read and write than many small buffers. As in a `GradientVector`,
    a whole number n is averaged as ⌊n / 2²⁴⌋ and n mod 2²⁴, both divided by 2²⁴.
    """

    def __init__(self, *models: nn.Module) -> None:
        self._places = [place for model in models for place in places_of_buffers(model)]
        self._wholes: list[Tensor] = []
        self._parts: list[Tensor] = []
        floats, others = self._find()
        self.count = len(floats) + 2 * len(others)  # how many values processes average

    @torch.no_grad()
    def read(self, into: Tensor) -> None:
        """Writes the present values to a tensor, float32 [count]."""
        floats, others = self._find()
        into[: len(floats)] = floats
        if len(others):
            into.numpy()[len(floats) :] = np.concatenate(np.divmod(others.numpy(), HALF)) / WHOLE

    @torch.no_grad()
    def write(self, values: Tensor) -> None:
        """Writes averaged values, float64 [count], to the models' buffers, rounded."""
        floats, others = self._find()
        floats.copy_(values[: len(floats)])
        if len(others):
            high, low = values.numpy()[len(floats) :].reshape(2, -1) * WHOLE
            others.numpy()[:] = np.rint(high * HALF + low)

    def _find(self) -> list[Tensor]:
        buffers: list[Tensor] = [module._buffers[name] for module, name in self._places]  # type: ignore[misc] # none is None: it is saved
        if not self._wholes or not all(map(is_, buffers, self._parts)):  # a model may replace one
            floats = [n for n, buffer in enumerate(buffers) if buffer.is_floating_point()]
            others = [n for n, buffer in enumerate(buffers) if not buffer.is_floating_point()]
            self._wholes = [_in_one(buffers, of_kind) for of_kind in (floats, others)]
            for (module, name), part in zip(self._places, buffers, strict=True):
                module._buffers[name] = part
            self._parts = buffers
        return self._wholes


def _in_one(tensors: list[Tensor], which: list[int]) -> Tensor:
    """Copies some of the tensors into a new one, and replaces them by views of it.

    Each view counts its own changes: else autograd would take a change of one for a change of all.
    """
    flat = [tensors[n].reshape(-1) for n in which]
    gaps = [values.new_zeros(_up(len(values)) - len(values)) for values in flat]
    whole = torch.cat([*chain(*zip(flat, gaps, strict=True))]) if which else torch.zeros(0)
    sizes = [_up(len(values)) for values in flat]
    for n, part in zip(which, torch.split(whole, sizes), strict=True):
        tensors[n] = part[: tensors[n].numel()].view(tensors[n].shape).data
    return whole
