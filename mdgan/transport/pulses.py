"""Signs of life on links that have nothing else to carry."""

import threading
from typing import Any

from mdgan.transport.link import Link

_SHARE = 8
_LEAST_SECONDS = 0.02


class Pulses:
    """The one thread of a transport that keeps its quiet links alive.

    Args:
        liveness_seconds: after so much silence this end gives a peer up, and expects the same of
            it.
    """

    def __init__(self, liveness_seconds: float) -> None:
        self._liveness = liveness_seconds
        self._every: dict[Link, float] = {}
        self._changed = threading.Condition()
        self._stopped = False
        threading.Thread(target=self._beat, name="pulses", daemon=True).start()

    def add(self, link: Link, peers_liveness: Any) -> None:
        """Keeps a link alive until it closes; a pulse leaves after a quarter of the silence.

        Args:
            link: to the peer.
            peers_liveness: after how many seconds of silence the peer gives up, as it says.
        """
        liveness = self._liveness
        if isinstance(peers_liveness, int | float) and peers_liveness < liveness:
            liveness = peers_liveness
        with self._changed:
            self._every[link] = max(_LEAST_SECONDS, liveness / _SHARE)
            self._changed.notify()

    def stop(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _beat(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(min(self._every.values(), default=None))
                if self._stopped:
                    return
                self._every = {link: often for link, often in self._every.items() if link.is_open}
                beats = list(self._every.items())
            for link, often in beats:
                link.pulse(often)
