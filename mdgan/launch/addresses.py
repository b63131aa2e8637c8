"""Where processes are reached: sockets on this machine, and addresses towards others."""

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from mdgan.errors import BadInput


@dataclass(frozen=True)
class Sockets:
    """A folder of mode 0700 with a socket a rank here; `alone` if no rank is elsewhere."""

    folder: Path
    alone: bool

    @property
    def server(self) -> str:
        """Where the server listens."""
        return f"unix:{self.folder / 'server'}"

    def host(self, number: int) -> str:
        """Where a host hands out parcels."""
        return f"unix:{self.folder / str(number)}"


def check_free(place: str, listen: str | None = None) -> str:
    """Checks that rank 0 can listen at an address and port, before anything else is done.

    Args:
        place: address and port; 0 for a free one.
        listen: the value of `--listen`, if that says where.
    """
    host, port = split(place)
    by_address, by_port = f"--master-addr {host}", f"--master-port {port}"
    if listen is not None:
        by_address = by_port = f"--listen {listen}"
    family, _, _, _, address = _resolve(host, port, by_address)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen()  # two programs may bind a port that neither listens on
        except PermissionError as error:
            raise BadInput(f"{by_port}: not permitted on {host}; use a port above 1023") from error
        except OSError as error:
            if address[0] in (*local_addresses(), "0.0.0.0", "::"):
                raise BadInput(
                    f"{by_port}: in use on {host}; choose another port, or stop its program"
                ) from error
            raise BadInput(
                f"{by_address}: not an address of this machine, where rank 0 is to run; it "
                f"has {', '.join(local_addresses())}"
            ) from error
        return joined(address[0], probe.getsockname()[1])


def joined(address: str, port: int) -> str:
    """An address and a port as one text."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def split(place: str) -> tuple[str, int]:
    """An address and a port from one text."""
    address, _, port = place.rpartition(":")
    return address.strip("[]"), int(port)


def local_addresses() -> list[str]:
    """The IP addresses of this machine."""
    return [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    ]


def check_interface(name: str) -> None:
    """Checks that a network interface exists."""
    known = [interface for _, interface in socket.if_nameindex()]
    if name not in known:
        raise BadInput(
            f"--set network_interface={name}: not an interface here; there are {', '.join(known)}"
        )


def address_of_interface(name: str, like: str) -> str:
    """The address of a network interface, of the family of another address."""
    family = socket.AF_INET6 if ":" in like else socket.AF_INET
    for entry in psutil.net_if_addrs().get(name, []):
        if entry.family == family:
            return str(entry.address)
    raise BadInput(f"--set network_interface={name}: has no address of the kind that {like} is")


def address_towards(host: str, port: int) -> str:
    """The local address from which a remote one is reached; nothing is sent."""
    family, _, _, _, address = _resolve(host, port, f"--master-addr {host}")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)
        except OSError as error:
            raise BadInput(
                f"--master-addr {host}: no route from here ({error.strerror})"
            ) from error
        return str(probe.getsockname()[0])


def _resolve(host: str, port: int, named: str) -> tuple[Any, ...]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise BadInput(f"{named}: unknown host; give a name or an address") from error
