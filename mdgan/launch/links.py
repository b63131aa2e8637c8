"""Opens the links between server and hosts, and decides which hosts the server lets in."""

import contextlib
import logging
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mdgan.credentials.revocations import Revocations
from mdgan.engine import message_sizes
from mdgan.engine.hello import MOST_CLASSES, Owner
from mdgan.engine.host.loop import Connect
from mdgan.engine.server.admission import Admission
from mdgan.errors import BadInput
from mdgan.launch import addresses
from mdgan.launch.addresses import Sockets
from mdgan.launch.checked import Checked
from mdgan.launch.claim import Claim
from mdgan.launch.ranks import most_ranks
from mdgan.launch.settings import LinkSettings, check_exposed, read_revocations
from mdgan.launch.task import LaunchedTask
from mdgan.storage.private_folders import check_temporary
from mdgan.timeouts import Timeouts
from mdgan.transport.base import LOOPBACK, Admit
from mdgan.transport.host_end import HostTransport
from mdgan.transport.server_end import ServerTransport
from mdgan.transport.torchrun_store import find_place, publish_place
from mdgan.transport.until import Until

if TYPE_CHECKING:
    from mdgan.transport.guard import Access

_log = logging.getLogger(__name__)

DEFAULT_PORT = 29500  # torch's usual port for rank 0


def place_for_others(checked: Checked, takes_over_at: str | None = None) -> str | None:
    """Where rank 0 listens for other machines; None if no rank runs there. See `launch`."""
    links, task = checked.links, checked.task
    named = links.listen, links.master_port, links.master_addr
    is_named = named != (None, None, LinkSettings().master_addr)
    is_alone = checked.ranks.complete and len(links.addresses()) == 1
    if task is None and takes_over_at is None and is_alone and not is_named:
        return None
    port = 0 if is_alone and links.listen is None else DEFAULT_PORT
    port = port if links.master_port is None else links.master_port
    place = addresses.joined(takes_over_at or links.addresses()[0], port)
    if links.listen is not None:
        place = addresses.listen_place(links.listen, port)
    elif task is not None and task.store_is_up:
        place = addresses.joined(addresses.address_towards(task.master_addr, task.master_port), 0)
    free = addresses.check_free(place, links.listen)
    check_exposed(addresses.split(free)[0], links)
    return free


def server_places(settings: LinkSettings) -> list[str]:
    """Addresses and ports where the server may be: those of rank 0, then those of standbys."""
    port = DEFAULT_PORT if settings.master_port is None else settings.master_port
    return [addresses.joined(address, port) for address in settings.addresses()]


def open_server(
    checked: Checked, places: Sequence[str], admit: Admit, timeouts: Timeouts
) -> ServerTransport:
    """Opens the server's end of all links; BadInput if it cannot listen at one of the places."""
    from mdgan.transport.grpc_server import GrpcServerTransport
    from mdgan.transport.streams import CannotListen

    check_temporary(for_sockets=True)  # a front has a folder there
    sizes = checked.message_sizes
    links, task = checked.links, checked.task
    try:
        server = GrpcServerTransport(
            places,
            access=access(checked, serves=True),
            admit=admit,
            accepts_from=partial(message_sizes.from_host, sizes),
            parcels_from=partial(message_sizes.between_hosts, sizes),
            timeouts=timeouts,
        )
    except CannotListen as error:
        raise BadInput(error, "cannot listen there any more", "start again") from error
    is_alone = len(places) == 1 and places[0].startswith("unix:")
    server.own_address = LOOPBACK if is_alone else _towards_servers(links)[0]
    if task is not None and task.store_is_up:
        publish_place(*_torchrun_store(task), server.places[0], Until(timeouts.connect))
    return server


def access(checked: Checked, *, serves: bool) -> "Access":
    """Who may call a process of this machine, and how large a first message may be."""
    from mdgan.transport.guard import Access

    identity, classes = checked.own_identity, checked.dataset.num_classes
    return Access(
        identity,
        read_revocations(checked.links, identity, serves=serves),
        most_ranks(checked.settings, checked.launch),
        partial(message_sizes.hello_bytes, checked.identity, classes),
    )


