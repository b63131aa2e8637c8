"""The baseline's loop: one process that holds all data."""

import threading
from collections.abc import Mapping
from typing import Any

import torch

from mdgan.engine.server.checkpoints import Saving, Standing
from mdgan.engine.server.scoring import Scoring
from mdgan.errors import Interrupted
from mdgan.gan.local_gan import StandaloneGAN
from mdgan.observe.run_observer import RunObserver

_SAVE_SECONDS = 30.0


def run_standalone(
    gan: StandaloneGAN,
    iterations: range,
    observer: RunObserver,
    scoring: Scoring,
    saving: Saving,
    holdings: Mapping[str, Any],
    stop: threading.Event,
) -> None:
    """Trains, and saves the run however it ends.

    Args:
        gan: both models.
        iterations: those to do, 1..I in a new run.
        observer: records the run.
        scoring: scores the generator.
        saving: makes checkpoints.
        holdings: what there is to train on, as `Roster.holdings` has it.
        stop: set when somebody asks to stop.

    Raises:
        Interrupted: `stop` was set before the last iteration.
    """
    done, state = iterations.start - 1, "failed"
    observer.begin(holdings, done)
    tracer = observer.tracer
    try:
        for i in iterations:
            tracer.iteration = i
            losses = torch.stack(gan.step(tracer.span))
            done = i
            observer.iteration(i, losses.unsqueeze(0))
            scoring.after(i - 1, i, gan.generator, observer)
            if saving.due(i - 1, i):
                with tracer.span("checkpoint"):
                    saving.save(Standing(i, 0, 0, observer.seconds()), gan.state())
            saving.poll()
            if tracer.due():
                observer.spans("standalone", i, tracer.take())
            if stop.is_set() and i < iterations[-1]:
                state = "stopped"
                raise Interrupted
        state = "finished"
        scoring.finish(observer)
    finally:
        saving.close(_SAVE_SECONDS)
        observer.spans("standalone", done, tracer.take())
        observer.end(state, done)
