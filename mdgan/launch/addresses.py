"""Finds and checks the sockets and network addresses at which the processes of a run listen."""

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
    """A folder of mode 0700 with a socket for each rank of this machine."""

    folder: Path
    alone: bool  # whether no rank runs on another machine

    @property
    def server(self) -> str:
        """Where the server listens."""
        return f"unix:{self.folder / 'server'}"

    def host(self, number: int) -> str:
        """Where the host with that first worker hands out parcels."""
        return f"unix:{self.folder / str(number)}"


def check_free(place: str, listen: str | None = None) -> str:
    """Checks that rank 0 can listen at an address and port, and returns these.

    Args:
        place: address and port; port 0 for any free one.
        listen: the value of `--listen`, if the place comes from it.
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
    """Joins an address and a port to one text; `split` is the inverse."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def split(place: str) -> tuple[str, int]:
    """Splits a text into an address and a port."""
    address, _, port = place.rpartition(":")
    return address.strip("[]"), int(port)


def listen_place(listen: str, port: int) -> str:
    """Reads `--listen`: an address, with a colon and a port unless it is `port`."""
    address, colon, own_port = listen.rpartition(":")
    if not colon or listen.endswith("]") or (listen.count(":") > 1 and not listen.startswith("[")):
        address, own_port = listen, str(port)
    if not address.strip("[]") or not own_port.isdecimal() or int(own_port) > 65535:
        why = "must be ADDRESS or ADDRESS:PORT, a port in [0, 65535]"
        raise BadInput(flag("listen", listen), why)
    return joined(address.strip("[]"), int(own_port))


def check_reachable(host: str, listen: str | None) -> None:
    """Refuses a name for rank 0 that other machines cannot use, since it means a loopback address.

    Debian maps a machine's own name to 127.0.1.1. If the user writes localhost or an address, it is
    not checked.

    Args:
        listen: the value of `--listen`, if the user gave it; it replaces `host`.
    """
    named = flag("master_addr", host) if listen is None else flag("listen", listen)
    host = host if listen is None else split(listen_place(listen, 0))[0]
    if host.lower().startswith(_LOCAL_NAMES) or ":" in host or not host.strip("0123456789."):
        return
    address = ip_address(_resolve(host, 0, named)[4][0].partition("%")[0])
    if not address.is_loopback:
        return
    local = [ip_address(each.partition("%")[0]) for each in local_addresses()]
    reachable = [str(each) for each in local if not (each.is_loopback or each.is_link_local)]
    why = f"means {address} here, which is this machine alone, and other machines have ranks"
    way_out = f"give one of its addresses ({', '.join(reachable) or 'it has none'}) on all machines"
    raise BadInput(named, why, f"{way_out}, or {flag('listen', 'ADDRESS')} here")


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
        setting = key("network_interface", name)
        raise BadInput(setting, "not an interface here", f"there are {', '.join(known)}")


def address_of_interface(name: str, like: str) -> str:
    """The address of a network interface; IPv6 if `like` is an IPv6 address, else IPv4."""
    family = socket.AF_INET6 if ":" in like else socket.AF_INET
    for entry in psutil.net_if_addrs().get(name, []):
        if entry.family == family:
            return str(entry.address)
    why = f"has no address of the kind that {like} is"
    raise BadInput(key("network_interface", name), why)


def address_towards(host: str, port: int) -> str:
    """The local address from which this machine would send to a remote one; it sends nothing."""
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
