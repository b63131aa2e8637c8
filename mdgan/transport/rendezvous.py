"""How processes find each other: addresses, one listening socket, one TCPStore, and joining.

A host takes a numbered ticket, says hello, and is answered: refused with a reason, or admitted.
Only JSON passes through the store.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import psutil
import torch.distributed as dist

# torch exports these without saying so.
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined] # see above
from torch.distributed import Store as Store  # type: ignore[attr-defined] # see above

from mdgan.errors import BadInput
from mdgan.transport.inbox import Inbox

_ATTEMPT_SECONDS = 5.0
_RETRY_SECONDS = 0.1
_TELL_SECONDS = 10.0
_LEAST_SECONDS = 1.0


def listen(host: str, port: int) -> socket.socket:
    """Binds the port of rank 0 on one address only (a TCPStore left alone binds all of them).

    Raises:
        BadInput: the address is not this machine's, or the port is taken.
    """
    family, _, _, _, address = _resolve(host, port)
    if address[0] in ("0.0.0.0", "::"):
        raise BadInput(
            f"--master-addr {host}: name the one address that the other ranks reach; this machine "
            f"has {', '.join(local_addresses())}"
        )
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(1024)
    except PermissionError as error:
        listener.close()
        raise BadInput(
            f"--master-port {port}: not permitted on {host}; use one above 1023"
        ) from error
    except OSError as error:
        listener.close()
        if address[0] in local_addresses():
            raise BadInput(
                f"--master-port {port}: in use on {host}; choose another, or stop whatever listens"
            ) from error
        raise BadInput(
            f"--master-addr {host}: not an address of this machine, where rank 0 is to run; it has "
            f"{', '.join(local_addresses())}"
        ) from error
    return listener


def local_addresses() -> list[str]:
    """The IP addresses of this machine."""
    families = (socket.AF_INET, socket.AF_INET6)
    return [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in families
    ]


def check_interface(name: str) -> None:
    """Checks that a network interface exists.

    Raises:
        BadInput: it does not; names those that do.
    """
    known = [interface for _, interface in socket.if_nameindex()]
    if name not in known:
        raise BadInput(
            f"--network-interface {name}: no such interface; there are {', '.join(known)}"
        )


def address_towards(host: str, port: int) -> str:
    """The local address from which a remote one is reached; nothing is sent.

    Raises:
        BadInput: the host is unknown or there is no route to it.
    """
    family, _, _, _, address = _resolve(host, port)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)
        except OSError as error:
            raise BadInput(
                f"--master-addr {host}: no route from here ({error.strerror})"
            ) from error
        return str(probe.getsockname()[0])


def _resolve(host: str, port: int) -> tuple[Any, ...]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise BadInput(f"--master-addr {host}: unknown host; give a name or an address") from error


def open_store(host: str, port: int, listener: socket.socket) -> TCPStore:
    """Rank 0's store, behind a socket that is already listening."""
    return TCPStore(
        host,
        port,
        world_size=None,
        is_master=True,
        timeout=timedelta(seconds=30),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def reach_store(host: str, port: int, timeout_seconds: float) -> Store:
    """Connects to rank 0's store, as soon as it is there.

    Raises:
        BadInput: nobody answers in time.
    """
    begin = time.monotonic()
    _await_listener(host, port, timeout_seconds)
    left = max(_LEAST_SECONDS, timeout_seconds - (time.monotonic() - begin))
    answer: Inbox[Store | Exception] = Inbox()
    # torch waits without limit for the first word of a server that is no store.
    threading.Thread(target=_connect, args=(host, port, left, answer), daemon=True).start()
    store = answer.take(left)
    if store is None or isinstance(store, Exception):
        raise BadInput(
            f"whatever listens at {host}:{port} is no mdgan server, or hangs; check --master-addr "
            "and --master-port"
        )
    return store


def _connect(host: str, port: int, timeout_seconds: float, answer: "Inbox[Any]") -> None:
    try:
        limit = timedelta(seconds=timeout_seconds)
        answer.put(TCPStore(host, port, None, False, timeout=limit, wait_for_workers=False))
    except (dist.DistError, RuntimeError) as error:
        answer.put(error)


def _await_listener(host: str, port: int, timeout_seconds: float) -> None:
    """Tries the port until somebody listens; torch's own attempt would log every failure."""
    family, _, _, _, address = _resolve(host, port)
    deadline = time.monotonic() + timeout_seconds
    told = time.monotonic()
    while True:
        left = deadline - time.monotonic()
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(max(0.01, min(left, _ATTEMPT_SECONDS)))
            if probe.connect_ex(address) == 0:
                return
        if left <= 0:
            raise BadInput(
                f"no server answers at {host}:{port} after {timeout_seconds:g} s; start rank 0 "
                "there, or check --master-addr, --master-port and the firewall"
            )
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            print(f"waiting for the server at {host}:{port}", file=sys.stderr, flush=True)
        time.sleep(min(_RETRY_SECONDS, max(0.0, left)))


def ask_to_join(store: Store, hello: Mapping[str, Any], timeout_seconds: float) -> str:
    """Takes a ticket, says hello and waits for the answer.

    Args:
        store: the server's.
        hello: JSON values.
        timeout_seconds: how long to wait for the answer.

    Returns:
        The name of the link to open.

    Raises:
        BadInput: refused, with the server's reason, or no answer in time.
    """
    ticket = store.add("tickets", 1)
    store.set(f"hello/{ticket}", json.dumps(hello))
    try:
        store.wait([f"answer/{ticket}"], timedelta(seconds=timeout_seconds))
    except (dist.DistError, RuntimeError) as error:
        raise BadInput(
            f"the server did not admit this host after {timeout_seconds:g} s; is it still running?"
        ) from error
    answer = json.loads(store.get(f"answer/{ticket}"))
    if "refused" in answer:
        raise BadInput(f"the server refused this host: {answer['refused']}")
    return link_name(ticket)


def corner_of(store: Store, name: str) -> Store:
    """The part of a store whose keys all begin with a name."""
    return PrefixStore(name, store)


def link_name(ticket: int) -> str:
    """The name of the link between the server and the host with a ticket."""
    return f"link/{ticket}"
