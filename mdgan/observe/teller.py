"""What one host tells the user of a machine without the server."""

import logging
from collections.abc import Mapping
from typing import Any

from mdgan.observe.progress import Progress

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
