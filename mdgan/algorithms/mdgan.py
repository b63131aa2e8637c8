"""MD-GAN (Hardy et al. 2019, Algorithm 1): the server's and the worker's share of one iteration.

Shapes are written [κ, b, C, H, W]: κ generated batches of b samples.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from math import floor, log2
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from mdgan.algorithms.arithmetic import finite_or_zero
from mdgan.algorithms.discriminator import Discriminator
from mdgan.algorithms.generator_state import generator_state, load_generator_state
from mdgan.algorithms.losses import DiscriminatorLoss, Term
from mdgan.algorithms.model_state import check_names, part_of, under
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

    def state(self) -> dict[str, Tensor]:
        """Where drawing is; tensors that are never written to."""

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues where `state` was taken; False, and nothing changed, with other data.

        Raises:
            KeyError, RuntimeError: it is no such state; nothing changed.
        """


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


class _Graph(NamedTuple):
    """X with its graph, [κ, b, C, H, W], and the w that made it."""

    generated: Tensor
    weights: Sequence[Tensor]


class GeneratorLearner:
    """The server's share: generate κ batches, then one step from everybody's feedback.

    Attributes:
        generator: G, in training mode.
        optimizer: over G's parameters w.
        parameters: those of w that are learnt, in G's order.
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
        loss_scale: float = 1.0,
        stale: int = 0,
    ) -> None:
        self.generator = generator
        self.optimizer = optimizer
        self._z_dim = z_dim
        self._batch_size = batch_size
        self._noise = noise
        self._random_state = random_state
        self._loss_scale = loss_scale
        self.parameters = [p for p in generator.parameters() if p.requires_grad]
        self._stale = stale
        self._graphs: deque[_Graph] = deque()

    @property
    def device(self) -> torch.device:
        """Where the generator lives."""
        return self.parameters[0].device

    def generate(self, kappa: int) -> Tensor:
        """X = G(z), z ~ N(0, I), in one forward pass whose graph is kept for `backward`.

        Feedback must come in the order of these calls. A learner that may be stale generates
        again before it has come: w as it was then is part of the graph.

        Args:
            kappa: κ.

        Returns:
            X without its graph, [κ, b, C, H, W] in [−1, 1] (Algorithm 1, lines 27-30).
        """
        z = torch.randn(kappa * self._batch_size, self._z_dim, generator=self._noise)
        z = z.to(self.device)
        weights = self._weights_as_they_are() if self._stale else None
        with self._random_state.in_place():
            samples: Tensor = (
                torch.func.functional_call(self.generator, weights, (z,))
                if weights is not None
                else self.generator(z)
            )
        generated = samples.view(kappa, self._batch_size, *samples.shape[1:])
        learnt = self.parameters if weights is None else list(weights.values())
        self._graphs.append(_Graph(generated, learnt))
        return generated.detach()

    def forget(self) -> None:
        """Drops all that was generated and not learnt from."""
        self._graphs.clear()

    def backward(self, output_gradient: Tensor) -> None:
        """One backward pass whatever N is (Algorithm 1, lines 37-38).

        Args:
            output_gradient: C from `aggregate`, [κ, b, C, H, W].
        """
        self.put_gradients(self.gradients(output_gradient))

    def gradients(self, output_gradient: Tensor, *, keep_graph: bool = False) -> list[Tensor]:
        """What C means for w, by one backward pass; nothing is put in place.

        Args:
            output_gradient: C, [κ, b, C, H, W].
            keep_graph: whether another backward pass over the same X follows.

        Returns:
            ∂X/∂w · C, one tensor a parameter and of its shape.
        """
        assert self._graphs, "backward() follows generate()"
        graph = self._graphs[0] if keep_graph else self._graphs.popleft()
        gradients = torch.autograd.grad(
            graph.generated,
            graph.weights,
            grad_outputs=output_gradient * self._loss_scale,
            retain_graph=keep_graph,
        )
        finite_or_zero(gradients, self._loss_scale)
        return list(gradients)

    def put_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Puts gradients in place for `step`.

        Args:
            gradients: as `gradients` returns them; kept, not copied.
        """
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient

    def step(self) -> None:
        """One optimizer step with the gradient of `backward` (Algorithm 1, lines 39-40)."""
        self.optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next iteration depends on; to be taken between two.

        Returns:
            `generator.…`, `optimizer.<parameter>.<key>`, `noise` and `random.…`.
        """
        return generator_state(self.generator, self.optimizer, self._noise, self._random_state)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues where `state` was taken; what was generated and not learnt from is dropped.

        Raises:
            KeyError, RuntimeError: it is no such state, or of another generator; nothing changed.
        """
        load_generator_state(state, self.generator, self.optimizer, self._noise, self._random_state)
        self.forget()

    def _weights_as_they_are(self) -> dict[str, Tensor]:
        """A copy of w; the step that comes in between changes w where it lies."""
        named = self.generator.named_parameters()
        return {name: p.detach().clone().requires_grad_() for name, p in named if p.requires_grad}


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
        loss_scale: float = 1.0,
    ) -> None:
        self.discriminator = discriminator
        self.batches = batches
        self.random_state = random_state
        self._batch_size = batch_size
        self._local_steps = local_steps
        self._loss = discriminator_loss
        self._generator_loss = generator_loss
        self._loss_scale = loss_scale
        self._real_loss: Tensor | None = None
        self._before_real_half: dict[str, Tensor] = {}

    def learn_real_half(self) -> None:
        """The half of the next gradient that needs only real data; it need not wait for X^(d).

        Does nothing when that half is already there.
        """
        if self._real_loss is not None:
            return
        self._before_real_half = self._moved_by_real_half()
        model, optimizer = self.discriminator.model, self.discriminator.optimizer
        real = self.batches.next_batch(self._batch_size).to(self._device)
        with self.random_state.in_place():
            optimizer.zero_grad()
            loss = self._loss.real(model(real))
            (loss * self._loss_scale).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
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
                (fake_loss * self._loss_scale).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
            with stage("local step"):
                gradients = [p.grad for p in model.parameters() if p.grad is not None]
                finite_or_zero(gradients, self._loss_scale)
                optimizer.step()
            loss = self._real_loss + fake_loss.detach()
            self._real_loss, self._before_real_half = None, {}
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
            (gradient,) = torch.autograd.grad(loss * self._loss_scale, judged)
        return gradient / self._loss_scale, loss.detach()

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next answer depends on, at any time between two answers.

        A real half that is already learnt is left out, and the state is that before it: whoever
        loads it learns the same half again. The gradient of a single batch tells much of its
        samples and must not leave the worker.

        Returns:
            `discriminator.…` as `Discriminator.state`, `random.…` as `RandomState.tensors`, and
            `shard.…` as `Shard.state`.
        """
        now = {
            **under("discriminator.", self.discriminator.state()),
            **under("random.", self.random_state.tensors()),
            **under("shard.", self.batches.state()),
        }
        before = self._before_real_half
        return {name: before.get(name, tensor).clone() for name, tensor in now.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues where `state` was taken.

        Args:
            state: what `state` of a worker of the same architecture returned.

        Returns:
            Whether the shard is the same size; if not, it stays as it is.

        Raises:
            KeyError, RuntimeError: the state does not fit; nothing changed.
        """
        check_names(state, "discriminator.", "random.", "shard.")
        random_before, batches_before = self.random_state.tensors(), self.batches.state()
        try:
            same_shard = self.batches.load_state(part_of(state, "shard."))
            self.random_state.restore(part_of(state, "random."))
            self.discriminator.load_state(part_of(state, "discriminator."))
        except BaseException:
            self.random_state.restore(random_before)
            self.batches.load_state(batches_before)
            raise
        self._drop_real_half()
        return same_shard

    def load_discriminator(self, state: Mapping[str, Tensor]) -> None:
        """Takes over a discriminator, as in a swap; data and random state stay.

        A real half that is already learnt belongs to the discriminator that goes. It is undone, its
        batch and random numbers included: early or late makes no difference to what follows.

        Args:
            state: what `Discriminator.state` of another worker returned.

        Raises:
            KeyError, RuntimeError: the state does not fit; nothing changed.
        """
        self.discriminator.load_state(state)
        self._undo_real_half()

    def take(self, discriminator: Discriminator) -> None:
        """As `load_discriminator`, without a copy.

        Args:
            discriminator: of another worker here, which takes somebody else's in turn.
        """
        self._undo_real_half()
        self.discriminator = discriminator
        self._drop_real_half()

    def _moved_by_real_half(self) -> dict[str, Tensor]:
        """What `learn_real_half` changes besides gradients, named as in `state`."""
        buffers = self.discriminator.model.named_buffers(remove_duplicate=False)
        return {
            **{f"discriminator.model.{name}": buffer.clone() for name, buffer in buffers},
            **under("random.", self.random_state.tensors()),
            **under("shard.", self.batches.state()),
        }

    def _undo_real_half(self) -> None:
        if self._real_loss is not None:
            self.random_state.restore(part_of(self._before_real_half, "random."))
            self.batches.load_state(part_of(self._before_real_half, "shard."))
        self._drop_real_half()

    def _drop_real_half(self) -> None:
        self.discriminator.optimizer.zero_grad()
        self._real_loss, self._before_real_half = None, {}

    @property
    def _device(self) -> torch.device:
        return next(self.discriminator.model.parameters()).device
