"""Discriminators that are traps, with which a lying server reads samples from answers.

A thief decides the batches that the victim gets, [b, C, H, W] each, and the discriminator that
comes in a swap, and guesses samples from answers. `stolen_samples` explains each trap.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from mdgan.families.mdgan.build import make_worker
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.build import Models
from mdgan.gan.labels import Samples

State = dict[str, Tensor]
_FROZEN = 1e20
"""A second moment so large that the weight does not move."""
_TAUGHT = 1e-5
"""The value of X^(d) with which the victim's optimizer learns moments."""
_TOLERANCE = 1e-3
"""Largest relative error of an answer that the thief takes for the victim's."""
_SLOPE = 0.2
"""The slope of LeakyReLU."""
_CPU = torch.device("cpu")


class Question(NamedTuple):
    """The batches of an iteration: X^(d) and X^(g)."""

    train: Tensor
    judge: Tensor


class Thief(Protocol):
    """A server that lies to one worker."""

    def ask(self) -> Question:
        """The batches that the victim gets in the next iteration."""

    def hear(self, feedback: Tensor) -> Tensor:
        """Guesses samples, [n, C, H, W], from the victim's answer."""

    def trap(self) -> State:
        """The discriminator and optimizer's state that the victim gets in a swap."""


class GuessedBatches:
    """The victim's real batches as the thief guesses them, instead of a shard."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.images = torch.zeros(shape)

    def next_batch(self, _batch_size: int) -> Samples:
        """The guessed batch."""
        return Samples(self.images)

    def state(self) -> State:
        """An empty state."""
        return {}

    def load_state(self, _state: object) -> bool:
        """Ignores the state."""
        return True


def with_moments(model: nn.Module, weights: State, second: State, steps: float = 1e6) -> State:
    """A discriminator with Adam's moments: the first are 0, the second `second` or `_FROZEN`."""
    state = {f"model.{name}": tensor for name, tensor in weights.items()}
    for name, parameter in model.named_parameters():
        moment = second.get(name, torch.full_like(parameter, _FROZEN))
        state[f"optimizer.{name}.exp_avg"] = torch.zeros_like(parameter)
        state[f"optimizer.{name}.exp_avg_sq"] = moment.detach().clone()
        state[f"optimizer.{name}.step"] = torch.tensor(float(steps))
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def on_grid(images: Tensor, levels: int) -> Tensor:
    """Rounds pixels to the nearest of `levels` levels of grey."""
    return ((images.clamp(-1, 1) + 1) * (levels / 2)).round() * (2 / levels) - 1


class Shadow:
    """A copy of the victim with all that the thief knows: everything but the samples.

    It runs the worker's own code. The victim's dropout masks follow from the run's seed.
    """

    def __init__(self, settings: MDGANSettings, models: Models, rank: int) -> None:
        self.shape = (settings.training.batch_size, *models.shape)
        self.batches = GuessedBatches(self.shape)
        self.worker: Worker = make_worker(rank, settings, models, self.batches, _CPU)  # type: ignore[arg-type] # as much of a shard as a worker uses

    def answer(self, question: Question, images: Tensor, before: State | None = None) -> Tensor:
        """F_n if the real samples were `images`, from the present state or from `before`."""
        if before is not None:
            self.worker.load_state(before)
        self.batches.images = images
        self.worker.learn(Samples(question.train))
        return self.worker.feedback(Samples(question.judge)).feedback


