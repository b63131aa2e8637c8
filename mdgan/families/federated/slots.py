"""The slots of one host: places where clients train one after another, at once with other slots.

A host forks a *fork server* before it opens its link: a process of one thread that holds the data
and forks a slot whenever the host wants one more. Models go out and sums come back through memory
that all of them share; what else they say to each other is JSON.
"""

import contextlib
import logging
import mmap
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite, prod
from multiprocessing.connection import Connection, wait
from typing import NamedTuple, NoReturn

import msgspec
import psutil
import torch
from torch import Tensor
from typing_extensions import override

from mdgan.families.federated.messages import ClientReport, ClientTask, Lists
from mdgan.gan.exact_sum import weighted_sum

_log = logging.getLogger(__name__)

Group = Sequence[tuple[ClientTask, Tensor, Tensor]]

Train = Callable[[Sequence[ClientTask], Tensor, int], Iterator[Group]]  # see `LocalTraining.train`

_MOST_DEATHS = 3  # slots that may die one after another before any client is trained


class SlotsDied(RuntimeError):
    """No slot of this host stays alive long enough to train a client."""


class SlotWork(NamedTuple):
    """What slots trained: Σ w_k · x_k, float64, of usable models, and each x_k if asked for."""

    trained: list[ClientReport]
    total: Tensor
    models: dict[int, Tensor]


@dataclass(eq=False)
class Slots:
    """Where a host trains clients; it may give each one's models beside their sum.

    These are within the host's own thread, for runs in one process. `make_train` makes what trains
    clients, from the number of a slot.
    """

    shape: tuple[int, ...]
    make_train: Callable[[int], Train]
    gives_all: bool = False
    _train: Train | None = field(default=None, init=False)

    def train(self, lists: Lists, models: Tensor, iteration: int) -> SlotWork:
        """Trains clients, each counted once; `SlotsDied` if slots keep dying."""
        self._train = self._train or self.make_train(0)
        began, work = time.monotonic(), self._nothing_done()
        for slot, tasks in enumerate(lists):
            groups = self._train(tasks, models, iteration)
            for report, found in _add_up(groups, slot, began, work.total):
                work.trained.append(report)
                if self.gives_all and report.usable:
                    work.models[report.client] = found
        return work

    def _nothing_done(self) -> SlotWork:
        return SlotWork([], torch.zeros(self.shape).double(), {})

    def bytes_each(self) -> int:
        """The memory that one more slot takes; 0 if it is not known."""
        return 0

    def memory_bytes(self) -> int:
        """What all slots hold; 0 if they are no processes."""
        return 0

    def close(self) -> None:
        """Ends all slots."""


