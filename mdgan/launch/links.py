"""How this machine's processes are linked with the rest: sockets, addresses, certificates."""

import contextlib
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mdgan.engine import message_sizes
from mdgan.engine.host.loop import Connect
from mdgan.errors import BadInput
from mdgan.launch import addresses
from mdgan.launch.addresses import Sockets
from mdgan.launch.prepare import Prepared
from mdgan.launch.private_folders import check_temporary
from mdgan.launch.ranks import most_ranks
from mdgan.launch.settings import LinkSettings, check_exposed, read_revocations
from mdgan.launch.task import LaunchedTask
from mdgan.launch.torchrun_store import find_place, publish_place
from mdgan.timeouts import Timeouts
from mdgan.transport.base import LOOPBACK, Admit
from mdgan.transport.host_end import HostTransport
from mdgan.transport.server_end import ServerTransport
from mdgan.transport.until import Until

if TYPE_CHECKING:
    from mdgan.transport.guard import Access

DEFAULT_PORT = 29500  # torch's usual port for rank 0


def place_for_others(prepared: Prepared, takes_over_at: str | None = None) -> str | None:
    """Where rank 0 listens for ranks of other machines; None if there are none; see `launch`."""
    settings, task = prepared.link_settings, prepared.task
    named = settings.links.listen, settings.links.master_port, settings.links.master_addr
    is_named = named != (None, None, LinkSettings().master_addr)
    is_alone = prepared.ranks.complete and len(settings.links.addresses()) == 1
    if task is None and takes_over_at is None and is_alone and not is_named:
        return None
    port = 0 if is_alone and settings.links.listen is None else DEFAULT_PORT
    port = port if settings.links.master_port is None else settings.links.master_port
    place = addresses.joined(takes_over_at or settings.links.addresses()[0], port)
    if settings.links.listen is not None:
        place = _listen_place(settings.links.listen, port)
    elif task is not None and task.store_is_up:
        place = addresses.joined(addresses.address_towards(task.master_addr, task.master_port), 0)
    free = addresses.check_free(place, settings.links.listen)
    check_exposed(addresses.split(free)[0], settings.links)
    return free


def server_places(settings: LinkSettings) -> list[str]:
    """Where the server may be: address and port of rank 0, then those of its standbys."""
    port = DEFAULT_PORT if settings.master_port is None else settings.master_port
    return [addresses.joined(address, port) for address in settings.addresses()]


def open_server(
    prepared: Prepared, places: Sequence[str], admit: Admit, timeouts: Timeouts
) -> ServerTransport:
    """Opens the server's end."""
    from mdgan.transport.grpc_server import GrpcServerTransport
    from mdgan.transport.streams import CannotListen

    check_temporary(for_sockets=True)  # a front has a folder there
    sizes = prepared.message_sizes
    settings, task = prepared.link_settings, prepared.task
    from_host = partial(message_sizes.from_host, sizes)
    between_hosts = partial(message_sizes.between_hosts, sizes)

    try:
        server = GrpcServerTransport(
            places, access(prepared, serves=True), admit, from_host, between_hosts, timeouts
        )
    except CannotListen as error:
        raise BadInput(f"{error}: cannot listen there any more; start again") from error
    is_alone = len(places) == 1 and places[0].startswith("unix:")
    server.own_address = LOOPBACK if is_alone else _towards_servers(settings.links)[0]
    if task is not None and task.store_is_up:
        publish_place(*_store(task), server.places[0], Until(timeouts.connect))
    return server


def access(prepared: Prepared, *, serves: bool) -> "Access":
    """Whom a process of this machine lets call it, and how much."""
    from mdgan.transport.guard import Access

    identity, classes = prepared.own_identity, prepared.dataset.num_classes
    return Access(
        identity,
        read_revocations(prepared.link_settings.links, identity, serves=serves),
        most_ranks(prepared.settings, prepared.launch),
        partial(message_sizes.hello_bytes, prepared.identity, classes),
    )


def connector(
    prepared: Prepared,
    workers: Sequence[int],
    sockets: Sockets | None,
    timeouts: Timeouts,
    interrupted: threading.Event,
) -> Connect:
    """What links a host with the server at first, and again after the server was lost.

    The sockets are this machine's, if the server was started here, too.
    """
    settings, task = prepared.link_settings, prepared.task
    known = server_places(settings.links)
    if sockets is None:
        check_temporary(for_sockets=True)  # a front has a folder there
    if sockets is not None:
        known = [sockets.server, *(known if len(settings.links.addresses()) > 1 else ())]
    parcels_at = _place_of_parcels(prepared, workers[0], sockets)
    sizes = prepared.message_sizes
    accepts = message_sizes.from_server(sizes, len(workers))
    is_alone = sockets is not None and sockets.alone
    own_address = LOOPBACK if is_alone else _towards_servers(settings.links)[0]

    def connect(hello: Mapping[str, Any], timeout_seconds: float) -> HostTransport:
        from mdgan.launch.find import check_generation, check_ours, find_server
        from mdgan.transport.grpc_host import GrpcHostTransport
        from mdgan.transport.streams import CannotListen

        until, allowed = Until(timeout_seconds, interrupted), access(prepared, serves=False)

        def attempt(place: str, until: Until) -> HostTransport:
            host = GrpcHostTransport(
                place,
                allowed,
                hello,
                accepts,
                message_sizes.between_hosts(sizes, len(workers)),
                *(timeouts, parcels_at, until),
            )
            with contextlib.ExitStack() as closing:
                closing.callback(host.close)
                host.own_address = own_address
                check_generation(host.welcome, hello.get("generation", 0), place)
                check_ours(place)  # another server may be there since the first look
                closing.pop_all()
            return host

        places = known
        if task is not None and task.store_is_up:
            places = [find_place(*_store(task), until)]
        shows = prepared.own_identity is not None
        try:
            return find_server(places, attempt, until, timeout_seconds, has_identity=shows)
        except CannotListen as error:
            raise BadInput(f"{error}: this host cannot listen there; start again") from error

    return connect


def _place_of_parcels(prepared: Prepared, number: int, sockets: Sockets | None) -> str | None:
    """Where a host hands out parcels; None if the server does."""
    if sockets is not None:
        return sockets.host(number) if sockets.alone else None
    towards = _towards_servers(prepared.link_settings.links)
    for address in towards:
        check_exposed(address, prepared.link_settings.links)
    return addresses.joined(towards[0], 0)


def _towards_servers(settings: LinkSettings) -> list[str]:
    """The addresses of this machine from which servers are reached."""
    towards = [
        addresses.address_towards(*addresses.split(place)) for place in server_places(settings)
    ]
    if settings.network_interface is not None:
        return [addresses.address_of_interface(settings.network_interface, towards[0])]
    return towards


def _listen_place(listen: str, port: int) -> str:
    """Reads `--listen`: an address, with a port behind a colon if it is not that of rank 0."""
    address, colon, given = listen.rpartition(":")
    if not colon or listen.endswith("]") or (listen.count(":") > 1 and not listen.startswith("[")):
        address, given = listen, str(port)
    if not address.strip("[]") or not given.isdecimal() or int(given) > 65535:
        raise BadInput(f"--listen {listen}: must be ADDRESS or ADDRESS:PORT, a port in [0, 65535]")
    return addresses.joined(address.strip("[]"), int(given))


def _store(task: LaunchedTask) -> tuple[tuple[str, int], str]:
    """Torchrun's store, and our part of it, a new one for each restart."""
    return (task.master_addr, task.master_port), f"mdgan/{task.attempt}"
