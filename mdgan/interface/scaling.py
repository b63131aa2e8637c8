"""`mdgan.ScalingManager` and `mdgan.Estimator`, as ParaGAN's Listing 1 has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.interface.run import Run
from mdgan.interface.train import Z_DIM, train

if TYPE_CHECKING:
    from mdgan.interface.data import Data, Model

_GLOBAL = "global_batch_size"


@dataclass(frozen=True)
class Estimator:
    """A generator and a discriminator that are trained together.

    Attributes:
        generator: a class or function that makes G; None for the dataset file's own.
        discriminator: a class or function that makes D; None for the dataset file's own.
        z_dim: the length of G's input.
    """

    generator: "Model | None" = None
    discriminator: "Model | None" = None
    z_dim: int = Z_DIM


class ScalingManager:
    """Trains data-parallel, with batch sizes and learning rates for the number of workers.

    Args:
        config: settings that are good for one worker, under their flags' names with _ for -. The
            learning rates are for `batch_size` samples an iteration there. `lr_scaling` says how
            they grow with the samples of all workers; linearly if not given.
        batch_size: samples of an iteration, of all workers together.

    Attributes:
        run: that was trained last; None before `train`.
    """

    def __init__(self, config: Mapping[str, Any], batch_size: int, num_workers: int) -> None:
        own = {_GLOBAL: batch_size, "world_size": num_workers + 1}
        for name in own.keys() & config.keys():
            raise BadInput(f"config: {name} is what batch_size and num_workers say; leave it out")
        (algorithm,) = registry.with_setting(_GLOBAL)
        self._settings = {"algorithm": algorithm, "lr_scaling": "linear", **config, **own}
        self.run: Run | None = None

    def train(
        self,
        model: Estimator,
        dataset: "str | Data" = "digits",
        *,
        steps: int | None = None,
        quiet: bool = False,
    ) -> Run:
        """Trains a model; called again, goes on with it.

        Args:
            steps: iterations; those of `config` if not given.
        """
        done = 0 if self.run is None else self.run.iteration
        some: dict[str, Any] = {} if steps is None else {"iterations": done + steps}
        if self.run is not None:
            self.run = self.run.resume(quiet=quiet, **some)
            return self.run
        self.run = train(
            dataset,
            generator=model.generator,
            discriminator=model.discriminator,
            z_dim=model.z_dim,
            quiet=quiet,
            **{**self._settings, **some},
        )
        return self.run

    def eval(self, metric: str = "fid", n: int = 10_000) -> float:
        """One score of the newest generator.

        Args:
            metric: its name in `Run.scores`, such as `fid`.

        Raises:
            BadInput: nothing was trained, or the run has no score of that name.
        """
        if self.run is None:
            raise BadInput("eval: nothing was trained; call train first")
        scores: dict[str, float] = self.run.evaluate(n)["scores"]
        if metric not in scores:
            raise BadInput(f"metric={metric}: is no score of this run; one of {', '.join(scores)}")
        return scores[metric]