def connector(
    checked: Checked,
    workers: Sequence[int],
    sockets: Sockets | None,
    timeouts: Timeouts,
    interrupted: threading.Event,
) -> Connect:
    """Makes the function that links a host with the server, at first and after it was lost."""
    links, task = checked.links, checked.task
    known = server_places(links)
    if sockets is None:
        check_temporary(for_sockets=True)  # a front has a folder there
    else:
        known = [sockets.server, *(known if len(links.addresses()) > 1 else ())]
    parcels_at = _place_of_parcels(checked, workers[0], sockets)
    sizes = checked.message_sizes
    is_alone = sockets is not None and sockets.alone
    own_address = LOOPBACK if is_alone else _towards_servers(links)[0]

    def connect(hello: Mapping[str, Any], timeout_seconds: float) -> HostTransport:
        from mdgan.transport.find import check_generation, check_ours, find_server
        from mdgan.transport.grpc_host import GrpcHostTransport
        from mdgan.transport.streams import CannotListen

        until, allowed = Until(timeout_seconds, interrupted), access(checked, serves=False)

        def attempt(place: str, until: Until) -> HostTransport:
            host = GrpcHostTransport(
                place,
                access=allowed,
                hello=hello,
                accepts=message_sizes.from_server(sizes, len(workers)),
                accepts_from_hosts=message_sizes.between_hosts(sizes, len(workers)),
                timeouts=timeouts,
                parcels_at=parcels_at,
                until=until,
            )
            with contextlib.ExitStack() as closing:
                closing.callback(host.close)
                host.own_address = own_address
                check_generation(host.welcome, hello.get("generation", 0), place)
                check_ours(place)  # meanwhile another server may have taken the socket
                closing.pop_all()
            return host

        places = known
        if task is not None and task.store_is_up:
            places = [find_place(*_torchrun_store(task), until)]
        shows = checked.own_identity is not None
        try:
            return find_server(places, attempt, until, timeout_seconds, has_identity=shows)
        except CannotListen as error:
            raise BadInput(error, "this host cannot listen there", "start again") from error

    return connect


def _place_of_parcels(checked: Checked, number: int, sockets: Sockets | None) -> str | None:
    """Where a host hands out parcels to other hosts; None if the server passes them on."""
    if sockets is not None:
        return sockets.host(number) if sockets.alone else None
    towards = _towards_servers(checked.links)
    for address in towards:
        check_exposed(address, checked.links)
    return addresses.joined(towards[0], 0)


def _towards_servers(settings: LinkSettings) -> list[str]:
    """The addresses of this machine from which it calls servers."""
    towards = [
        addresses.address_towards(*addresses.split(place)) for place in server_places(settings)
    ]
    if settings.network_interface is not None:
        return [addresses.address_of_interface(settings.network_interface, towards[0])]
    return towards


def _torchrun_store(task: LaunchedTask) -> tuple[tuple[str, int], str]:
    """Address and port of torchrun's store, and the key of the server's place, new each restart."""
    return (task.master_addr, task.master_port), f"mdgan/{task.attempt}"


def make_admission(checked: Checked, claimed: Claim) -> Admission:
    """Makes the part of the server that lets hosts in, with the welcome that it sends them."""
    welcome: dict[str, Any] = {
        "generation": claimed.fence.generation,
        "run": claimed.run.path.resolve().name,
        "run_id": claimed.run_id,
        "address": addresses.split(claimed.listens)[0] if claimed.listens else "",
        "wants_states": checked.settings.checkpoints.checkpoint_to_server,
        "brings_states": _brings_states(checked),
    }
    revocations = read_revocations(checked.links, checked.own_identity)
    workers = checked.settings.num_workers if checked.algorithm.has_hosts else 0
    expected = set(range(1, workers + 1))
    manifest = None if claimed.goes_on is None else claimed.goes_on.manifest
    on_their_way = set(checked.ranks.workers())
    owners: dict[int, Owner] = {}
    if manifest is not None:
        owners = {int(n): Owner("", *known) for n, known in manifest.owners.items()}
        if claimed.takes_over:
            expected = on_their_way = set(manifest.workers)
        revoked = _revoked(revocations, owners) & expected
        expected, owners = expected - revoked, {n: owners[n] for n in owners.keys() - revoked}
    return Admission(
        workers=expected,
        identity=checked.identity,
        welcome=welcome,
        return_seconds=checked.launch.links.liveness_timeout,
        iteration=0 if manifest is None else manifest.iteration,
        most_ranks=most_ranks(checked.settings, checked.launch),
        checkpoint=None if manifest is None else manifest.whereabouts(),
        trusts=checked.credentials,
        owners=owners,
        on_their_way=on_their_way,
        most_classes=max(MOST_CLASSES, checked.dataset.num_classes or 0),
        revoked=revocations,
    )


def _revoked(revocations: Revocations, owners: Mapping[int, Owner]) -> set[int]:
    """Finds ranks of a resumed run whose certificates were revoked; it goes on without them."""
    revoked = {n for n, owner in owners.items() if int(owner.serial or "0", 16) in revocations}
    if revoked:
        ranks = ",".join(map(str, sorted(revoked)))
        why = "whose certificates are revoked; their discriminators are left out"
        _log.info("going on without rank(s) %s, %s", ranks, why)
    return revoked


def _brings_states(checked: Checked) -> bool:
    """Whether the server sends workers the discriminators with which they begin."""
    if checked.continues is not None:  # the server sent them when the run was new
        return checked.settings.training.init_from is not None
    return checked.beginning is not None and bool(checked.beginning.discriminators)
