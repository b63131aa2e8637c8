"""The settings of links between machines."""

from dataclasses import dataclass

from mdgan.settings.declare import Settings, number, own_setting, switch, text, whole
from mdgan.timeouts import Timeouts

_SECONDS = number(lambda seconds: 0 < seconds < 1e7, "must be seconds above 0")


@dataclass(frozen=True)
class LinkSettings(Settings, group="network"):
    """Where the server is, which processes may take part, and how long others wait for one."""

    master_addr: str = own_setting(
        "127.0.0.1",
        "Address of rank 0; after a comma those of its standbys.",
        text(),
        metavar="HOST[,HOST…]",
    )
    master_port: int | None = own_setting(
        None,
        "Port of rank 0.",
        whole(0, 65535, otherwise="must be in [0, 65535]"),
        metavar="PORT",
        default_text="a free one if every rank is here, else 29500",
    )
    network_interface: str | None = own_setting(
        None,
        "Network interface to talk through.",
        text(),
        metavar="NAME",
        default_text="the one that reaches rank 0",
    )
    connect_timeout: float = own_setting(
        300.0, "Seconds to wait for the server, and for the workers.", _SECONDS, metavar="SECONDS"
    )
    join_token: str | None = own_setting(
        None,
        "File with the secret that every machine of the run must know (`mdgan token FILE` makes "
        "one); needed where others can reach --master-addr.",
        text(),
        metavar="FILE",
    )
    insecure: bool = own_setting(
        False, "Let every process that reaches --master-addr take part.", switch()
    )
    liveness_timeout: float = own_setting(
        30.0,
        "Seconds of silence after which a machine counts as gone.",
        _SECONDS,
        metavar="SECONDS",
        group="faults",
    )
    patience: float = own_setting(
        300.0,
        "Seconds that a server without workers waits for one, and a worker for a server.",
        number(lambda seconds: 0 <= seconds < 1e7, "must be seconds, 0 or more"),
        metavar="SECONDS",
        group="faults",
    )

    def addresses(self) -> list[str]:
        """Where the server may be: the address of rank 0, then those of its standbys."""
        return [address.strip() for address in self.master_addr.split(",")]

    def timeouts(self) -> Timeouts:
        """The time limits of a run; those that are no settings have their defaults."""
        return Timeouts(
            connect=self.connect_timeout, liveness=self.liveness_timeout, patience=self.patience
        )
