"""Processes that come to a run under way: a worker that joins, a standby for the server.

What they ask of the server before this process forks its ranks they ask in a fork, as gRPC needs
it.
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
    """Asks the server, whose folder may be here, for settings and a rank; then as `launch`.

    Args:
        check: refuses what a server asks of its hosts, if this machine does not approve of it.
    """
    own = LaunchSettings.read(settings)
    sockets = None if path is None else _sockets_of(path)
    places = server_places(own.links) if sockets is None else [sockets.server]
    shown = " or ".join(places) if path is None else str(path)
    if path is None and not settings.get("master_addr"):
        shown += f" (this machine; or {flag('master_addr')})"
    seconds = own.links.connect_timeout
    _log.info("asking the server at %s for a rank, waiting %g s for it at most", shown, seconds)
    answers: list[Mapping[str, Any]] = []
    credentials, timeouts = read_identity(own.links), own.links.timeouts()
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
        if status == 2:  # it could not join; the rank is the next one's at once
            give_back([rank], why, places, own.links)
    return status


def _check_agreed(asked: Mapping[str, Any], checked: Checked) -> None:
    """Refuses another schema than the run's, before the counts of a table are charged."""
    for name, here in checked.dataset.agreed.items():
        if asked.get(name, here) != here:
            what = flag("schema", checked.settings.data.schema)
            why = f"is not the run's schema: its {name} is {here}, rank 0 has {asked[name]!s:.64}"
            raise BadInput(what, why, "take the file of rank 0")


def of_the_run(told: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the run among what a server tells.

    Those of a machine are its user's alone: they say which files are read and written there, and
    where it is remembered what samples have spent.
    """
    declared = registry.declared_settings()
    return {n: v for n, v in told.items() if n in declared and declared[n].shared}


def _sockets_of(path: Path) -> Sockets:
    """Where the ranks of a run on this machine talk to each other."""
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
        settings: flags; settings that they do not name are the run's.

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
    own = own_addresses(checked.launch)
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
    address = next((address for address in own if address != watched), own[0])
    _log.warning("the server is gone; taking over at %s", address)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    return launch(checked, takes_over_at=address)


def own_addresses(settings: LaunchSettings) -> list[str]:
    """The addresses of this machine among those where workers look for a server."""
    addresses, given = settings.links.addresses(), flag("master_addr", settings.links.master_addr)
    if len(addresses) < 2:
        way_out = "give SERVER,STANDBY here and on every rank"
        raise BadInput(given, "names no standby", way_out)
    local = local_addresses()
    own = [address for address in addresses if address in local or address.startswith("127.")]
    if not own:
        why = f"none is an address of this machine, which has {', '.join(local)}"
        raise BadInput(given, why)
    return own


def _watch_until_it_dies(checked: Checked, interrupted: threading.Event) -> str | None:
    """Watches the server; returns its address when it has died, None if it has ended."""
    places, identity = server_places(checked.launch.links), checked.own_identity
    timeouts, watched = checked.launch.links.timeouts(), checked.launch.links.addresses()[0]
    heard: list[str] = []

    def hear(said: Any) -> None:
        nonlocal watched
        if isinstance(said, str):
            heard.append(said)
            return
        watched, generation = str(said["address"]), said["generation"]
        _log.info("standing by for the server at %s (generation %s)", watched, generation)

    watch = partial(visit, places, identity, hear=hear, interrupted=interrupted, stays=True)
    watch(timeouts)
    # Perhaps only its connection broke, or it is started anew at once.
    again = replace(timeouts, connect=_RETURN_SECONDS)
    while heard[-1] != "ended":
        try:
            watch(again)
        except BadInput:
            return watched
    return None


def decline(named: Named, error: BadInput) -> None:
    """Tells a server elsewhere why the hosts of this machine cannot take part."""
    if named.is_one_process or named.ray or (named.task and named.task.store_is_up):
        return
    with suppress(BadInput):
        ranks = local_ranks(named.draft, named.launch, named.task)
        if ranks.hosts and not ranks.serves:
            places, why = server_places(named.links), error.told_elsewhere
            give_back(ranks.workers(), why, places, named.links)


def give_back(ranks: Sequence[int], why: str, places: Sequence[str], links: LinkSettings) -> None:
    """Tells the server that ranks which it may have promised do not come, for this reason."""
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
    """Asks a server, which may be at any of some places, and hears what it answers."""

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
        in_forks([call], lambda _, said: hear(said), interrupted)
    except ForkFailed as error:
        what = f"the process that asks the server failed ({error})"
        raise BadInput(what, way_out="start again") from error
