"""Profiles a process in some iterations by torch's profiler: seconds by kind of operator.

Figures 4 and 10 of ParaGAN show the same: the shares of operators, and the accelerator's use.
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import psutil
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from mdgan.observe.settings import Iterations
from mdgan.records.rows import Operators
from mdgan.settings.machine import num_cores
from mdgan.spelling import flag

_log = logging.getLogger(__name__)

_SPANS: dict[str, Operators] = {
    **dict.fromkeys(("send", "swap"), "sending"),
    **dict.fromkeys(("receive", "wait"), "waiting"),
}
"""Spans of the tracer in which a process does not compute, with the kind that they count as."""
_OURS = "mdgan:"
_STEP = "optimizer."  # torch's prefix of the names of optimizers' steps, in small letters
_NAMES: dict[Operators, tuple[str, ...]] = {
    "convolution": ("conv",),
    "multiplication": ("mm", "linear", "matmul"),
    "normalisation": ("_norm",),
    "copies": ("copy", "clone", "cat", "stack", "contiguous", "empty", "fill", "zero", "memcpy"),
}
"""Parts of operators' names, in small letters, by kind; the first kind that fits counts."""
_REST: Operators = "elementwise and others"
_BETWEEN: Operators = "between operators"


def kind_of(event: Any) -> Operators:
    """The kind of a `FunctionEvent` of torch: by the event around it, or else by its name."""
    outer = event
    while outer is not None:
        if outer.name.startswith(_OURS):
            return _SPANS[outer.name.removeprefix(_OURS)]
        if outer.name.lower().startswith(_STEP):
            return "optimizer"
        outer = outer.cpu_parent
    name = event.name.lower()
    fits = (kind for kind, parts in _NAMES.items() if any(part in name for part in parts))
    return next(fits, _REST)


def seconds_by_kind(events: Iterable[Any], *, on_gpu: bool) -> dict[Operators, float]:
    """How long operators of each kind ran: on a GPU its time, but for sending and waiting."""
    seconds_of: Counter[Operators] = Counter()
    for event in events:
        is_span = event.name.startswith(_OURS)
        on_device = on_gpu and not is_span
        micros = event.self_device_time_total if on_device else event.self_cpu_time_total
        seconds_of[kind_of(event)] += max(micros, 0.0) / 1e6
    return {kind: seconds for kind, seconds in seconds_of.items() if seconds > 0}


class Profiler:
    """Profiles one process, from the first phase of some iterations to the first phase after them.

    Training waits while the profiler reads torch's events, about 0.1 ms each. With `all_threads`,
    operators of all roles in this process count, and waiting is left out.
    """

    def __init__(
        self, iterations: Iterations, device: torch.device, *, all_threads: bool = False
    ) -> None:
        self._iterations = iterations
        self._device = device
        self._all_threads = all_threads
        self._profile: profile | None = None
        self._ended = False
        self._first = self._last = 0
        self._ranges: list[tuple[str, Any]] = []
        self._asks_gpu = device.type == "cuda"
        self._gpu: list[float] = []
        self._result: dict[str, Any] | None = None

    def enter(self, phase: str, iteration: int) -> None:
        """Notes that a span begins; starts or ends the profile at the first or last iteration."""
        if self._ended:
            return
        if iteration > self._iterations.last:
            self._end()
        elif iteration >= self._iterations.first and self._profile is None:
            self._begin(iteration)
        if self._profile is None:
            return
        self._last = iteration
        self._look_at_gpu()
        if phase in _SPANS:
            ours = record_function(_OURS + phase)
            ours.__enter__()  # type: ignore[no-untyped-call] # torch leaves it unannotated
            self._ranges.append((phase, ours))

    def leave(self, phase: str) -> None:
        """Notes that a span ends."""
        if self._ranges and self._ranges[-1][0] == phase:
            self._ranges.pop()[1].__exit__(None, None, None)

    def tell(self, *, at_end: bool = False) -> dict[str, Any] | None:
        """Returns the profile as JSON values, once; see `records.rows.Profile`."""
        if at_end and not self._ended:
            self._end()
        result, self._result = self._result, None
        return result

    def _begin(self, iteration: int) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else Kineto writes to the terminal
        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda" and torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        config = torch._C._profiler._ExperimentalConfig(profile_all_threads=self._all_threads)
        started = profile(activities=activities, experimental_config=config, acc_events=True)
        try:
            started.start()
        except RuntimeError as error:  # for example, another profiler runs in this process
            _log.warning(f"{flag('profile')}: torch's profiler does not start: {error}")
            self._ended = True
            return
        self._profile, self._first = started, iteration
        self._began, self._cpu_before = time.monotonic(), _cpu_seconds()

    def _end(self) -> None:
        self._ended = True
        if self._profile is None:
            return
        while self._ranges:
            self.leave(self._ranges[-1][0])
        seconds, cpu_seconds = time.monotonic() - self._began, _cpu_seconds() - self._cpu_before
        self._profile.stop()
        events = self._profile.events()  # type: ignore[no-untyped-call] # as above
        on_gpu = ProfilerActivity.CUDA in self._profile.activities
        kinds = seconds_by_kind(events or (), on_gpu=on_gpu)
        if self._all_threads:
            kinds = {kind: kinds[kind] for kind in kinds if kind not in _SPANS.values()}
        else:
            kinds[_BETWEEN] = max(0.0, seconds - sum(kinds.values()))
        self._profile = None
        self._result = {
            "first": self._first,
            "last": self._last,
            "profiled_seconds": round(seconds, 6),
            "operators": {kind: round(spent, 6) for kind, spent in kinds.items()},
            "busy_cores": round(cpu_seconds / seconds, 3) if seconds > 0 else 0.0,
            "cores": num_cores(),
            "gpu": round(sum(self._gpu) / len(self._gpu), 3) if self._gpu else None,
        }

    def _look_at_gpu(self) -> None:
        """Notes how busy the GPU is, if the package nvidia-ml-py is installed."""
        if not self._asks_gpu:
            return
        try:
            self._gpu.append(torch.cuda.utilization(self._device) / 100)
        except Exception:  # no package, no driver, no permission: the figure is left out
            self._asks_gpu = False


def _cpu_seconds() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)
