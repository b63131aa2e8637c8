"""The settings of one machine: which ranks run on it, and where; and its secret."""

import ipaddress
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mdgan.errors import BadInput
from mdgan.settings.declare import one_of, own_setting, text, whole
from mdgan.settings.machine import path_of
from mdgan.transport.settings import LinkSettings


@dataclass(frozen=True)
class LaunchSettings(LinkSettings, group="network"):
    """How this machine takes part; every machine has its own settings."""

    workers_per_host: int | None = own_setting(
        None,
        "Workers that share one process.",
        whole(1),
        metavar="W",
        default_text="1; all of them with --transport memory",
    )
    transport: str = own_setting(
        "tcp",
        "Processes linked over the network, or everything in one process.",
        one_of("tcp", "memory"),
    )
    device: str = own_setting(
        "cpu",
        "Where tensors live.",
        one_of("cpu", "cuda", "mps", "auto"),
        group="speed",
        other_names=("--gpu", "--cuda"),
    )
    ranks: str | None = own_setting(
        None,
        'Ranks to start on this machine: "0,1,2" or "0..30".',
        text(),
        metavar="RANKS",
        default_text="all, or torchrun's RANK",
    )
    threads: int | Literal["auto"] = own_setting(
        "auto",
        "Compute threads per process.",
        whole(1, 1024, word="auto"),
        metavar="N|auto",
        default_text="auto: cores // processes here; the server takes all cores",
        group="speed",
    )
    out: str | None = own_setting(
        None,
        "Folder of the run.",
        text(),
        metavar="DIR",
        default_text="runs/NAME-TIME",
        group="output",
    )

    log_file: str | None = own_setting(
        None,
        "File that also gets every line which the program prints, with its time.",
        text(),
        metavar="FILE",
        group="output",
    )

    def check(self) -> None:
        """Checks that ranks are chosen only where there are several processes."""
        super().check()
        if self.transport == "memory" and self.ranks is not None:
            raise BadInput(
                f"--ranks {self.ranks}: with --transport memory every rank is in this process; "
                "leave --ranks out"
            )


LEAST_TOKEN_BYTES = 16


def read_token(settings: LaunchSettings) -> bytes:
    """The secret that every process of the run knows; empty if any process may take part.

    Raises:
        BadInput: its file cannot be read, or holds too little.
    """
    if settings.join_token is None:
        return b""
    path = path_of(settings.join_token)
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise BadInput(
            f"--join-token {path}: cannot be read ({error.strerror}); `mdgan token FILE` makes one"
        ) from error
    if len(token) < LEAST_TOKEN_BYTES:
        raise BadInput(
            f"--join-token {path}: holds {len(token)} bytes, too few to be a secret (at least "
            f"{LEAST_TOKEN_BYTES}); `mdgan token FILE` makes one"
        )
    return token


def is_readable_by_others(settings: LaunchSettings) -> bool:
    """Whether other users of this machine can read the file of the secret."""
    if settings.join_token is None:
        return False
    mode = path_of(settings.join_token).stat().st_mode
    return bool(mode & (stat.S_IRWXG | stat.S_IRWXO))


def check_exposed(addresses: Iterable[str], settings: LaunchSettings) -> None:
    """Checks that a port which others can reach is guarded, or that the user wants it open.

    Args:
        addresses: that this machine is about to listen on.
        settings: what the user asked for.

    Raises:
        BadInput: one is not this machine's own, and there is neither a token nor --insecure.
    """
    if settings.join_token is not None or settings.insecure:
        return
    for address in addresses:
        if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            raise BadInput(
                f"--master-addr {settings.master_addr}: others can reach {address}; give "
                "--join-token FILE on every machine (`mdgan token FILE` makes one), or --insecure"
            )
