"""Starts this machine's ranks: in one process, as forks, as a task of a launcher, or by Ray."""

import contextlib
import logging
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from mdgan.launch.addresses import Sockets, make_private_folder
from mdgan.launch.children import SERVER_NAME, ChildProcesses, run_guarded
from mdgan.launch.claim import Claim, claim, resumed_or_started
from mdgan.launch.links import place_for_others, server_places
from mdgan.launch.machine import check_open_files
from mdgan.launch.minder import end_with_input
from mdgan.launch.prepare import Prepared
from mdgan.launch.processes import run_everything, run_host, run_server
from mdgan.launch.task import LaunchedTask

_log = logging.getLogger(__name__)


def launch(prepared: Prepared, takes_over_at: str | None = None) -> int:
    """Runs this machine's ranks to the end.

    Args:
        takes_over_at: the address where workers will look for a server that replaces a dead one.

    Returns:
        The exit status: 0 done, 1 failed, 2 bad input, 128 + n ended by signal n.
    """
    check_open_files()
    if prepared.resumes_or_starts:
        going = resumed_or_started(prepared)
        if going is None:
            return 0
        prepared = going
    if prepared.launch.transport == "memory" or not prepared.algorithm.has_hosts:
        end_with_input()
        claimed = claim(prepared)
        with claimed.noting_failure():
            return run_guarded(partial(run_everything, prepared, claimed))
    if prepared.ray is not None:
        from mdgan.launch.ray import launch_by_ray

        return launch_by_ray(prepared, prepared.ray)
    if prepared.task is not None:
        return _run_task(prepared, prepared.task)
    return _fork_all(prepared, takes_over_at)


def _run_task(prepared: Prepared, task: LaunchedTask) -> int:
    """Runs the one role of a process that another program has started."""
    if not prepared.ranks.serves:
        (workers,) = prepared.ranks.hosts
        return run_guarded(partial(run_host, prepared, workers, None, task.process_here))
    place = place_for_others(prepared)
    assert place is not None
    claimed = claim(prepared, place)
    started = f"{task.num_processes} processes by {task.launcher}"
    _log.info("starting %s for %s, others may join at %s", started, claimed.run.path, place)
    with claimed.noting_failure():
        return run_guarded(partial(run_server, prepared, claimed, [place]))


def _fork_all(prepared: Prepared, takes_over_at: str | None) -> int:
    # The first optimizer step would import it in every process, over a second each.
    import torch._dynamo  # noqa: F401

    with contextlib.ExitStack() as resources:
        sockets, run = prepared.sockets, None
        carried = ", ".join(map(str, prepared.ranks.workers()))
        work: list[tuple[str, Callable[[], None]]] = []
        if prepared.ranks.serves:
            other = place_for_others(prepared, takes_over_at)
            folder = Path(resources.enter_context(make_private_folder()))
            sockets = Sockets(folder, alone=other is None)
            claimed = claim(
                prepared, other or "", sockets.server, taking_over=takes_over_at is not None
            )
            resources.enter_context(claimed.noting_failure())
            run = claimed.run.path
            count = prepared.ranks.num_processes
            processes = "1 process" if count == 1 else f"{count} processes"
            joining = "on this machine" if other is None else f"at {other}"
            _log.info("starting %s for %s, others may join %s", processes, run, joining)
            places = [sockets.server, *([other] if other is not None else ())]
            work.append((SERVER_NAME, partial(_serve_from, sockets, prepared, claimed, places)))
        else:
            places = (
                server_places(prepared.launch.links) if sockets is None else [str(sockets.folder)]
            )
            server = " or ".join(places)
            _log.info("starting rank %s; waiting for the server at %s", carried, server)
        for index, workers in enumerate(prepared.ranks.hosts):
            name = "rank " + "-".join(map(str, sorted({workers[0], workers[-1]})))
            process_here = index + prepared.ranks.serves
            work.append((name, partial(run_host, prepared, workers, sockets, process_here, run)))
        has_standbys = len(prepared.launch.links.addresses()) > 1
        status = ChildProcesses(has_standbys=has_standbys).run(work)
        if not prepared.ranks.serves:
            _log.info("rank %s ended with status %d", carried, status, extra={"shown": "result"})
        return status


def _serve_from(
    sockets: Sockets, prepared: Prepared, claimed: Claim, places: Sequence[str]
) -> None:
    """Runs the server; its sockets go with it, as the launcher may have been killed by then."""
    try:
        run_server(prepared, claimed, places)
    finally:
        shutil.rmtree(sockets.folder, ignore_errors=True)
