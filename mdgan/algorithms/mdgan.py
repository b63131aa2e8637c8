"""MD-GAN (Hardy et al. 2019, Algorithm 1): the server's and the worker's share of one iteration.

Shapes are written [κ, b, C, H, W]: κ generated batches of b samples.
"""

import hashlib
from collections.abc import Mapping, Sequence
from math import floor, log2
from typing import NamedTuple, Protocol

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor, nn

from mdgan.algorithms.losses import DiscriminatorLoss, Term
from mdgan.algorithms.randomness import RandomState
from mdgan.algorithms.stages import Stage, unobserved


class Assignment(NamedTuple):
    """Which of the κ batches a worker judges (X^(g)) and which it trains on (X^(d))."""

    judge: int
    train: int


class Batches(Protocol):
    """A worker's private data."""

    def next_batch(self, batch_size: int) -> Tensor:
        """The next real samples, float32 [b, C, H, W] in [−1, 1]."""


def resolve_kappa(kappa: int | str, num_workers: int) -> int:
    """κ for N live workers: as given, or max(2, ⌊log2 N⌋) (Darmanger and Gombas, section 5.2)."""
    if isinstance(kappa, int):
        return kappa
    return max(2, floor(log2(num_workers)))


def assign(workers: Sequence[int], kappa: int) -> dict[int, Assignment]:
    """Gives every worker its two batches, by its index n among the live workers.

    Args:
        workers: the live workers in increasing order.
        kappa: κ, the number of batches.

    Returns:
        X^(n mod κ) to judge and X^((n+1) mod κ) to train on, for every worker
        (Hardy et al., section IV-B1).
    """
    return {
        worker: Assignment(judge=n % kappa, train=(n + 1) % kappa)
        for n, worker in enumerate(workers)
    }


def aggregate(
    feedbacks: Mapping[int, Tensor], assignment: Mapping[int, Assignment], kappa: int
) -> Tensor:
    """Turns all feedback into the gradient of the mean loss with respect to X.

    C^(j) = (1/N) Σ_{n : n judged j} F_n, over the N workers that answered. Sums run in worker
    order, so that the order of arrival cannot change a bit.

    Args:
        feedbacks: F_n of every worker that answered, each [b, C, H, W]; at least one.
        assignment: who judged which batch.
        kappa: κ.

    Returns:
        C, [κ, b, C, H, W].
    """
    first = next(iter(feedbacks.values()))
    total = torch.zeros((kappa, *first.shape), dtype=first.dtype, device=first.device)
    for worker in sorted(feedbacks):
        total[assignment[worker].judge] += feedbacks[worker]
    return total.div_(len(feedbacks))


class GeneratorLearner:
    """The server's share: generate κ batches, then one step from everybody's feedback.

    Attributes:
        generator: G, in training mode.
        optimizer: over G's parameters w.
    """

    def __init__(
        self,
        generator: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        z_dim: int,
        batch_size: int,
        noise: torch.Generator,
        random_state: RandomState,
    ) -> None:
        self.generator = generator
        self.optimizer = optimizer
        self._z_dim = z_dim
        self._batch_size = batch_size
        self._noise = noise
        self._random_state = random_state
        self._parameters = [p for p in generator.parameters() if p.requires_grad]
        self._generated: Tensor | None = None

    def generate(self, kappa: int) -> Tensor:
        """X = G(z), z ~ N(0, I), in one forward pass whose graph is kept for `backward`.

        Args:
            kappa: κ.

        Returns:
            X without its graph, [κ, b, C, H, W] in [−1, 1] (Algorithm 1, lines 27-30).
        """
        device = self._parameters[0].device
        z = torch.randn(kappa * self._batch_size, self._z_dim, generator=self._noise).to(device)
        with self._random_state.in_place():
            samples: Tensor = self.generator(z)
        self._generated = samples.view(kappa, self._batch_size, *samples.shape[1:])
        return self._generated.detach()

    def backward(self, output_gradient: Tensor) -> None:
        """One backward pass whatever N is (Algorithm 1, lines 37-38).

        Args:
            output_gradient: C from `aggregate`, [κ, b, C, H, W].
        """
        assert self._generated is not None, "backward() follows generate()"
        gradients = torch.autograd.grad(
            self._generated, self._parameters, grad_outputs=output_gradient
        )
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._generated = None

    def step(self) -> None:
        """One optimizer step with the gradient of `backward` (Algorithm 1, lines 39-40)."""
        self.optimizer.step()