class MaskThief:
    """Finds ten samples from ten answers of the digits' discriminator, through dropout's masks.

    Args:
        levels: of grey; rounding to them makes guesses exact, which later answers need.
        own_moments: whether the victim's optimizer keeps its moments in a swap.
        tries: how often to improve a guess.
    """

    def __init__(
        self,
        settings: MDGANSettings,
        models: Models,
        rank: int,
        levels: int,
        *,
        own_moments: bool,
        tries: int = 8,
    ) -> None:
        self.shadow = Shadow(settings, models, rank)
        self._levels, self._own_moments, self._tries = levels, own_moments, tries
        self._num_traps, self._num_asked, self._is_set, self._teaches = 0, 0, False, False

    def ask(self) -> Question:
        """Zeros; once a batch from which the optimizer learns moments."""
        zeros = torch.zeros(self.shadow.shape)
        return Question(zeros + _TAUGHT if self._teaches else zeros, zeros)

    def hear(self, feedback: Tensor) -> Tensor:
        """See `Thief`."""
        question, self._teaches = self.ask(), False
        self._num_asked += 1
        if not self._is_set:
            self.shadow.answer(question, question.judge)
            return question.judge[:0]
        return self._solve(question, feedback, self.shadow.worker.state())

    def trap(self) -> State:
        """See `Thief`."""
        self._num_traps += 1
        model = self.shadow.worker.discriminator.model
        self._is_set = not self._own_moments or self._num_traps > 1
        weights = open_units(model) if self._is_set else certain(model)
        state = with_moments(model, weights, {"1.weight": torch.full((256, 64), 1e-10)})
        self._teaches = not self._is_set
        if self._own_moments:
            of_victim: State = self.shadow.worker.discriminator.state()
            if self._num_traps == 1:  # the thief knows only their number of steps
                of_victim = with_moments(model, weights, {}, self._num_asked)
                of_victim = {n: t * (not n.endswith("_sq")) for n, t in of_victim.items()}
            state |= {n: t for n, t in of_victim.items() if n.startswith("optimizer.")}
        self.shadow.worker.take(state)
        return state

    def _solve(self, question: Question, feedback: Tensor, before: State) -> Tensor:
        """The batch that explains the answer; each pixel of the answer is linear in it."""
        guess = torch.zeros(self.shadow.shape)
        base = self.shadow.answer(question, guess, before)
        columns = []
        for place in range(len(guess)):
            other = guess.index_fill(0, torch.tensor([place]), 1.0)
            columns.append((self.shadow.answer(question, other, before) - base).flatten(1).mean(1))
        matrix = torch.stack(columns, 1).double()
        inverse, weakest = torch.linalg.pinv(matrix), torch.linalg.svd(matrix)[2][-1]
        scale = (feedback - base).abs().max()
        for _ in range(self._tries):
            difference = (feedback - base).flatten(1).double()
            guess = guess + (inverse @ difference).view_as(guess).float()
            exact = self._along(guess.flatten(1), weakest.float()).view_as(guess)
            misses = (self.shadow.answer(question, exact, before) - feedback).abs().max()
            if misses <= _TOLERANCE * scale:
                return exact
            base = self.shadow.answer(question, guess, before)
        self.shadow.answer(question, exact, before)
        return exact

    def _along(self, guess: Tensor, weakest: Tensor) -> Tensor:
        """Moves each pixel's ten values, [b, d], to the grid, along the least certain direction."""
        steps = torch.linspace(-1, 1, 401).view(-1, 1, 1)
        moved = guess + steps * weakest[:, None]
        best = (moved - on_grid(moved, self._levels)).square().sum(1).argmin(0)
        return on_grid(moved[best, :, torch.arange(guess.shape[1])].T, self._levels)


def open_units(model: nn.Module) -> State:
    """Weights with which all units of two layers are open for any sample; masks mix samples."""
    weights = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
    of_unit, of_output = weights["4.weight"], weights["7.weight"]
    signs = torch.ones(len(of_unit), 1)
    signs[len(of_unit) // 2 :] = -1
    draw = torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(signs), generator=draw) for _ in range(of_unit.shape[1])]
    weights["4.weight"] = 0.02 * signs.expand_as(of_unit).gather(0, torch.stack(orders, 1))
    weights["7.weight"] = torch.full_like(of_output, 1e-4)
    weights["1.bias"] += 1
    weights["4.bias"] += 5
    return weights


def certain(model: nn.Module) -> State:
    """Weights so sure that samples are real that only generated ones move them, and far."""
    weights = {name: torch.ones_like(tensor) for name, tensor in model.state_dict().items()}
    weights["1.weight"] *= 0
    for name in ("1.bias", "4.bias", "7.weight"):
        weights[name] *= 1e3
    return weights


