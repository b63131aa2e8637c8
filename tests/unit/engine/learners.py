"""The learner of a host of the toy family, and a data set that needs no download."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from mdgan.data.partitioner import Partitioner
from mdgan.data.shard import Shard
from mdgan.gan.randomness import generator_for
from tests.unit.engine.played import COPIED, SHARD_SIZE, make_generator, model_of

BATCH_SIZE, SHAPE = 5, (1, 4, 4)


class Noise(Partitioner):
    """A data set that needs no download."""

    def __init__(self, seed: int, num_samples: int = SHARD_SIZE) -> None:
        self.labels = torch.zeros(num_samples, dtype=torch.int64)
        random = torch.Generator().manual_seed(seed)
        self._images = torch.randn(num_samples, *SHAPE, generator=random).tanh()

    def images(self, indices: Tensor) -> Tensor:
        return self._images[indices]


def make_shard(rank: int) -> Shard:
    return Shard(Noise(rank), torch.arange(SHARD_SIZE), generator_for(rank, "shard"))


class Learner:
    """What the toy keeps for a worker: it moves the generator by what it draws, and remembers it.

    Attributes:
        generator: G.
        before_step: called before each step.
    """

    def __init__(self, rank: int, model_seed: int = 0) -> None:
        self.generator = make_generator()
        self.model = model_of(model_seed)
        self.before_step: Callable[[], None] = lambda: None
        self._random = torch.Generator().manual_seed(rank)

    def step(self) -> tuple[Tensor, Tensor]:
        """One step; its losses."""
        self.before_step()
        with torch.no_grad():
            drawn = torch.randn(4, generator=self._random)
            self.model.bias.add_(drawn[:2])
            for parameter in self.generator.parameters():
                parameter.add_(0.01 * drawn.sum() * self.model.weight[0, 0])
        return drawn[2], drawn[3]

    def state(self) -> dict[str, Tensor]:
        model = {f"{COPIED}{name}": t.clone() for name, t in self.model.state_dict().items()}
        return {**model, "random": self._random.get_state()}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        model = {n.removeprefix(COPIED): t for n, t in state.items() if n.startswith(COPIED)}
        if state.keys() - {"random"} != {f"{COPIED}{name}" for name in model}:
            raise KeyError("of another model")
        weights = self.model.state_dict()
        if any(n not in weights or t.shape != weights[n].shape for n, t in model.items()):
            raise RuntimeError("of another shape")
        self.model.load_state_dict(model)
        if "random" in state:
            self._random.set_state(state["random"])
        return True


def make_worker(rank: int, *, model_seed: int = 0) -> Learner:
    return Learner(rank, model_seed)


def same_state(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """Equal names, and equal bits under each."""
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype and torch.equal(first[name], second[name])
        for name in first
    )
