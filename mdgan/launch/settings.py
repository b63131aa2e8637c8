"""The settings of one machine: which ranks run on it, in which processes, on which devices."""

from dataclasses import dataclass
from typing import Literal

from mdgan.errors import BadInput
from mdgan.settings.declare import one_of, setting, text, whole
from mdgan.transport.settings import LinkSettings


@dataclass(frozen=True)
class LaunchSettings(LinkSettings):
    """Where and how this machine takes part; every machine has its own."""

    workers_per_host: int | None = setting(
        None,
        "Workers that share one process.",
        whole(1),
        metavar="W",
        default_text="1; all of them with --transport memory",
        shared=False,
    )
    transport: str = setting(
        "tcp",
        "Processes linked over the network, or everything in one process.",
        one_of("tcp", "memory"),
        shared=False,
    )
    device: str = setting(
        "cpu", "Where tensors live.", one_of("cpu", "cuda", "mps", "auto"), shared=False
    )
    ranks: str | None = setting(
        None,
        'Ranks to start on this machine: "0,1,2" or "0..30".',
        text(),
        metavar="RANKS",
        default_text="all, or torchrun's RANK",
        shared=False,
    )
    threads: int | Literal["auto"] = setting(
        "auto",
        "Compute threads per process.",
        whole(1, 1024, word="auto"),
        metavar="N|auto",
        default_text="auto: cores // processes here; the server takes all cores",
        shared=False,
    )
    out: str | None = setting(
        None,
        "Folder of the run.",
        text(),
        metavar="DIR",
        default_text="runs/NAME-TIME",
        shared=False,
    )

    def check(self) -> None:
        """Checks that ranks are chosen only where there are several processes."""
        super().check()
        if self.transport == "memory" and self.ranks is not None:
            raise BadInput(
                f"--ranks {self.ranks}: with --transport memory every rank is in this process; "
                "leave --ranks out"
            )
