"""What the process of rank 0 does."""

import socket
from typing import Any

import torch

from mdgan.engine.server.checkpoints import Saving, whereabouts
from mdgan.engine.server.deadline import Deadline
from mdgan.engine.server.loop import Server
from mdgan.engine.server.membership import Roster
from mdgan.engine.server.scoring import Scoring
from mdgan.engine.server.screening import Screening
from mdgan.families.family import server_family
from mdgan.launch import machine
from mdgan.launch.claim import Claim, make_observer, timeouts_of
from mdgan.launch.links import open_server
from mdgan.launch.prepare import Plan
from mdgan.launch.scorer_process import scoring_process
from mdgan.launch.signals import on_stop_signals
from mdgan.settings.config import as_settings
from mdgan.settings.deployment import parse_deadline
from mdgan.timeouts import Timeouts
from mdgan.transport.base import ServerTransport


def run_server(plan: Plan, claimed: Claim, listener: socket.socket | None) -> None:
    """Is rank 0 over the network.

    Args:
        plan: the checked run.
        claimed: its folder.
        listener: the bound socket that hosts connect to; None where torchrun tells them.
    """
    with scoring_process(plan, claimed.run, [listener] if listener else []) as scoring:
        torch.set_num_threads(machine.server_threads(plan.deployment))
        process_here = plan.torchrun.process_here if plan.torchrun else 0
        device = machine.resolve_device(plan.deployment.device, process_here)
        roster = make_roster(plan, claimed, listener.getsockname()[0] if listener else "")
        timeouts = timeouts_of(plan)
        transport = open_server(plan, listener, roster.admit, timeouts)
        serve(plan, claimed, transport, roster, scoring, timeouts, device)


def make_roster(plan: Plan, claimed: Claim, address: str = "") -> Roster:
    """Who may take part, and what everybody is told who does.

    Args:
        plan: the checked run.
        claimed: its folder.
        address: where the server listens, for a standby.
    """
    told: dict[str, Any] = {
        "generation": claimed.fence.generation,
        "run": claimed.run.path.name,
        "address": address,
        "wants_states": plan.deployment.checkpoint_to_server,
    }
    everybody = range(1, plan.experiment.num_workers + 1)
    return_seconds = plan.deployment.liveness_timeout  # for a lost worker to come back to its rank
    if claimed.goes_on is None:
        return Roster(everybody, plan.identity, told, return_seconds)
    manifest = claimed.goes_on.manifest
    expected = manifest.workers if claimed.takes_over else everybody
    roster = Roster(expected, plan.identity, told, return_seconds, manifest.iteration)
    roster.checkpoint = whereabouts(manifest)
    return roster


def serve(
    plan: Plan,
    claimed: Claim,
    transport: ServerTransport,
    roster: Roster,
    scoring: Scoring,
    timeouts: Timeouts,
    device: torch.device,
) -> None:
    """Is the server, whatever carries its messages."""
    on_stop_signals(transport.interrupt, scoring.abandon)
    experiment, deployment = plan.experiment, plan.deployment
    brought = server_family(plan, device)
    observer = make_observer(plan, claimed, brought.generator)
    goes_on = claimed.goes_on
    saving = Saving(
        claimed.checkpoints(plan),
        interval=deployment.checkpoint_interval,
        iterations=experiment.iterations,
        to_server=deployment.checkpoint_to_server,
        settings=as_settings(experiment, deployment),
        fence=claimed.fence,
        observer=observer,
        committed=None if goes_on is None else goes_on.manifest,
    )
    server = Server(
        experiment,
        brought.family,
        transport,
        roster,
        Deadline(*(parse_deadline(deployment.deadline) or (0.0, 0.0)), deployment.quorum),
        Screening(brought.family.form.sample_shape, deployment.strikes),
        saving,
        scoring,
        observer,
        timeouts,
    )
    if goes_on is not None:
        goes_on.restore(server.load_state)
        server.go_on(goes_on.manifest, goes_on.swap_every(), replaces_another=claimed.takes_over)
    server.run()
