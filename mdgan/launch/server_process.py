"""What the process of rank 0 does."""

import socket
from typing import Any

import torch

from mdgan.engine.server.build import build_server
from mdgan.engine.server.checkpoints import ServerCheckpoints, whereabouts
from mdgan.engine.server.membership import Membership
from mdgan.engine.server.scoring import Scoring
from mdgan.launch import machine
from mdgan.launch.claim import Claim, make_observer, timeouts_of
from mdgan.launch.links import open_server
from mdgan.launch.prepare import Prepared
from mdgan.launch.scorer_process import scoring_process
from mdgan.launch.signals import on_stop_signals
from mdgan.timeouts import Timeouts
from mdgan.transport.base import ServerTransport


def run_server(prepared: Prepared, claimed: Claim, listener: socket.socket | None) -> None:
    """Runs rank 0 over the network.

    Args:
        prepared: the checked run.
        claimed: its folder.
        listener: the bound socket that hosts connect to; None where torchrun tells them.
    """
    with scoring_process(prepared, claimed.run, [listener] if listener else []) as scoring:
        torch.set_num_threads(machine.server_threads(prepared.launch))
        process_here = prepared.torchrun.process_here if prepared.torchrun else 0
        device = machine.resolve_device(prepared.launch.device, process_here)
        members = make_membership(prepared, claimed, listener.getsockname()[0] if listener else "")
        timeouts = timeouts_of(prepared)
        transport = open_server(prepared, listener, members.admit, timeouts)
        serve(prepared, claimed, transport, members, scoring, timeouts, device)


def make_membership(prepared: Prepared, claimed: Claim, address: str = "") -> Membership:
    """Who may take part, and what every newcomer is told.

    Args:
        prepared: the checked run.
        claimed: its folder.
        address: where the server listens, for a standby.
    """
    told: dict[str, Any] = {
        "generation": claimed.fence.generation,
        "run": claimed.run.path.name,
        "address": address,
        "wants_states": prepared.settings.checkpoint_to_server,
    }
    workers = prepared.settings.num_workers if prepared.algorithm.has_hosts else 0
    all_ranks = range(1, workers + 1)
    return_seconds = prepared.launch.liveness_timeout  # for a lost worker to come back to its rank
    if claimed.goes_on is None:
        return Membership(all_ranks, prepared.identity, told, return_seconds)
    manifest = claimed.goes_on.manifest
    expected = manifest.workers if claimed.takes_over else all_ranks
    members = Membership(expected, prepared.identity, told, return_seconds, manifest.iteration)
    members.checkpoint = whereabouts(manifest)
    return members


def serve(
    prepared: Prepared,
    claimed: Claim,
    transport: ServerTransport,
    members: Membership,
    scoring: Scoring,
    timeouts: Timeouts,
    device: torch.device,
) -> None:
    """Runs the server, whatever carries its messages."""
    on_stop_signals(transport.interrupt, scoring.abandon)
    settings, goes_on = prepared.settings, claimed.goes_on
    shards = {} if prepared.algorithm.has_hosts else {1: prepared.shard(1)}
    part = prepared.builder.server(settings, prepared.dataset, device, shards)
    observer = make_observer(prepared, claimed, part.generator)
    checkpoints = ServerCheckpoints(
        claimed.checkpoints(prepared),
        settings,
        prepared.config,
        claimed.fence,
        members,
        observer,
        None if goes_on is None else goes_on.manifest,
    )
    server = build_server(
        part, settings, transport, members, checkpoints, scoring, observer, timeouts
    )
    if goes_on is not None:
        goes_on.restore(server.load_state)
        replaces = claimed.takes_over
        server.go_on(goes_on.manifest, goes_on.changed, replaces_another=replaces)
    server.run()
