"""Where processes are reached: sockets on this machine, and addresses towards others."""

import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil

from mdgan.errors import BadInput
from mdgan.spelling import Mention, flag, key

_LOCAL_NAMES = ("localhost", "ip6-")


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
    by_address, by_port = flag("master_addr", host), flag("master_port", port)
    if listen is not None:
        by_address = by_port = flag("listen", listen)
    family, _, _, _, address = _resolve(host, port, by_address)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen()  # two programs may bind a port that neither listens on
        except PermissionError as error:
            raise BadInput(by_port, f"not permitted on {host}", "use a port above 1023") from error
        except OSError as error:
            if address[0] in (*local_addresses(), "0.0.0.0", "::"):
                way_out = "choose another port, or stop its program"
                raise BadInput(by_port, f"in use on {host}", way_out) from error
            why = "not an address of this machine, where rank 0 is to run"
            raise BadInput(by_address, why, f"it has {', '.join(local_addresses())}") from error
        return joined(address[0], probe.getsockname()[1])


def joined(address: str, port: int) -> str:
    """An address and a port as one text."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def split(place: str) -> tuple[str, int]:
    """An address and a port from one text."""
    address, _, port = place.rpartition(":")
    return address.strip("[]"), int(port)


def listen_place(listen: str, port: int) -> str:
    """Reads `--listen`: an address, with a port behind a colon if it is not that of rank 0."""
    address, colon, given = listen.rpartition(":")
    if not colon or listen.endswith("]") or (listen.count(":") > 1 and not listen.startswith("[")):
        address, given = listen, str(port)
    if not address.strip("[]") or not given.isdecimal() or int(given) > 65535:
        why = "must be ADDRESS or ADDRESS:PORT, a port in [0, 65535]"
        raise BadInput(flag("listen", listen), why)
    return joined(address.strip("[]"), int(given))


def check_reachable(host: str, listen: str | None) -> None:
    """Checks that a name of rank 0, which ranks of other machines look for, leads here.

    Debian writes 127.0.1.1 for a machine's own name. A user who writes localhost, or an address,
    knows what it means.

    Args:
        listen: the value of `--listen`, if that says where rank 0 is.
    """
    named = flag("master_addr", host) if listen is None else flag("listen", listen)
    host = host if listen is None else split(listen_place(listen, 0))[0]
    if host.lower().startswith(_LOCAL_NAMES) or ":" in host or not host.strip("0123456789."):
        return
    address = ip_address(_resolve(host, 0, named)[4][0].partition("%")[0])
    if not address.is_loopback:
        return
    own = [ip_address(each.partition("%")[0]) for each in local_addresses()]
    reached = [str(each) for each in own if not (each.is_loopback or each.is_link_local)]
    why = f"means {address} here, which is this machine alone, and other machines have ranks"
    there = f"give one of its addresses ({', '.join(reached) or 'it has none'}) on all machines"
    raise BadInput(named, why, f"{there}, or {flag('listen', 'ADDRESS')} here")


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
        own = key("network_interface", name)
        raise BadInput(own, "not an interface here", f"there are {', '.join(known)}")


def address_of_interface(name: str, like: str) -> str:
    """The address of a network interface, of the family of another address."""
    family = socket.AF_INET6 if ":" in like else socket.AF_INET
    for entry in psutil.net_if_addrs().get(name, []):
        if entry.family == family:
            return str(entry.address)
    why = f"has no address of the kind that {like} is"
    raise BadInput(key("network_interface", name), why)


def address_towards(host: str, port: int) -> str:
    """The local address from which a remote one is reached; nothing is sent."""
    family, _, _, _, address = _resolve(host, port, flag("master_addr", host))
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)
        except OSError as error:
            why = f"no route from here ({error.strerror})"
            raise BadInput(flag("master_addr", host), why) from error
        return str(probe.getsockname()[0])


def _resolve(host: str, port: int, named: Mention) -> tuple[Any, ...]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise BadInput(named, "unknown host", "give a name or an address") from error
