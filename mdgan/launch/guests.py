"""Processes that come to a run under way: a worker that joins, or a standby for the server.

Both call the server before this process forks its ranks. gRPC does not survive a fork, so they make
these calls in a fork that ends afterwards.
"""

import logging
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mdgan.credentials.identity import OwnIdentity
from mdgan.errors import ITS_MACHINE_SAYS, BadInput, Interrupted
from mdgan.families import registry
from mdgan.launch.addresses import Sockets, local_addresses
from mdgan.launch.checked import Checked, prepare
from mdgan.launch.forks import ForkFailed, ForkParent, in_forks
from mdgan.launch.given import Given, Named
from mdgan.launch.launcher import STOPPED, launch
from mdgan.launch.links import server_places
from mdgan.launch.processes import on_stop_signals
from mdgan.launch.ranks import local_ranks
from mdgan.launch.settings import LaunchSettings, LinkSettings, read_identity, without_other_guards
from mdgan.records.run_directory import RunDirectory
from mdgan.spelling import command, flag
from mdgan.storage.private_folders import NotPrivate, check_socket
from mdgan.timeouts import Timeouts
from mdgan.transport.until import Until
from mdgan.version import SERIES

_log = logging.getLogger(__name__)

_RETURN_SECONDS = 2.0
_GIVE_BACK_SECONDS = 5.0


def join(
    settings: Mapping[str, Any],
    launched: float,
    path: Path | None = None,
    check: Callable[[Mapping[str, Any]], None] = lambda _asked: None,
) -> int:
    """Gets settings and a rank from a run's server, and runs a worker; returns as `launch` does.

    Args:
        path: the run's folder, if the server runs on this machine; None to call it by network.
        check: gets the identity of the run; refuses it if this machine does not approve of it.
    """
    links = LaunchSettings.read(settings).links
    sockets = None if path is None else _sockets_of(path)
    places = server_places(links) if sockets is None else [sockets.server]
    shown = " or ".join(places) if path is None else str(path)
    if path is None and not settings.get("master_addr"):
        shown += f" (this machine; or {flag('master_addr')})"
    seconds = links.connect_timeout
    _log.info("asking the server at %s for a rank, waiting %g s for it at most", shown, seconds)
    answers: list[Mapping[str, Any]] = []
    credentials, timeouts = read_identity(links), links.timeouts()
    visit(places, credentials, timeouts, hear=answers.append)
    identity, rank = answers[0]["identity"], int(answers[0]["rank"])
    status, why = 2, ITS_MACHINE_SAYS
    try:
        theirs = identity.get("version")
        if theirs != SERIES:
            what = f"the server runs mdgan {theirs!s:.30}, this machine {SERIES}"
            raise BadInput(what, way_out="install the same version on every machine")
        check(identity)
        checked = prepare(Given([settings, of_the_run(identity)], launched=launched, joins_as=rank))
        _check_agreed(identity, checked)
        for warning in checked.warnings:
            _log.warning("warning: %s", warning)
        run = checked.settings
        if run.data.partition.divides and rank > run.num_workers and not checked.clients:
            _log.info(
                "rank %d holds all %s samples of %s: %s has divided them among ranks 1..%d "
                f"already; give it data of its own with {flag('data_dir')}",
                rank,
                f"{len(checked.holdings[rank][1]):,}",
                checked.dataset.name,
                flag("partition", run.data.partition),
                run.num_workers,
            )
        status = launch(replace(checked, sockets=sockets))
    except BadInput as error:
        why = error.told_elsewhere
        raise
    finally:
        if status == 2:  # it could not join, so the server may give the rank to another at once
            give_back([rank], why, places, links)
    return status


def _check_agreed(identity: Mapping[str, Any], checked: Checked) -> None:
    """Refuses another schema than the run's, before the ledger is charged for a table's counts."""
    for name, local in checked.dataset.agreed.items():
        if identity.get(name, local) != local:
            what = flag("schema", checked.settings.data.schema)
            why = (
                f"is not the run's schema: its {name} is {local}, rank 0 has {identity[name]!s:.64}"
            )
            raise BadInput(what, why, "take the file of rank 0")


