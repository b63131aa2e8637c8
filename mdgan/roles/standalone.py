"""The baseline's loop: one process that holds all data."""

import threading
from collections.abc import Mapping
from typing import Any

import torch

from mdgan.algorithms.standalone import StandaloneGAN
from mdgan.errors import Interrupted
from mdgan.observe.run_observer import RunObserver
from mdgan.roles.scoring import Scoring


def run_standalone(
    gan: StandaloneGAN,
    iterations: int,
    observer: RunObserver,
    scoring: Scoring,
    holdings: Mapping[str, Any],
    stop: threading.Event,
) -> None:
    """Trains, and saves the run however it ends.

    Args:
        gan: both models.
        iterations: I.
        observer: records the run.
        scoring: scores the generator.
        holdings: what there is to train on, as `Roster.holdings` has it.
        stop: set when somebody asks to stop.

    Raises:
        Interrupted: `stop` was set before the last iteration.
    """
    observer.begin(holdings)
    tracer = observer.tracer
    done, state = 0, "failed"
    try:
        for i in range(1, iterations + 1):
            tracer.iteration = i
            losses = torch.stack(gan.step(tracer.span))
            done = i
            observer.iteration(i, losses.unsqueeze(0))
            scoring.after(i, gan.generator, observer)
            if tracer.due():
                observer.spans("standalone", i, tracer.take())
            if stop.is_set() and i < iterations:
                state = "stopped"
                raise Interrupted
        state = "finished"
        scoring.finish(observer)
    finally:
        observer.spans("standalone", done, tracer.take())
        observer.end(state, done)
