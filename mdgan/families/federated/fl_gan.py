"""FL-GAN (Hardy et al. 2019, section III-c): G and D, trained as one object where the data are.

A round: the server sends both models to some clients, each trains them on its own data as a
standalone GAN does, and the server replaces both by the means of what comes back. FeGAN is the
same with other ways to choose and to weigh clients (`fegan.py`).
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.model_state import part_of, under
from mdgan.gan.model_vector import ModelVector
from mdgan.gan.stacked_gans import StackedGANs


class Client:
    """A client's share of a round.

    Between two rounds a client keeps its optimizers' moments and its positions in its data and
    noise; its models come with the next round. Moments are never sent, so that a round moves
    |w| + |θ| each way, as in Table III (Hardy et al. 2019).

    Args:
        gan: both models, their optimizers, and the client's data.
        num_samples: m, how many samples the client has.
        vector: of both models, if it is made already.

    Attributes:
        num_samples: m.
    """

    def __init__(self, gan: LocalGAN, num_samples: int, vector: ModelVector | None = None) -> None:
        self._gan = gan
        self.num_samples = num_samples
        self.vector = vector or ModelVector(gan.generator, gan.discriminator)

    def train(
        self, models: Tensor, iterations: int, batch_size: int, last: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Trains both models, beginning with the server's.

        Args:
            models: the server's, float32 `vector.shape`.
            iterations: how many.
            batch_size: B; a client with fewer samples trains on batches of all that it has.
            last: the number of the last of these iterations in the run, which decides learning
                rates; they are the first of the run if not given.

        Returns:
            The models after training, float32 `vector.shape`, and the mean J_disc and J_gen, [2].
        """
        self._begin(models, batch_size)
        losses = torch.stack([self._iterate(i) for i in _numbers(iterations, last)])
        return self.vector.read(), losses.mean(0)

    def _begin(self, models: Tensor, batch_size: int) -> None:
        if not torch.equal(self.vector.read(), models):
            self._gan.weights_replaced()
        self.vector.write(models)
        self._gan.use_batch_size(min(batch_size, self.num_samples))

    def _iterate(self, i: int) -> Tensor:
        self._gan.at(i)
        return torch.stack(self._gan.step())

    @staticmethod
    def train_at_once(
        clients: "Sequence[Client]",
        models: Tensor,
        iterations: int,
        batch_size: int,
        last: int | None = None,
        *,
        rehearses: bool = True,
    ) -> list[tuple[Tensor, Tensor]]:
        """Trains the models of several clients at once; see `train`.

        Args:
            clients: that begin anew, and clip no gradients.
            models: see `train`.
            iterations: see `train`.
            batch_size: see `train`.
            last: see `train`.
            rehearses: whether to see first whether it works; needless if it has worked before.

        Returns:
            What `train` of each would, but for what `StackedGANs` says.

        Raises:
            CannotStack: these clients must train one after another.
        """
        for client in clients:
            client._begin(models, batch_size)
        gans = [client._gan for client in clients]
        stack, losses = StackedGANs(gans), []
        if rehearses:
            stack.rehearse()
        stack.adopt()
        for i in _numbers(iterations, last):
            for gan in gans:
                gan.at(i)
            losses.append(stack.step())
        means = torch.stack(losses).mean(0)
        return [(c.vector.read(), own) for c, own in zip(clients, means, strict=True)]

    @property
    def models(self) -> tuple[nn.Module, nn.Module]:
        """G and D."""
        return self._gan.generator, self._gan.discriminator

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the client's next answer depends on, and its models."""
        return self._gan.state()

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Restores what `state` returned.

        Returns:
            Whether there are as many samples; if not, batches are drawn from the beginning.

        Raises:
            KeyError, RuntimeError: the state does not fit; nothing changed.
        """
        return self._gan.load_state(state)


def _numbers(iterations: int, last: int | None) -> range:
    """The numbers of some iterations in the run; those of the first ones if not known."""
    done = 0 if last is None else max(0, last - iterations)
    return range(done + 1, done + iterations + 1)


class GlobalModels:
    """The server's share: both models after the last round.

    Args:
        generator: G.
        discriminator: D.
    """

    def __init__(self, generator: nn.Module, discriminator: nn.Module) -> None:
        self.generator = generator
        self.discriminator = discriminator
        self.vector = ModelVector(generator, discriminator)

    def state(self) -> dict[str, Tensor]:
        """A copy of both models: `generator.…` and `discriminator.…`."""
        state = {
            **under("generator.", self.generator.state_dict()),
            **under("discriminator.", self.discriminator.state_dict()),
        }
        return {name: tensor.detach().clone() for name, tensor in state.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned.

        Raises:
            KeyError, RuntimeError: the state does not fit these models.
        """
        self.generator.load_state_dict(part_of(state, "generator."))
        self.discriminator.load_state_dict(part_of(state, "discriminator."))
