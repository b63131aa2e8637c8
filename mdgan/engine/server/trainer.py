"""What the server trains with: the algorithm's share, and what goes with its generator."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from mdgan.data.fetching import Fetcher
from mdgan.engine.parts import ServerPart
from mdgan.gan.average import GeneratorAverage
from mdgan.gan.model_state import part_of, under

_AVERAGE = "ema."
"""Before the names of the generator's average in a checkpoint."""


@dataclass(frozen=True)
class Trainer:
    """What the server trains with."""

    part: ServerPart
    average: GeneratorAverage | None = None
    fetcher: Fetcher | None = None
    """Reads samples ahead, if the part has the data itself."""

    @property
    def shown(self) -> nn.Module:
        """The generator that is scored."""
        return self.part.generator if self.average is None else self.average.model

    def state(self) -> dict[str, Tensor]:
        """A copy of everything here that the next iteration depends on."""
        average = {} if self.average is None else self.average.state()
        return {**self.part.state(), **under(_AVERAGE, average)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues where `state` was taken.

        Raises:
            KeyError, RuntimeError: the state is malformed, or of other models.
        """
        average = part_of(state, _AVERAGE)
        self.part.load_state({n: t for n, t in state.items() if not n.startswith(_AVERAGE)})
        if self.average is not None and average:
            self.average.load_state(average)
        elif self.average is not None:  # the run had none until now
            self.average.begin_anew()
