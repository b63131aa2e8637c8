"""FL-GAN (Hardy et al. 2019, section III-c): G and D, trained as one object where the data are.

A round: the server sends both models to some clients, each trains them on its own data as a
standalone GAN does, and the server replaces both by the means of what comes back. FeGAN is the
same with other ways to choose and to weigh clients (`fegan.py`). With `--vectorize` clients of
equal loads train at once, as long as that works.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from mdgan.families.federated.messages import ClientTask
from mdgan.families.federated.poisson_rounds import update
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.federated.training_load import Load
from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.model_stack import CannotStack
from mdgan.gan.model_vector import ModelVector
from mdgan.gan.stacked_learners import StackedGANs

_log = logging.getLogger(__name__)

LEAST_AT_ONCE = 8
"""Fewer are faster one after another (`python -m benchmarks.vectorized --algorithm fl-gan`)."""
MOST_AT_ONCE = 32  # clients of a group: more take memory, and are hardly faster


class Client:
    """A client's share of a round; it has m samples.

    Between two rounds a client keeps its optimizers' moments and its positions in its data and
    noise; its models come with the next round. Moments are never sent, so that a round moves
    |w| + |θ| each way, as in Table III (Hardy et al. 2019).
    """

    def __init__(self, gan: LocalGAN, num_samples: int, vector: ModelVector | None = None) -> None:
        self._gan = gan
        self.num_samples = num_samples
        self.vector = vector or ModelVector(gan.generator, gan.discriminator)

    def train(
        self, models: Tensor, iterations: int, batch_size: int, last: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Trains both models, beginning with the server's, float32 `vector.shape`.

        A client with fewer samples than B trains on batches of all that it has. The number of the
        `last` of these iterations in the run decides learning rates; without it they are the first.

        Returns:
            The models after training, float32 `vector.shape`, and the mean J_disc and J_gen, [2].
        """
        self._begin(models, batch_size)
        losses = []
        for i in _numbers(iterations, last):
            self._gan.at(i)
            losses.append(torch.stack(self._gan.step()))
        return self.vector.read(), torch.stack(losses).mean(0)

    def _begin(self, models: Tensor, batch_size: int) -> None:
        if not torch.equal(self.vector.read(), models):
            self._gan.weights_replaced()
        self.vector.write(models)
        self._gan.use_batch_size(min(batch_size, self.num_samples))

    @staticmethod
    def train_at_once(
        clients: "Sequence[Client]", models: Tensor, load: Load, last: int, *, rehearses: bool
    ) -> list[tuple[Tensor, Tensor]]:
        """`train` of several clients at once, but for what `StackedGANs` says.

        They begin anew, and clip no gradients. If it has not worked before, it is rehearsed first.

        Raises:
            CannotStack: these clients must train one after another.
        """
        for client in clients:
            client._begin(models, load.batch_size)
        gans = [client._gan for client in clients]
        stack, losses = StackedGANs(gans), []
        if rehearses:
            stack.rehearse()
        stack.adopt()
        for i in _numbers(load.iterations, last):
            for gan in gans:
                gan.at(i)
            losses.append(stack.step())
        means = torch.stack(losses).mean(0)
        return [(client.vector.read(), own) for client, own in zip(clients, means, strict=True)]

    @property
    def models(self) -> tuple[nn.Module, nn.Module]:
        """G and D."""
        return self._gan.generator, self._gan.discriminator

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the client's next answer depends on, and its models."""
        return self._gan.state()

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """See `Learner`; with another number of samples batches are drawn from the beginning."""
        return self._gan.load_state(state)


def _numbers(iterations: int, last: int | None) -> range:
    """The numbers of some iterations in the run; those of the first ones if not known."""
    done = 0 if last is None else max(0, last - iterations)
    return range(done + 1, done + iterations + 1)


