"""The settings of ParaGAN, and its entry in the registry."""

from dataclasses import dataclass

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families.contract import Algorithm
from mdgan.families.data_parallel.scaling import RULES, Scaling
from mdgan.settings.declare import one_of, setting, text, whole

NAME = "paragan"
_MOST_BATCHES = 2


@dataclass(frozen=True)
class DataParallelSettings(RunSettings):
    """The settings of ParaGAN, and those that every algorithm has."""

    algorithm: str = setting(NAME, "What trains.", text())
    global_batch_size: int | None = setting(
        None,
        "Samples in the batches of all workers together, dealt out again when workers come or go.",
        whole(1),
        metavar="B",
        symbol="B",
        default_text="--batch-size for each worker",
        other_names=("--total-batch-size", "--effective-batch-size"),
    )
    lr_scaling: str = setting(
        "none",
        "How learning rates grow with the samples of an iteration: not, as they do, or as their "
        "square root does.",
        one_of(*RULES),
        metavar="RULE",
    )
    reference_batch_size: int | None = setting(
        None,
        "With --lr-scaling: the samples of an iteration for which learning rates are given.",
        whole(1),
        metavar="N",
        default_text="--batch-size, that is, one worker",
    )

    def check(self) -> None:
        """Refuses what makes no sense where every worker trains in every iteration."""
        super().check()
        if self.participation < 1:
            raise BadInput(
                f"--participation {self.participation:g}: {NAME} averages the gradients of all "
                "workers; leave it out, or use fewer workers"
            )
        if self.kappa != "auto" and self.kappa > _MOST_BATCHES:
            raise BadInput(
                f"--kappa {self.kappa}: a worker of {NAME} has use for two generated batches at "
                "most, one for each network; use 1 or 2"
            )
        if self.global_batch_size is not None and self.global_batch_size < self.num_workers:
            raise BadInput(
                f"--global-batch-size {self.global_batch_size}: fewer samples than the "
                f"{self.num_workers} workers; use more, or fewer workers"
            )
        if self.reference_batch_size is not None and self.lr_scaling == "none":
            raise BadInput(
                f"--reference-batch-size {self.reference_batch_size}: is for --lr-scaling linear "
                "or sqrt; add one"
            )

    def scaling(self) -> Scaling:
        """The batch sizes and learning rates of any number of workers."""
        return Scaling(
            self.batch_size,
            self.global_batch_size,
            self.lr_scaling,
            self.reference_batch_size or self.batch_size,
        )


PARAGAN = Algorithm(
    NAME,
    "workers train both models on their own data, and every gradient is averaged",
    DataParallelSettings,
    "mdgan.families.data_parallel.build:BUILDER",
    server_phases=("scale", "send", "wait", "aggregate", "local-step", "step"),
    host_phases=("receive", "generate", "real-half", "fake-half", "aggregate", "send"),
)
"""Shi et al. 2024."""
