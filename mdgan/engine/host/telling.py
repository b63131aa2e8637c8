"""What a host tells while it works: the server what it does when, and the user how far it is."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mdgan import messages
from mdgan.data.fetching import Fetcher
from mdgan.engine.host.spending import Spending
from mdgan.observe.progress import Progress
from mdgan.observe.tracer import Tracer, memory_bytes
from mdgan.transport.host_end import HostTransport

_log = logging.getLogger(__name__)


class Teller:
    """Tells the user of a machine without the server what one of its hosts does.

    Args:
        samples: how many each worker of the host holds.
        shows_progress: whether to say how far it is; one host on a machine does.
    """

    def __init__(
        self, samples: Mapping[int, int], iterations: int, *, shows_progress: bool
    ) -> None:
        self._samples = samples
        self._iterations = iterations
        self._name = f"rank {', '.join(map(str, samples))}"
        self._progress = Progress(iterations, f"{self._name} | ") if shows_progress else None
        self._has_joined = False
        self._first = 0

    def joined(self, welcome: Mapping[str, Any]) -> None:
        """The server has let the host in, for the first time or again."""
        self._first = int(welcome["iteration"])
        if self._progress is not None:
            self._progress.begin(self._first)
        if self._has_joined:
            return
        self._has_joined = True
        held = ", ".join(
            f"{count:,} samples" if count else "no samples" for count in self._samples.values()
        )
        _log.info("joined as %s; holds %s; iteration %d", self._name, held, self._first)

    def reached(self, iteration: int) -> None:
        """The host begins an iteration."""
        done = iteration - 1
        if self._progress is not None and done > self._first and self._progress.due():
            self._progress.show(done)

    def done(self, iteration: int) -> None:
        """The server has said that training is over."""
        _log.info("%s is done after iteration %d of %d", self._name, iteration, self._iterations)


@dataclass(frozen=True)
class HostReports:
    """What a host tells of its work; the user, if the server does not do so on this machine."""

    tracer: Tracer
    fetcher: Fetcher
    spending: Spending
    teller: Teller | None = None

    def send(self, transport: HostTransport, part_bytes: int, *, at_end: bool = False) -> None:
        """Tells the server what the host did since the last time, has moved, holds and has spent.

        What processes of the algorithm's own hold is `part_bytes`.
        """
        traffic, iteration = transport.traffic, self.tracer.iteration
        rows = self.tracer.take()
        memory = memory_bytes() if self.tracer.records else 0  # it follows what samples are
        memory += part_bytes if memory else 0
        told = rows, traffic.sent, traffic.received, memory
        fetching = self.fetcher.tell(at_end=at_end)
        profile = self.tracer.profile(at_end=at_end)
        spent = self.spending.told(exactly=at_end)
        transport.send(messages.spans(iteration, *told, fetching, profile, spent))

    def close(self) -> None:
        """The host ends in order."""
        self.fetcher.close()
        self.spending.close()