@dataclass
class LocalTraining:
    """Trains clients, wherever they are: in a host, or in one of its slots.

    `begin` makes the client of a number, at a place of its group, for the round that ends with an
    iteration.
    """

    settings: FederatedSettings
    device: torch.device
    begin: Callable[[int, int, int], Client]
    num_samples: Callable[[int], int]
    span: Callable[[int], AbstractContextManager[object]] = lambda _client: nullcontext()

    def __post_init__(self) -> None:
        self._most = MOST_AT_ONCE if self.settings.vectorize else 1
        self._worked = False
        if self.settings.vectorize and (why := _why_not_at_once(self.settings)):
            self._train_singly(why)

    def train(
        self, tasks: Sequence[ClientTask], sent: Tensor, iteration: int
    ) -> Iterator[list[tuple[ClientTask, Tensor, Tensor]]]:
        """Trains clients, group by group, beginning with the models sent.

        Yields:
            As soon as a group is trained, of each client the task, what it sends, float32
            `ModelVector.shape`, and J_disc and J_gen, float32 [2].
        """
        sent = sent.to(self.device)
        for group in self.groups(tasks):
            with ExitStack() as spans:
                for task in group:
                    spans.enter_context(self.span(task.client))
                clients = [self.begin(task.client, n, iteration) for n, task in enumerate(group)]
                found = self._train_group(clients, sent, group[0].load, iteration)
            vector = clients[0].vector
            yield [
                (task, *sent_by(self.settings, vector, sent, *own))
                for task, own in zip(group, found, strict=True)
            ]

    def groups(self, tasks: Sequence[ClientTask]) -> list[list[ClientTask]]:
        """Clients that train as many batches of the same size; single ones if those are too few."""
        if self._most == 1:
            return [[task] for task in tasks]
        alike: dict[tuple[int, int], list[ClientTask]] = {}
        for task in tasks:
            batch_size = min(task.load.batch_size, self.num_samples(task.client))
            alike.setdefault((task.load.iterations, batch_size), []).append(task)
        groups = []
        for own in alike.values():  # as few as possible, whose sizes differ by one at most
            most = self._most if len(own) >= LEAST_AT_ONCE else 1
            parts = np.array_split(range(len(own)), -(-len(own) // most))
            groups += [[own[n] for n in part] for part in parts]
        return groups

    def _train_group(
        self, clients: Sequence[Client], models: Tensor, load: Load, last: int
    ) -> list[tuple[Tensor, Tensor]]:
        if len(clients) > 1 and self._most > 1:
            try:
                rehearses = not self._worked
                found = Client.train_at_once(clients, models, load, last, rehearses=rehearses)
            except CannotStack as reason:
                self._train_singly(str(reason))
            else:
                self._worked = True
                return found
        return [each.train(models, load.iterations, load.batch_size, last) for each in clients]

    def _train_singly(self, why: str) -> None:
        _log.warning("clients train one after another: %s", why)
        self._most = 1


def sent_by(
    settings: FederatedSettings, vector: ModelVector, begun: Tensor, found: Tensor, losses: Tensor
) -> tuple[Tensor, Tensor]:
    """What a client sends: its models, what training has changed, or as much of that as it may."""
    if settings.rounds.sampling == "poisson":
        losses = losses if settings.privacy.discloses_losses else torch.zeros_like(losses)
        return update(begun, found, vector.num_weight_blocks, settings.privacy.update_clip), losses
    return (found if str(settings.wire.models) == "fp32" else found - begun), losses


def _why_not_at_once(settings: FederatedSettings) -> str:
    """Why no models can be trained at once with these settings; empty if they may be."""
    if settings.training.arithmetic.compile:
        return "compiled models are called one by one"
    policies = map(settings.training.policy, ("generator", "discriminator"))
    if any(policy.clip_norm is not None for policy in policies):
        return "gradients are clipped one client at a time"
    return ""


class GlobalModels(nn.Module):
    """The server's share: both models after the last round."""

    def __init__(self, generator: nn.Module, discriminator: nn.Module) -> None:
        super().__init__()
        self.generator = generator
        self.discriminator = discriminator
        self.vector = ModelVector(generator, discriminator)

    def state(self) -> dict[str, Tensor]:
        """A copy of both models: `generator.…` and `discriminator.…`."""
        return {name: tensor.clone() for name, tensor in self.state_dict().items()}
