"""The run's folder becomes this server's: a new one, or one that goes on."""

import logging
import os
import socket
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from torch import nn

from mdgan import __version__
from mdgan.launch.continuation import Continuation, continuation
from mdgan.launch.faults import SERVER
from mdgan.launch.prepare import Prepared
from mdgan.observe.run_observer import RunObserver
from mdgan.observe.tensorboard import TensorBoardWriter
from mdgan.records.run_directory import RunDirectory
from mdgan.storage.checkpoints import Checkpoints
from mdgan.storage.fence import Fence

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Claim:
    """A run's folder, which the process with the generator holds.

    Attributes:
        run: the folder.
        fence: tells whether another server has taken over since.
        goes_on: where training goes on, unless the run is new.
        takes_over: whether this server replaces one that may seem to live but does not answer.
        listens: address and port that workers connect to; empty if all are in this process.
    """

    run: RunDirectory
    fence: Fence
    goes_on: Continuation | None
    takes_over: bool
    listens: str

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return 0.0 if self.goes_on is None else self.goes_on.manifest.seconds

    def checkpoints(self, prepared: Prepared) -> Checkpoints:
        """The checkpoints of the run."""
        return Checkpoints(self.run.checkpoints, prepared.settings.checkpoint_keep)


def claim(prepared: Prepared, *, listens: str = "", taking_over: bool = False) -> Claim:
    """Makes the folder of a new run, or takes that of a run that goes on.

    Args:
        prepared: the checked run.
        listens: address and port that workers connect to; empty if all are in this process.
        taking_over: whether this replaces a server that may seem to live but does not answer.

    Raises:
        BadInput: the folder cannot be used.
    """
    settings = prepared.config
    goes_on = None
    if prepared.continues is None:
        name = f"{prepared.dataset.name}-{datetime.now():%Y%m%d-%H%M%S}"
        run = RunDirectory.claim(Path(prepared.launch.out or f"runs/{name}"))
    else:
        run = RunDirectory.open(prepared.continues)
        goes_on = continuation(run, settings, taking_over=taking_over)
    fence = Fence.claim(run.path)
    iteration = 0
    if goes_on is not None:
        iteration = goes_on.manifest.iteration
        _log.info("going on with %s from iteration %d", run.path, iteration)
        for note in goes_on.notes:
            _log.info("  %s", note)
        run.sweep()
        run.cut_after(iteration)
    run.write_config(settings)
    seconds = 0.0 if goes_on is None else goes_on.manifest.seconds
    status = {"state": "starting", "iteration": iteration, "seconds": seconds}
    run.write_status({**about(prepared, listens), **status})
    return Claim(run, fence, goes_on, taking_over, listens)


def about(prepared: Prepared, listens: str) -> dict[str, Any]:
    """What `run.json` says of the run from its start.

    Args:
        prepared: the checked run.
        listens: address and port that workers connect to.
    """
    return {
        "version": __version__,
        "dataset_file": str(Path(prepared.dataset.path).resolve()),
        "dataset_sha256": prepared.dataset.sha256,
        "machine": socket.gethostname(),
        "process": os.getpid(),
        "listens": listens,
        "unit": prepared.algorithm.unit,
    }


def make_observer(prepared: Prepared, claimed: Claim, generator: nn.Module) -> RunObserver:
    """The observer of a run."""
    run = claimed.run
    wanted = prepared.settings.tensorboard
    return RunObserver(
        run,
        generator,
        z_dim=prepared.dataset.z_dim,
        seed=prepared.settings.seed,
        iterations=prepared.settings.iterations,
        sample_interval=prepared.settings.sample_interval,
        log_interval=prepared.settings.log_interval,
        status=about(prepared, claimed.listens),
        launched=prepared.launched,
        tensorboard=TensorBoardWriter(run.path / "tensorboard") if wanted else None,
        seconds=claimed.seconds,
        on_phase=prepared.faults.on_phase(SERVER),
        may_write=claimed.fence.check,
    )