@dataclass(eq=False, kw_only=True)
class SlotProcesses(Slots):
    """Slots as processes, each of which calls `make_train` itself."""

    most: int

    def __post_init__(self) -> None:
        # Shared with all slots; sums of slots that are not there take no memory.
        self._models = _shared(self.shape, torch.float32)
        self._sums = [_shared(self.shape, torch.float64) for _ in range(self.most)]
        self._slots: dict[int, Connection] = {}
        self._pids: dict[int, int] = {}
        # Only the host holds this end open: when it ends, for any reason, its slots notice.
        self._lifeline, self._alive = os.pipe()
        own, other = socket.socketpair()
        if os.fork() == 0:
            own.close()
            os.close(self._alive)
            self._serve_forks(other)
        other.close()
        self._fork_server = own

    # What the host does.

    def train(self, lists: Lists, models: Tensor, iteration: int) -> SlotWork:
        self._models.copy_(models)
        began = time.monotonic()
        deaths = 0
        work = self._nothing_done()
        waiting: dict[int, list[ClientTask]] = {}
        for place, tasks in enumerate(lists):
            waiting.setdefault(place % self.most, []).extend(tasks)
        while waiting := {slot: tasks for slot, tasks in waiting.items() if tasks}:
            begun = {n: len(own) for n, own in waiting.items() if self._begin(n, own, iteration)}
            done: dict[int, list[ClientReport]] = {}
            found: dict[int, Tensor] = {}
            for slot, report, models_found in self._listen(begun, began):
                done.setdefault(slot, []).append(report)
                if models_found is not None:
                    found[report.client] = models_found
            whole = [slot for slot, got in done.items() if len(got) == len(waiting[slot])]
            for slot in whole:
                work.total.add_(self._sums[slot])
                work.trained.extend(done[slot])
                clients = {each.client for each in done[slot]}
                work.models.update((n, found[n]) for n in clients & found.keys())
                del waiting[slot]
            deaths = 0 if whole else deaths + 1
            if deaths == _MOST_DEATHS:
                raise SlotsDied(
                    f"{deaths} times a slot died before it had trained its clients; is there too "
                    "little memory? Use fewer --slots"
                )
        return work

    @override
    def bytes_each(self) -> int:
        return max(self._of_each(lambda slot: slot.memory_full_info().uss), default=0)

    def memory_bytes(self) -> int:
        return sum(self._of_each(lambda slot: slot.memory_info().rss))

    def _of_each(self, number: Callable[[psutil.Process], int]) -> list[int]:
        """A number of each slot that lives."""
        found = []
        for pid in self._pids.values():
            with contextlib.suppress(psutil.Error):
                found.append(int(number(psutil.Process(pid))))
        return found

    def close(self) -> None:
        for slot in list(self._slots):
            self._forget(slot)
        self._fork_server.close()
        for end in (self._lifeline, self._alive):
            os.close(end)

    def _begin(self, slot: int, tasks: Sequence[ClientTask], iteration: int) -> bool:
        """Sends a slot its list; whether the slot took it."""
        try:
            self._connection(slot).send_bytes(msgspec.json.encode((iteration, tasks)))
        except (OSError, EOFError):
            self._forget(slot)
            return False
        return True

    def _listen(
        self, left: dict[int, int], began: float
    ) -> Iterator[tuple[int, ClientReport, Tensor | None]]:
        """What slots tell of so many clients each, with the models if they give all."""
        while left:
            by_connection = {self._slots[slot]: slot for slot in left}
            for ready in wait(list(by_connection)):
                slot = by_connection[ready]  # type: ignore[index] # it gives back what it was given
                try:
                    report = msgspec.json.decode(ready.recv_bytes(), type=ClientReport)  # type: ignore[union-attr] # a connection
                    found = None
                    if self.gives_all and report.usable:
                        raw = bytearray(self._slots[slot].recv_bytes())
                        found = torch.frombuffer(raw, dtype=torch.float32).view(self.shape)
                except (OSError, EOFError):
                    self._forget(slot)
                    del left[slot]
                    continue
                begin = max(0.0, report.begin - began)
                yield slot, msgspec.structs.replace(report, begin=begin), found
                left[slot] -= 1
                if not left[slot]:
                    del left[slot]

    def _connection(self, slot: int) -> Connection:
        """The link to a slot, which is forked if it is not there."""
        if slot not in self._slots:
            own, other = socket.socketpair()
            with own, other:
                socket.send_fds(self._fork_server, [bytes([slot])], [other.fileno()])
                self._slots[slot] = Connection(own.detach())
            self._pids[slot] = msgspec.json.decode(self._slots[slot].recv_bytes(), type=int)
        return self._slots[slot]

    def _forget(self, slot: int) -> None:
        if slot in self._slots:  # not if the fork server is gone
            self._slots.pop(slot).close()
        self._pids.pop(slot, None)

    # What the fork server and a slot do.

    def _serve_forks(self, host: socket.socket) -> NoReturn:
        """Forks a slot for each order of the host, until the host is gone."""
        try:
            for number in (signal.SIGTERM, signal.SIGINT):  # the host says when they end
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps
            while True:
                slot, files, _, _ = socket.recv_fds(host, 1, 1)
                if not files:
                    break
                if os.fork() == 0:
                    host.close()
                    self._serve_host(slot[0], Connection(files[0]))
                os.close(files[0])
        finally:
            os._exit(0)

    def _serve_host(self, slot: int, host: Connection) -> NoReturn:
        """Trains lists of clients, until the host is gone."""
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            threading.Thread(target=self._watch_host, daemon=True).start()
            host.send_bytes(msgspec.json.encode(os.getpid()))
            train = self.make_train(slot)
            while True:
                iteration, tasks = msgspec.json.decode(
                    host.recv_bytes(), type=tuple[int, list[ClientTask]]
                )
                groups = train(tasks, self._models, iteration)
                for report, found in _add_up(groups, slot, 0.0, self._sums[slot].zero_()):
                    host.send_bytes(msgspec.json.encode(report))
                    if self.gives_all and report.usable:
                        host.send_bytes(found.contiguous().numpy().data.cast("B"))
        except (OSError, EOFError):
            os._exit(0)
        except Exception:
            _log.exception("slot %d failed", slot)
        finally:
            os._exit(1)

    def _watch_host(self) -> None:
        os.read(self._lifeline, 1)  # returns when the host is gone
        os._exit(0)


def _shared(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory that a process shares with those that it forks."""
    memory = mmap.mmap(-1, dtype.itemsize * prod(shape))
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def _add_up(
    groups: Iterator[Group], slot: int, began: float, total: Tensor
) -> Iterator[tuple[ClientReport, Tensor]]:
    """Adds the models of each client to a sum as soon as they are there, and yields them, too."""
    begin = time.monotonic()
    for group in groups:
        seconds = (time.monotonic() - begin) / len(group)
        for place, (task, sent, losses) in enumerate(group):
            found = sent.cpu()
            usable = isfinite(float(found.sum())) and bool(losses.isfinite().all())
            means = (0.0, 0.0)
            if usable:
                total += weighted_sum({task.client: found}, {task.client: task.weight})
                means = (float(losses[0]), float(losses[1]))
            first = begin - began + place * seconds
            yield ClientReport(task.client, slot, first, seconds, means, usable), found
        begin = time.monotonic()
