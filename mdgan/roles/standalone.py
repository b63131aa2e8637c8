"""The baseline's loop: one process that holds all data."""

import threading

import torch

from mdgan.algorithms.standalone import StandaloneGAN
from mdgan.errors import Interrupted
from mdgan.observe.run_observer import RunObserver


def run_standalone(
    gan: StandaloneGAN, iterations: int, observer: RunObserver, stop: threading.Event
) -> None:
    """Trains, and saves the run however it ends.

    Args:
        gan: both models.
        iterations: I.
        observer: records the run.
        stop: set when somebody asks to stop.

    Raises:
        Interrupted: `stop` was set before the last iteration.
    """
    observer.begin()
    done, state = 0, "failed"
    try:
        for i in range(1, iterations + 1):
            losses = torch.stack(gan.step())
            done = i
            observer.iteration(i, losses.unsqueeze(0), 1)
            if stop.is_set() and i < iterations:
                state = "stopped"
                raise Interrupted
        state = "finished"
    finally:
        observer.end(state, done)
