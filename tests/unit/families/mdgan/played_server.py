"""A server that a test plays, for one real host of MD-GAN."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mdgan.engine.parts import HostPart
from mdgan.engine.stages.contract import HostPath
from mdgan.families.mdgan import messages as mdgan_messages
from mdgan.families.mdgan.host import MDGANHost, OneByOne
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from tests.unit.engine.played_server import PlayedServer as EnginePlayedServer
from tests.unit.families.mdgan.played import FORM
from tests.unit.gan import small

FIRST, SECOND = small.images(1), small.images(2)


class PlayedServer(EnginePlayedServer):
    """A server that the test plays, and one real host of MD-GAN in a thread."""

    def bring_host(self, workers: Mapping[int, Any], tracer: Tracer, **how: Any) -> HostPart:
        """May get `group` and `masks`."""
        group = how.get("group") or OneByOne(workers, tracer.of_worker)
        return MDGANHost(workers, group, how.get("masks") or HostPath(FORM), tracer)


def batches(iteration: int, workers: Mapping[int, Any], *, swap: bool = False) -> Message:
    assignment = dict.fromkeys(workers, (0, 1))
    generated = torch.stack([FIRST, SECOND]) / iteration
    return mdgan_messages.batches(
        iteration, Samples(generated), assignment, swap_follows=swap, last=False
    )


def answer(worker: Worker, iteration: int) -> Tensor:
    """What a worker must answer, computed here."""
    worker.learn(Samples(SECOND / iteration))
    return worker.feedback(Samples(FIRST / iteration))[0]