class BinThief:
    """Opens ten units of a layer without dropout one after another, as samples get brighter.

    The gradients of two neighbours differ by the sum of the samples between their thresholds. A
    pixel that is -1 in all samples counts these; a sum of one sample is that sample.
    """

    _height = 0.05

    def __init__(
        self, settings: MDGANSettings, models: Models, rank: int, levels: int, public: Tensor
    ) -> None:
        self.shadow = Shadow(settings, models, rank)
        self._levels, self._is_set = levels, False
        bright = public.flatten(1).mean(1).quantile(torch.linspace(0, 1, len(self._zeros()) + 1))
        bright[0], bright[-1] = -1, 1
        self._thresholds = bright[:-1]
        middle = (bright[1:] + bright[:-1]) / 2
        self._probes = middle.view(-1, 1, 1, 1).expand(self.shadow.shape)

    def _zeros(self) -> Tensor:
        return torch.zeros(self.shadow.shape)

    def ask(self) -> Question:
        """The samples stolen last, which move the trap back; and a flat picture in each bin."""
        return Question(self.shadow.batches.images, self._probes)

    def hear(self, feedback: Tensor) -> Tensor:
        """See `Thief`."""
        question, zeros = self.ask(), self._zeros()
        if not self._is_set:
            self.shadow.answer(question, zeros)
            return zeros[:0]
        before = self.shadow.worker.state()
        base, columns = self.shadow.answer(question, zeros, before), []
        for place, probe in enumerate(self._probes):
            one = torch.cat([probe[None], zeros[1:]])
            change = (self.shadow.answer(question, one, before) - base).flatten(1).double()
            columns.append(change.mean(1) / self._probes[place, 0, 0, 0])
        difference = (feedback - base).flatten(1).double()
        sums = torch.linalg.solve(torch.stack(columns, 1), difference).view(self.shadow.shape)
        counts = (-sums.flatten(1)[:, 0]).round().clamp(0)
        means = (sums / counts.clamp(1).view(-1, 1, 1, 1)).float()
        means = torch.where((counts == 1).view(-1, 1, 1, 1), on_grid(means, self._levels), means)
        batch = torch.cat([means.repeat_interleave(counts.long(), 0), zeros])[: len(zeros)]
        self.shadow.answer(question, batch, before)
        return means[counts == 1]

    def trap(self) -> State:
        """See `Thief`."""
        model, num = self.shadow.worker.discriminator.model, len(self._thresholds)
        weights = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
        first, outputs = weights["1.weight"], weights["3.weight"]
        first[:num] = self._height / first.shape[1]
        weights["1.bias"][:num] = -self._height * self._thresholds
        outputs[:, :num] = 1e-4
        second = {"1.weight": torch.full_like(first, 1e-5)}
        state = with_moments(model, weights, second)
        self.shadow.worker.take(state)
        self.shadow.batches.images, self._is_set = self._zeros(), True
        return state


