"""The settings of a run: frozen, checked once, and the single source of every flag.

`Experiment` says what is computed: it must be equal on every rank and decides every bit of the
result. `Deployment` says where and how this machine takes part. The command line makes one option
of each field below, and `--config FILE.json` accepts the same names.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from mdgan.errors import BadInput
from mdgan.settings import check_types, flag, setting, suggest

PARTITION_FORMS = (
    "iid, sorted, dirichlet:ALPHA, shards:K, classes:K, fegan:MAX_CLASSES,MAX_SAMPLES, none"
)
_PARTITION = re.compile(
    r"iid|sorted|none|dirichlet:[0-9.eE+-]+|shards:\d+|classes:\d+|fegan:\d+,\d+"
)


@dataclass(frozen=True)
class Experiment:
    """What is computed. Equal on every rank; ranks that differ are refused at joining."""

    algorithm: str = setting("mdgan", "Training algorithm.", choices=("mdgan", "standalone"))
    dataset: str = setting("digits", "Dataset file to train on, by name.", metavar="NAME")
    world_size: int = setting(
        5, "Number of ranks: the server and the workers.", metavar="N", symbol="N + 1"
    )
    iterations: int = setting(
        3000, "Number of global learning iterations.", metavar="I", symbol="I"
    )
    batch_size: int = setting(10, "Samples in a batch.", metavar="b", symbol="b")
    kappa: int | Literal["auto"] = setting(
        "auto",
        "Batches generated per iteration.",
        metavar="K|auto",
        symbol="κ",
        default_text="auto: max(2, ⌊log2 N⌋)",
    )
    local_steps: int = setting(
        1, "Discriminator updates within an iteration.", metavar="L", symbol="L"
    )
    swap_interval: int | None = setting(
        None,
        "Iterations between two swaps; 0 for never.",
        metavar="S",
        default_text="see --swap-epochs",
    )
    swap_epochs: float | None = setting(
        None,
        "Swap every mE/b iterations, m being the mean shard size.",
        metavar="E",
        symbol="E",
        default_text="1, unless --swap-interval is given",
    )
    swap: str = setting(
        "pairs",
        "Who receives whose discriminator: server-drawn pairs, or a permutation without fixed "
        "points.",
        choices=("pairs", "derangement"),
    )
    generator_loss: str = setting(
        "non-saturating",
        "Generator loss on logits; `saturating` is the paper's.",
        choices=("non-saturating", "saturating", "least-squares", "hinge"),
        symbol="J_gen",
    )
    discriminator_loss: str = setting(
        "bce",
        "Discriminator loss on logits.",
        choices=("bce", "least-squares", "hinge"),
        symbol="J_disc",
    )
    generator_lr: float = setting(2e-4, "Adam's step size for the generator.", metavar="LR")
    discriminator_lr: float = setting(2e-4, "Adam's step size for discriminators.", metavar="LR")
    beta1: float = setting(0.5, "Adam's first decay rate.", metavar="B", symbol="β1")
    beta2: float = setting(0.999, "Adam's second decay rate.", metavar="B", symbol="β2")
    partition: str = setting(
        "iid",
        f"Who holds what: {PARTITION_FORMS} (every worker holds all of its --data-dir).",
        metavar="SCHEME",
    )
    seed: int = setting(0, "Everything random is derived from it.", metavar="N")

    def __post_init__(self) -> None:
        """Checks every value and every pair of values.

        Raises:
            BadInput: a value is out of range; the text names the flag and what to do.
        """
        check_types(self)
        if self.world_size < 2:
            raise BadInput(
                f"--world-size {self.world_size}: needs at least 2, one server and one worker"
            )
        for name in ("iterations", "batch_size", "local_steps"):
            if getattr(self, name) < 1:
                raise BadInput(f"{flag(name)} {getattr(self, name)}: must be at least 1")
        for name in ("generator_lr", "discriminator_lr"):
            if not 0 < getattr(self, name) < math.inf:
                raise BadInput(f"{flag(name)} {getattr(self, name)}: must be above 0")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(f"{flag(name)} {getattr(self, name)}: must be in [0, 1)")
        if not 0 <= self.seed < 2**63:
            raise BadInput(f"--seed {self.seed}: must be in [0, 2^63)")
        self._check_kappa()
        self._check_swap()
        check_partition(self.partition)

    def _check_kappa(self) -> None:
        if self.kappa == "auto":
            return
        if self.kappa < 1:
            raise BadInput(f"--kappa {self.kappa}: must be at least 1, or auto")
        if self.kappa > max(2, self.num_workers):
            raise BadInput(
                f"--kappa {self.kappa}: more batches than the {self.num_workers} worker(s) can "
                f"judge; at most {max(2, self.num_workers)}"
            )

    def _check_swap(self) -> None:
        if self.swap_interval is not None and self.swap_epochs is not None:
            raise BadInput(
                f"--swap-interval {self.swap_interval} and --swap-epochs {self.swap_epochs}: "
                "give one of them"
            )
        if self.swap_interval is not None and self.swap_interval < 0:
            raise BadInput(f"--swap-interval {self.swap_interval}: must be 0 (never) or more")
        if self.swap_epochs is not None and not 0 < self.swap_epochs < math.inf:
            raise BadInput(
                f"--swap-epochs {self.swap_epochs}: must be above 0 (never: --swap-interval 0)"
            )

    @property
    def num_workers(self) -> int:
        """N, the number of workers at the start."""
        return self.world_size - 1

    def swap_every(self, mean_shard_size: float) -> int:
        """The number of iterations between two swaps.

        Args:
            mean_shard_size: m, in samples.

        Returns:
            `--swap-interval`, or mE/b rounded, at least 1; 0 for never
            (Hardy et al., Algorithm 1, line 11).
        """
        if self.swap_interval is not None:
            return self.swap_interval
        epochs = 1.0 if self.swap_epochs is None else self.swap_epochs
        return max(1, round(min(mean_shard_size * epochs / self.batch_size, 2.0**63)))


@dataclass(frozen=True)
class Deployment:
    """Where and how this machine takes part. May differ from machine to machine."""

    datasets_dir: str | None = setting(
        None, "Folder with your own dataset files, looked at first.", metavar="DIR"
    )
    data_dir: str | None = setting(
        None,
        "Folder that holds the data; {rank} in it stands for the worker's rank.",
        metavar="DIR",
        default_text="data/NAME",
    )
    workers_per_host: int | None = setting(
        None,
        "Workers that share one process.",
        metavar="W",
        default_text="1; all of them with --transport memory",
    )
    transport: str = setting(
        "c10d",
        "Processes linked by torch.distributed, or everything in one process.",
        choices=("c10d", "memory"),
    )
    backend: str = setting(
        "gloo",
        "What carries tensors; nccl needs a GPU of its own for every process.",
        choices=("gloo", "nccl"),
    )
    device: str = setting("cpu", "Where tensors live.", choices=("cpu", "cuda", "mps", "auto"))
    ranks: str | None = setting(
        None,
        'Ranks to start on this machine: "0,1,2" or "0..30".',
        metavar="RANKS",
        default_text="all, or torchrun's RANK",
    )
    master_addr: str = setting("127.0.0.1", "Address of rank 0.", metavar="HOST")
    master_port: int | None = setting(
        None,
        "Port of rank 0.",
        metavar="PORT",
        default_text="a free one if every rank is here, else 29500",
    )
    network_interface: str | None = setting(
        None,
        "Network interface to talk through.",
        metavar="NAME",
        default_text="the one that reaches rank 0",
    )
    threads: int | Literal["auto"] = setting(
        "auto",
        "Compute threads per process.",
        metavar="N|auto",
        default_text="auto: cores // processes here; the server takes all cores",
    )
    eval_interval: int = setting(
        500,
        "Iterations between two scores (FID and others), which another process computes; 0 for "
        "none. Shorter runs are not scored.",
        metavar="N",
    )
    eval_samples: int = setting(10_000, "Samples to generate for each score.", metavar="N")
    extractor: str = setting(
        "classifier",
        "Network whose features are scored: classifier (small, of the data set, trained when it is "
        "first needed), inception, or your own file: TorchScript, or FILE.py:MODULE.",
        metavar="NAME|FILE",
    )
    inception_weights: str | None = setting(
        None, "Weights for --extractor inception; nothing is downloaded.", metavar="FILE"
    )
    held_out: str | None = setting(
        None,
        "Folder of real samples that the server may hold, for KID, precision and recall.",
        metavar="DIR",
        default_text="the data set's own test samples, where it has some",
    )
    tensorboard: bool = setting(
        False, "Also log scalars and grids for TensorBoard, into the run's folder."
    )
    sample_interval: int = setting(
        500, "Iterations between two sample grids; 0 for none but the last.", metavar="N"
    )
    log_interval: int = setting(50, "Iterations between two lines of metrics.jsonl.", metavar="N")
    connect_timeout: float = setting(
        300.0, "Seconds to wait for the server, and for the workers.", metavar="SECONDS"
    )
    out: str | None = setting(
        None, "Folder of the run.", metavar="DIR", default_text="runs/NAME-TIME"
    )

    def __post_init__(self) -> None:
        """Checks every value.

        Raises:
            BadInput: a value is out of range; the text names the flag and what to do.
        """
        check_types(self)
        if self.workers_per_host is not None and self.workers_per_host < 1:
            raise BadInput(f"--workers-per-host {self.workers_per_host}: must be at least 1")
        if self.threads != "auto" and self.threads < 1:
            raise BadInput(f"--threads {self.threads}: must be at least 1, or auto")
        if self.master_port is not None and not 0 <= self.master_port < 65536:
            raise BadInput(f"--master-port {self.master_port}: must be in [0, 65535]")
        for name in ("sample_interval", "eval_interval"):
            if getattr(self, name) < 0:
                raise BadInput(f"{flag(name)} {getattr(self, name)}: must be 0 or more")
        if self.eval_samples < 2:
            raise BadInput(f"--eval-samples {self.eval_samples}: must be at least 2")
        if self.inception_weights is not None and self.extractor != "inception":
            raise BadInput(
                f"--inception-weights {self.inception_weights}: needs --extractor inception beside "
                f"it, not {self.extractor}"
            )
        if self.extractor == "inception" and self.inception_weights is None:
            raise BadInput(
                "--extractor inception: needs --inception-weights FILE; nothing is downloaded"
            )
        if self.log_interval < 1:
            raise BadInput(f"--log-interval {self.log_interval}: must be at least 1")
        if not 0 < self.connect_timeout < 1e7:
            raise BadInput(f"--connect-timeout {self.connect_timeout}: must be seconds above 0")
        if self.backend == "nccl" and self.transport == "memory":
            raise BadInput("--backend nccl: one process needs no backend; leave --transport c10d")
        if self.backend == "nccl" and self.device not in ("cuda", "auto"):
            raise BadInput(
                f"--backend nccl: needs --device cuda, not {self.device}; use --backend gloo"
            )
        if self.transport == "memory" and self.ranks is not None:
            raise BadInput(
                f"--ranks {self.ranks}: with --transport memory every rank is in this process; "
                "leave --ranks out"
            )


def check_partition(scheme: str) -> None:
    """Checks the spelling and the numbers of a `--partition` value.

    Raises:
        BadInput: not one of the known forms, or a number out of range.
    """
    name, _, parameters = scheme.partition(":")
    try:
        numbers = [float(number) for number in parameters.split(",")] if parameters else []
    except ValueError:
        numbers = [0.0]
    if not _PARTITION.fullmatch(scheme):
        raise BadInput(f"--partition {scheme}: not one of {PARTITION_FORMS}")
    if not all(0 < number < math.inf for number in numbers):
        raise BadInput(f"--partition {scheme}: the number(s) after {name}: must be above 0")


def names(kind: type[Experiment] | type[Deployment]) -> set[str]:
    """The names of all settings of one kind."""
    return {item.name for item in fields(kind)}


def read_config_file(path: Path) -> dict[str, Any]:
    """Reads a `--config` file: one JSON object with any of the settings' names.

    Raises:
        BadInput: not readable, not a JSON object, or a name that no setting has.
    """
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"--config {path}: cannot read it ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"--config {path}: not a JSON file ({error})") from error
    if not isinstance(settings, dict):
        raise BadInput(f"--config {path}: must hold one JSON object of settings")
    known = names(Experiment) | names(Deployment)
    for name in settings:
        if name not in known:
            raise BadInput(f"--config {path}: unknown key {name!r}{suggest(name, known)}")
    return settings


def build_experiment(*layers: Mapping[str, Any]) -> Experiment:
    """Builds the experiment from layers of settings, the first that names a setting wins.

    Args:
        layers: flags, then the config file, then the dataset's own defaults.
    """
    return Experiment(**_merge(names(Experiment), layers))


def build_deployment(*layers: Mapping[str, Any]) -> Deployment:
    """Builds the deployment from layers of settings, the first that names a setting wins."""
    return Deployment(**_merge(names(Deployment), layers))


# A later layer's swap rhythm must not collide with an earlier layer's: they are one choice.
_ONE_CHOICE = {"swap_interval": "swap_epochs", "swap_epochs": "swap_interval"}


def _merge(wanted: set[str], layers: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        chosen_before = set(merged)
        for name, value in layer.items():
            taken = name in chosen_before or _ONE_CHOICE.get(name) in chosen_before
            if name in wanted and value is not None and not taken:
                merged[name] = value
    return merged


def as_settings(experiment: Experiment, deployment: Deployment) -> dict[str, Any]:
    """All settings as one JSON object that `--config` takes back, without the output folder."""
    settings = {**asdict(experiment), **asdict(deployment)}
    return {name: value for name, value in settings.items() if name != "out"}
