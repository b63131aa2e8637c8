"""Where and how this machine takes part."""

import re
from dataclasses import dataclass
from typing import Literal

from mdgan.errors import BadInput
from mdgan.settings.declare import check_types, flag, setting

_DEADLINE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(x?)")
_MOST_THREADS = 1024


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
    vectorize: bool = setting(
        False,
        "Compute all workers of a process at once, not one after another; pays with "
        "small models. Results differ in the last bits.",
    )
    tune: bool = setting(
        False,
        "Measure in the first iterations what is fastest for the workers of a process, one after "
        "another or at once and with how many threads, and keep that. The last bits of the results "
        "then depend on the machine.",
    )
    transport: str = setting(
        "tcp",
        "Processes linked over the network, or everything in one process.",
        choices=("tcp", "memory"),
    )
    device: str = setting("cpu", "Where tensors live.", choices=("cpu", "cuda", "mps", "auto"))
    ranks: str | None = setting(
        None,
        'Ranks to start on this machine: "0,1,2" or "0..30".',
        metavar="RANKS",
        default_text="all, or torchrun's RANK",
    )
    master_addr: str = setting(
        "127.0.0.1",
        "Address of rank 0; after a comma those of its standbys.",
        metavar="HOST[,HOST…]",
    )
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
    join_token: str | None = setting(
        None,
        "File with the secret that whoever takes part must know (`mdgan token FILE` makes one); "
        "needed where others can reach --master-addr.",
        metavar="FILE",
    )
    insecure: bool = setting(False, "Let anybody who reaches --master-addr take part.")
    deadline: str | None = setting(
        None,
        "When to go on without the feedback that is missing: seconds, or times the median answer "
        "time, such as 3x.",
        metavar="SECONDS|FACTORx",
        default_text="wait for everybody who lives",
    )
    on_deadline: str = setting(
        "complete",
        "What becomes of a round past --deadline (fl-gan, fegan): it is completed with those who "
        "answered, or aborted and another begun.",
        choices=("complete", "abort"),
    )
    quorum: float = setting(
        0.5, "Least fraction of the workers to wait for, past --deadline too.", metavar="FRACTION"
    )
    liveness_timeout: float = setting(
        30.0, "Seconds of silence after which a machine counts as gone.", metavar="SECONDS"
    )
    patience: float = setting(
        300.0,
        "Seconds that a server without workers waits for one, and a worker for a server.",
        metavar="SECONDS",
    )
    strikes: int = setting(3, "Unusable answers after which a worker is shut out.", metavar="N")
    checkpoint_interval: int = setting(
        500, "Iterations between two checkpoints; 0 for none.", metavar="N"
    )
    checkpoint_keep: int = setting(2, "Number of checkpoints to keep.", metavar="K")
    checkpoint_to_server: bool = setting(
        False, "Workers send their state to rank 0 instead of writing it themselves."
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
        if self.threads != "auto" and self.threads > _MOST_THREADS:
            raise BadInput(f"--threads {self.threads}: at most {_MOST_THREADS}")
        if self.master_port is not None and not 0 <= self.master_port < 65536:
            raise BadInput(f"--master-port {self.master_port}: must be in [0, 65535]")
        for name in ("sample_interval", "eval_interval", "checkpoint_interval"):
            if getattr(self, name) < 0:
                raise BadInput(f"{flag(name)} {getattr(self, name)}: must be 0 or more")
        for name in ("log_interval", "strikes", "checkpoint_keep"):
            if getattr(self, name) < 1:
                raise BadInput(f"{flag(name)} {getattr(self, name)}: must be at least 1")
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
        for name in ("connect_timeout", "liveness_timeout"):
            if not 0 < getattr(self, name) < 1e7:
                raise BadInput(f"{flag(name)} {getattr(self, name)}: must be seconds above 0")
        if not 0 <= self.patience < 1e7:
            raise BadInput(f"--patience {self.patience}: must be seconds, 0 or more")
        if not 0 < self.quorum <= 1:
            raise BadInput(f"--quorum {self.quorum}: must be above 0 and at most 1")
        parse_deadline(self.deadline)
        if self.on_deadline == "abort" and self.deadline is None:
            raise BadInput("--on-deadline abort: needs --deadline beside it")
        if self.transport == "memory" and self.ranks is not None:
            raise BadInput(
                f"--ranks {self.ranks}: with --transport memory every rank is in this process; "
                "leave --ranks out"
            )

    def addresses(self) -> list[str]:
        """Where the server may be: rank 0's address, then those of its standbys."""
        return [address.strip() for address in self.master_addr.split(",")]


def parse_deadline(text: str | None) -> tuple[float, float] | None:
    """Reads `--deadline`.

    Returns:
        Seconds and a factor of the median answer time, one of which is 0; None for no deadline.

    Raises:
        BadInput: neither seconds nor a factor.
    """
    if text is None:
        return None
    match = _DEADLINE.fullmatch(text)
    if match is None or not 0 < (number := float(match[1])) < 1e7:
        raise BadInput(
            f"--deadline {text}: must be seconds, or a factor of the median answer time such as 3x"
        )
    return (0.0, number) if match[2] else (number, 0.0)