def of_the_run(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the settings of the run from what a server sends.

    Only the user of a machine may set that machine's own settings: they name the files that mdgan
    reads and writes there, and the ledger of what samples have spent.
    """
    declared = registry.declared_settings()
    return {n: v for n, v in identity.items() if n in declared and declared[n].shared}


def _sockets_of(path: Path) -> Sockets:
    """Finds the sockets of a run whose server runs on this machine; BadInput if it does not."""
    status = RunDirectory.open(path).read_status()
    place = Path(status.get("socket", "").removeprefix("unix:"))
    try:
        if is_there := place.is_socket():
            check_socket(str(place))
    except (PermissionError, NotPrivate) as error:
        why = f" ({error})" if isinstance(error, NotPrivate) else ""
        alone = f"is of another user, who alone may add workers to it on its machine{why}"
        raise BadInput(path, alone) from error
    if not is_there and status.get("state") == "finished":
        goes_on = command("resume", path, iterations="N")
        way_out = f"once `{goes_on}` goes on with it, it may be joined again"
        raise BadInput(path, "its training is over", way_out)
    if not is_there:
        way_out = f"give {flag('master_addr')} of its machine"
        raise BadInput(path, "no server runs there on this machine", way_out)
    return Sockets(place.parent, alone=not status.get("listens"))


def stand_by(path: Path, settings: Mapping[str, Any], launched: float) -> int:
    """Watches the server of a run until it ends, and takes over if it dies.

    Args:
        path: the run's folder, shared with the server, or a replica of it.
        settings: the user's flags; all other settings are the run's.

    Returns:
        The exit status: 0 if the server ended by itself, else as `launch`.
    """
    config = RunDirectory.open(path).read_config()
    has_hosts = registry.chosen_algorithm([config]).has_hosts
    if config.get("transport") == "memory" or not has_hosts:
        raise BadInput(path, "runs in one process, so no standby can take over")
    settings = {**{k: v for k, v in settings.items() if v is not None}, "ranks": "0"}
    theirs = without_other_guards(settings, config)
    checked = prepare(Given([settings, theirs], launched=launched, continues=path))
    addresses = own_addresses(checked.launch)
    interrupted = threading.Event()
    on_stop_signals(interrupted.set)
    try:
        watched = _watch_until_it_dies(checked, interrupted)
    except Interrupted:
        return STOPPED
    if watched is None:
        _log.info(
            "the server has ended; nothing is left to stand by for", extra={"shown": "result"}
        )
        return 0
    address = next((each for each in addresses if each != watched), addresses[0])
    _log.warning("the server is gone; taking over at %s", address)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    return launch(checked, takes_over_at=address)


def own_addresses(settings: LaunchSettings) -> list[str]:
    """This machine's addresses among those of `--master-addr`; BadInput if there are none."""
    addresses, named = settings.links.addresses(), flag("master_addr", settings.links.master_addr)
    if len(addresses) < 2:
        way_out = "give SERVER,STANDBY here and on every rank"
        raise BadInput(named, "names no standby", way_out)
    local = local_addresses()
    local_ones = [each for each in addresses if each in local or each.startswith("127.")]
    if not local_ones:
        why = f"none is an address of this machine, which has {', '.join(local)}"
        raise BadInput(named, why)
    return local_ones


def _watch_until_it_dies(checked: Checked, interrupted: threading.Event) -> str | None:
    """Watches the server; returns its address when it has died, None if it ended by itself."""
    places, identity = server_places(checked.launch.links), checked.own_identity
    timeouts, watched = checked.launch.links.timeouts(), checked.launch.links.addresses()[0]
    outcomes: list[str] = []

    def hear(message: Any) -> None:
        nonlocal watched
        if isinstance(message, str):
            outcomes.append(message)
            return
        watched, generation = str(message["address"]), message["generation"]
        _log.info("standing by for the server at %s (generation %s)", watched, generation)

    watch = partial(visit, places, identity, hear=hear, interrupted=interrupted, stays=True)
    watch(timeouts)
    # Perhaps only the connection broke, or a supervisor restarts the server at once.
    again = replace(timeouts, connect=_RETURN_SECONDS)
    while outcomes[-1] != "ended":
        try:
            watch(again)
        except BadInput:
            return watched
    return None


def decline(named: Named, error: BadInput) -> None:
    """Sends a server elsewhere the reason why the hosts of this machine cannot take part."""
    if named.is_one_process or named.ray or (named.task and named.task.store_is_up):
        return
    with suppress(BadInput):
        ranks = local_ranks(named.draft, named.launch, named.task)
        if ranks.hosts and not ranks.serves:
            places, why = server_places(named.links), error.told_elsewhere
            give_back(ranks.workers(), why, places, named.links)


def give_back(ranks: Sequence[int], why: str, places: Sequence[str], links: LinkSettings) -> None:
    """Returns ranks to the server, which may have promised them, with the reason."""
    soon = replace(links.timeouts(), connect=_GIVE_BACK_SECONDS)
    with suppress(BadInput):
        visit(places, read_identity(links), soon, hear=lambda _: None, gives_back=ranks, why=why)


def visit(
    places: Sequence[str],
    identity: OwnIdentity | None,
    timeouts: Timeouts,
    *,
    hear: Callable[[Any], None],
    interrupted: threading.Event | None = None,
    gives_back: Sequence[int] = (),
    why: str = "",
    stays: bool = False,
) -> None:
    """Calls the server at one of some places from a fork, and passes its answers to `hear`.

    Args:
        gives_back: ranks to return to it instead of asking for one, with the reason `why`.
        stays: whether to watch the server until it ends, instead of asking it once.
    """

    def call(parent: ForkParent) -> None:
        from mdgan.transport.find import find_server
        from mdgan.transport.visit import ask, watch

        def attempt(place: str, until: Until) -> Any:
            if stays:
                return watch(place, identity, timeouts, until, parent.tell)
            return ask(place, identity, timeouts, until, gives_back, why)

        parent.end_with_it()
        limit, has_identity = timeouts.connect, identity is not None
        parent.tell(find_server(places, attempt, Until(limit), limit, has_identity=has_identity))

    try:
        in_forks([call], lambda _, answer: hear(answer), interrupted)
    except ForkFailed as error:
        what = f"the process that asks the server failed ({error})"
        raise BadInput(what, way_out="start again") from error