class Discriminator:
    """What moves in a swap: weights, buffers and optimizer state, always together.

    Attributes:
        model: D, in training mode.
        optimizer: over D's parameters θ.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model = model
        self.optimizer = optimizer

    def state(self) -> TensorDict:
        """A copy of everything that moves; flat names, CPU or device as the model is."""
        optimizer = {
            f"optimizer.{name}.{key}": value
            for name, parameter in self.model.named_parameters()
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }
        model = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        state: TensorDict = TensorDict({**model, **optimizer}).detach().clone()
        return state

    def digest(self) -> str:
        """SHA-256 of everything that moves: names, shapes, types and bits."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state().items()):
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(np.asarray(tensor.cpu().reshape(-1).view(torch.uint8)).data)
        return digest.hexdigest()

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Copies a state in; the given tensors are never aliased.

        Args:
            state: what `state` of a discriminator of the same architecture returned.

        Raises:
            KeyError, RuntimeError: a tensor is missing or has another shape; nothing changed.
        """
        parts = [name.partition(".") for name in state.keys()]  # noqa: SIM118 - a TensorDict too
        model = {name: state[f"model.{name}"] for part, _, name in parts if part == "model"}
        optimizer = {name: state[f"optimizer.{name}"] for part, _, name in parts if part != "model"}
        _check_same_shapes(model, self.model.state_dict())
        moments = {
            name: _with_prefix(optimizer, f"{name}.") for name, _ in self.model.named_parameters()
        }
        kinds = {frozenset(own) for own in moments.values() if own}
        if len(kinds) > 1 or sum(map(len, moments.values())) != len(optimizer):
            raise KeyError("the optimizer state is incomplete, or of another model")
        for name, parameter in self.model.named_parameters():
            for key, value in moments[name].items():
                if value.shape not in ((), parameter.shape):
                    raise RuntimeError(f"{name}.{key} has shape {list(value.shape)}")
        self.model.load_state_dict(model)
        for name, parameter in self.model.named_parameters():
            self.optimizer.state[parameter] = {
                key: value.to(parameter.device, copy=True) for key, value in moments[name].items()
            }


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _check_same_shapes(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    if given.keys() != own.keys():
        raise KeyError(f"tensors that do not fit: {sorted(given.keys() ^ own.keys())}")
    for name, tensor in own.items():
        if given[name].shape != tensor.shape:
            raise RuntimeError(
                f"{name} has shape {list(given[name].shape)}, not {list(tensor.shape)}"
            )


class Worker:
    """The worker's share: train D_n on private data, then judge a batch (Algorithm 1, WORKER).

    The discriminator moves in a swap. The data and the random state stay: they belong to the place.

    Attributes:
        discriminator: D_n.
        batches: B_n, the worker's shard.
        random_state: of dropout and the like.
    """

    def __init__(
        self,
        discriminator: Discriminator,
        batches: Batches,
        random_state: RandomState,
        *,
        batch_size: int,
        local_steps: int,
        discriminator_loss: DiscriminatorLoss,
        generator_loss: Term,
    ) -> None:
        self.discriminator = discriminator
        self.batches = batches
        self.random_state = random_state
        self._batch_size = batch_size
        self._local_steps = local_steps
        self._loss = discriminator_loss
        self._generator_loss = generator_loss
        self._real_loss: Tensor | None = None

    def learn_real_half(self) -> None:
        """The half of the next gradient that needs only real data; it need not wait for X^(d).

        Does nothing when that half is already there.
        """
        if self._real_loss is not None:
            return
        model, optimizer = self.discriminator.model, self.discriminator.optimizer
        real = self.batches.next_batch(self._batch_size).to(self._device)
        with self.random_state.in_place():
            optimizer.zero_grad()
            loss = self._loss.real(model(real))
            loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        self._real_loss = loss.detach()

    def learn(self, fake: Tensor, stage: Stage = unobserved) -> Tensor:
        """L local steps of J_disc = Ã(X_r) + B̃(X^(d)) (Algorithm 1, lines 6-8).

        Args:
            fake: X^(d), [b, C, H, W].
            stage: what the stages `real half`, `fake half` and `local step` run in.

        Returns:
            J_disc before the last step, a scalar.
        """
        model, optimizer = self.discriminator.model, self.discriminator.optimizer
        loss = torch.zeros(())
        for _ in range(self._local_steps):
            if self._real_loss is None:
                with stage("real half"):
                    self.learn_real_half()
            assert self._real_loss is not None
            with stage("fake half"), self.random_state.in_place():
                fake_loss = self._loss.fake(model(fake))
                fake_loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
            with stage("local step"):
                optimizer.step()
            loss = self._real_loss + fake_loss.detach()
            self._real_loss = None
        return loss

    def feedback(self, judged: Tensor) -> tuple[Tensor, Tensor]:
        """F_n = ∂J_gen(D_n(X^(g)))/∂X^(g), J_gen a mean over the batch (Algorithm 1, line 9).

        Only the gradient with respect to the input is computed, none for θ_n.

        Args:
            judged: X^(g), [b, C, H, W].

        Returns:
            F_n, [b, C, H, W], and J_gen, a scalar.
        """
        judged = judged.detach().requires_grad_()
        with self.random_state.in_place():
            loss = self._generator_loss(self.discriminator.model(judged))
            (gradient,) = torch.autograd.grad(loss, judged)
        return gradient, loss.detach()

    @property
    def _device(self) -> torch.device:
        return next(self.discriminator.model.parameters()).device
