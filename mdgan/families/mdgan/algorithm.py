"""MD-GAN (Hardy et al. 2019, Algorithm 1): which worker gets which batch, and the server's share.

The worker's share is in `worker.py`. Shapes are written [κ, b, C, H, W].
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mdgan.gan.arithmetic import finite_or_zero
from mdgan.gan.generator import Generator
from mdgan.gan.labels import Samples
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.randomness import RandomState


class Assignment(NamedTuple):
    """Which of the κ batches a worker judges (X^(g)) and which it trains on (X^(d))."""

    judge: int
    train: int


def assign(workers: Sequence[int], kappa: int) -> dict[int, Assignment]:
    """Gives each of the live workers, in increasing order, its two batches (section IV-B1)."""
    return {worker: Assignment(n % kappa, (n + 1) % kappa) for n, worker in enumerate(workers)}


class Graph(NamedTuple):
    """X with its graph, [κ, b, C, H, W], and the w that made it."""

    generated: Tensor
    weights: Sequence[Tensor]


class GeneratorLearner(Generator):
    """The server's share: generate κ batches, then take one step from all workers' feedback."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        z_dim: int,
        batch_size: int,
        noise: torch.Generator,
        random_state: RandomState,
        loss_scale: float = 1.0,
        policy: Policy | None = None,
    ) -> None:
        super().__init__(
            *(model, optimizer), z_dim=z_dim, noise=noise, random_state=random_state, policy=policy
        )
        self._batch_size = batch_size
        self._loss_scale = loss_scale
        self._graphs: deque[Graph] = deque()

    def generate(self, kappa: int, *, ahead: bool = False) -> Samples:
        """X = G(z), [κ, b, C, H, W], in one forward pass whose graph is kept (Algorithm 1, 27-30).

        Feedback must come in the order of these calls, or see `set_aside`. If G may step before it
        comes (`ahead`), each graph has its own copy of w; else earlier batches are forgotten.
        """
        weights = None
        if ahead:  # a step changes w in place
            named = self.model.named_parameters()
            weights = {n: p.detach().clone().requires_grad_() for n, p in named if p.requires_grad}
        samples = self.draw(kappa * self._batch_size, weights)
        batches, labels = (kappa, self._batch_size), samples.labels
        generated = samples.images.view(*batches, *samples.images.shape[1:])
        learnt = self.parameters if weights is None else list(weights.values())
        if not ahead:
            self.forget()
        self._graphs.append(Graph(generated, learnt))
        return Samples(generated.detach(), None if labels is None else labels.view(batches))

    def set_aside(self) -> Graph:
        """Takes the batches that were generated last out of the order, until `put_first`."""
        return self._graphs.pop()

    def put_first(self, graph: Graph) -> None:
        """The next feedback is on batches that were set aside."""
        self._graphs.appendleft(graph)

    def forget(self) -> None:
        """Drops the generated batches that were not learnt from."""
        self._graphs.clear()

    def skip(self) -> None:
        """Learns nothing from the batches that come next."""
        self._graphs.popleft()

    def backward(self, output_gradient: Tensor) -> None:
        """One backward pass of C, [κ, b, C, H, W], whatever N is (Algorithm 1, lines 37-38)."""
        self.put_gradients(self.gradients(output_gradient))

    def gradients(self, output_gradient: Tensor, *, keep_graph: bool = False) -> list[Tensor]:
        """∂X/∂w · C, one tensor a parameter, by one backward pass; does not put it in place."""
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

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `Generator`; drops generated batches that were not learnt from."""
        super().load_state(state)
        self.forget()
