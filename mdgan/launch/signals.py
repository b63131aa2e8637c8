"""How a process is asked to stop."""

import signal
from collections.abc import Callable
from types import FrameType


def on_stop_signals(*acts: Callable[[], None]) -> None:
    """Calls functions when this process is asked to stop (SIGTERM, or Ctrl-C where it counts).

    A forked rank ignores Ctrl-C: its launcher gets it too, and tells the ranks in order.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        for act in acts:
            act()

    signal.signal(signal.SIGTERM, handle)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handle)