class GateThief:
    """Finds a sample that is alone on one side of a plane, through a DCGAN's convolutions.

    Convolutions pass each pixel on twice, as x and as -x. Half of the channels decide: their logit
    is high for most samples, whose loss then has no gradient. The other half begin at 0 and become
    the sum of the remaining samples. Each trap has a new plane.

    Args:
        patience: number of answers to add up before a guess. With 0 it guesses from each answer
            whose pixels are whole levels of grey, which shows that it is of one sample.
    """

    _part, _sharpness, _second = 0.07, 60.0, 1e-3

    def __init__(
        self,
        settings: MDGANSettings,
        models: Models,
        rank: int,
        levels: int,
        public: Tensor,
        patience: int = 0,
    ) -> None:
        del rank
        self._model, self._levels = models.discriminator(), levels
        self._size = settings.training.batch_size
        self._policy = settings.training.policy("discriminator")
        self._public, self._draw = public, torch.Generator().manual_seed(0)
        self._since, self._patience = -1, patience
        self._summed = torch.zeros(public.shape[1:], dtype=torch.double)
        self._memory = self._first = self._summed

    def ask(self) -> Question:
        """Zeros, which move no weight; the answer to them is the sum of past gradients."""
        zeros = torch.zeros(self._size, *self._public.shape[1:])
        return Question(zeros, zeros)

    def hear(self, feedback: Tensor) -> Tensor:
        """See `Thief`."""
        none = self._public[:0]
        if self._since < 0:
            return none
        beta1, beta2 = self._policy.betas
        self._since += 1
        rate = self._policy.learning_rate / (self._second * beta2**self._since) ** 0.5
        memory = feedback[0].double() * self._size / (-0.5 * _SLOPE)
        first = (self._memory - memory) / rate
        gradient = (first - beta1 * self._first) / (1 - beta1)
        self._memory, self._first = memory, first
        if self._patience:
            self._summed += gradient
            if self._since != self._patience:
                return none
            return self._summed[None].float().div(-self._summed.abs().max())
        guess = (gradient / gradient.flatten()[0].clamp(1e-9)).float().neg()
        exact = on_grid(guess, self._levels)
        single = gradient.flatten()[0] > 0.02 and (guess - exact).abs().max() < 0.25 / self._levels
        return exact[None] if single else none

    def trap(self) -> State:
        """See `Thief`."""
        weights = {n: torch.zeros_like(t) for n, t in self._model.state_dict().items()}
        first, last = weights
        plane = torch.randn(self._public.shape[1:], generator=self._draw)
        plane.view(-1)[0] = 0  # -1 in all samples, so it serves as a bias
        heights = (self._public.abs() * plane).flatten(1).sum(1)
        plane.view(-1)[0] = -heights.quantile(self._part)
        plane *= self._sharpness / heights.std()
        second = torch.full_like(weights[last], _FROZEN)
        for offset in range(4):
            row, column = divmod(offset, 2)
            for half, sign in ((0, 1.0), (4, -1.0)):
                weights[first][half + offset, 0, row + 1, column + 1] = sign
                weights[first][8 + half + offset, 0, row + 1, column + 1] = sign
                weights[last][0, 8 + half + offset] = plane[0, row::2, column::2]
                second[0, half + offset] = self._second
        self._since, self._summed = 0, torch.zeros_like(self._summed)
        self._memory = self._first = self._summed
        return with_moments(self._model, weights, {last: second})


class SwapThief:
    """A worker that hands another one a trap, gets it back, and sees only its weights.

    It knows the batches that all workers get (κ = 2), and the iterations in which the other worker
    took part. Each real sample moved the first layer by an outer product; masks give one factor.
    """

    def __init__(self, settings: MDGANSettings, models: Models, rank: int, levels: int) -> None:
        self._shadow, self._levels = Shadow(settings, models, rank), levels
        self._policy = settings.training.policy("discriminator")
        self._factors: list[Tensor] = []
        layer = self._shadow.worker.discriminator.model.get_submodule("1")
        layer.register_full_backward_pre_hook(self._note)

    def _note(self, _layer: nn.Module, factors: Sequence[Tensor] | Tensor) -> None:
        """Notes each sample's factors, [b, 256]: of the real batch, then X^(d), then X^(g)."""
        self._factors.append(factors[0].detach().double())

    def trap(self) -> State:
        """See `Thief`."""
        model, self._factors = self._shadow.worker.discriminator.model, []
        second = {"1.weight": torch.full_like(model.get_parameter("1.weight"), 1e-10)}
        state = with_moments(model, open_units(model), second)
        self._shadow.worker.take(state)
        return state

    def iteration(self, question: Question) -> None:
        """Notes that the other worker trained on these batches."""
        self._shadow.answer(question, torch.zeros(self._shadow.shape))

    def look(self, weights: Tensor) -> Tensor:
        """Guesses all samples since the trap, [n, C, H, W], from the first layer that came back."""
        before = self._shadow.worker.discriminator.model.get_parameter("1.weight").detach()
        reals = self._factors[::3]
        rate, (beta1, beta2) = self._policy.learning_rate / 1e-5, self._policy.betas
        columns = []
        for number, factors in enumerate(reals):
            later = range(len(reals) - number)
            moved = sum(beta1**n / beta2 ** ((number + 1 + n) / 2) for n in later)
            columns.append(-rate * (1 - beta1) * moved * factors.T)
        guesses = torch.linalg.lstsq(torch.cat(columns, 1), (weights - before).double()).solution
        return on_grid(guesses.float(), self._levels).view(-1, *self._shadow.shape[1:])
