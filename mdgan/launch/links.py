"""How this machine's processes are linked with the rest: addresses, the token, the limits."""

import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from mdgan.engine import message_sizes
from mdgan.engine.host.loop import Connect
from mdgan.launch.prepare import Prepared
from mdgan.launch.settings import LaunchSettings, check_exposed
from mdgan.launch.task import Task
from mdgan.timeouts import Timeouts
from mdgan.transport.agent_store import find_door, publish_door
from mdgan.transport.base import Admit
from mdgan.transport.dial import Address
from mdgan.transport.rendezvous import address_of_interface, address_towards, listen
from mdgan.transport.tcp_host import TcpHostTransport
from mdgan.transport.tcp_server import TcpServerTransport
from mdgan.transport.until import Until

DEFAULT_PORT = 29500
"""torch's usual port for rank 0."""


def server_addresses(settings: LaunchSettings, port: int | None = None) -> list[Address]:
    """Where the server may be.

    Args:
        settings: names it.
        port: if only the launcher knows it.
    """
    if port is None:
        port = settings.master_port
    port = DEFAULT_PORT if port is None else port
    return [(address, port) for address in settings.addresses()]


def own_addresses(addresses: Sequence[Address], settings: LaunchSettings) -> list[str]:
    """Where the hosts of this machine listen for each other.

    Args:
        addresses: where the server may be.
        settings: may name a network interface.

    Raises:
        BadInput: an address is unknown, or the interface has none that fits.
    """
    towards = [address_towards(*address) for address in addresses]
    if settings.network_interface is None:
        return towards
    return [address_of_interface(settings.network_interface, towards[0])]


def open_server(
    prepared: Prepared, listener: socket.socket | None, admit: Admit, timeouts: Timeouts
) -> TcpServerTransport:
    """Opens the server's end.

    Args:
        prepared: the checked run.
        listener: bound and listening; None if torchrun serves a store on rank 0's port.
        admit: see `TcpServerTransport`.
        timeouts: the time limits.

    Raises:
        BadInput: others could reach it and nothing guards it, or the token cannot be read.
    """
    if listener is None:
        assert prepared.task is not None
        listener = _listen_beside_store(prepared.task, prepared.link_settings, timeouts)
    check_exposed([listener.getsockname()[0]], prepared.link_settings)
    sizes = prepared.builder.message_sizes(prepared.settings, prepared.dataset)

    def accepts_from(hello: Mapping[str, Any]) -> Mapping[str, int]:
        counts: Mapping[str, int] = hello["num_samples"]
        return message_sizes.from_host(
            sizes, [int(counts[str(worker)]) for worker in hello["workers"]]
        )

    return TcpServerTransport(listener, prepared.token, admit, accepts_from, timeouts)


def connector(
    prepared: Prepared,
    workers: Sequence[int],
    port: int | None,
    timeouts: Timeouts,
    interrupted: threading.Event,
) -> Connect:
    """What links a host with the server at first, and again after the server was lost.

    Args:
        prepared: the checked run.
        workers: the ranks that the host carries.
        port: of the server, if only the launcher knows it.
        timeouts: the time limits.
        interrupted: set to give up.

    Returns:
        What `Host` calls; it raises BadInput and Interrupted as `TcpHostTransport` does.

    Raises:
        BadInput: an address is unknown, the token cannot be read, or others could reach this host
            and nothing guards it.
    """
    settings, task = prepared.link_settings, prepared.task
    addresses = server_addresses(settings, port)
    own = own_addresses(addresses, settings)
    check_exposed(own, settings)
    listen_address = own[0] if settings.network_interface is not None else None
    sizes = prepared.builder.message_sizes(prepared.settings, prepared.dataset)
    samples = [len(prepared.holdings[worker][1]) for worker in workers]

    def connect(hello: Mapping[str, Any], timeout_seconds: float) -> TcpHostTransport:
        places = addresses
        if task is not None and task.store_is_up:
            until = Until(timeout_seconds, interrupted)
            places = [find_door(addresses[0], _corner(task), until)]
        return TcpHostTransport(
            places,
            prepared.token,
            hello,
            message_sizes.from_server(sizes, samples),
            sizes.between_hosts(len(workers)),
            timeouts,
            listen_address,
            interrupted,
            timeout_seconds,
        )

    return connect


def _listen_beside_store(task: Task, settings: LaunchSettings, timeouts: Timeouts) -> socket.socket:
    """Listens on a free port of the address that reaches torchrun's store, and says so there."""
    master = (task.master_addr, task.master_port)
    address = address_towards(*master)
    check_exposed([address], settings)
    listener = listen(address, 0)
    publish_door(
        master, _corner(task), (address, listener.getsockname()[1]), Until(timeouts.connect)
    )
    return listener


def _corner(task: Task) -> str:
    """Our part of torchrun's store, a new one for each restart."""
    return f"mdgan/{task.attempt}"
