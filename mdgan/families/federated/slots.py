"""The slots of one host: in each, clients train one after another, at the same time as in others.

A host forks a *fork server* before it opens its link: a process of one thread that holds the data
and forks a slot whenever the host needs one more. Host and slots pass models and sums through
memory that they share; their messages are JSON.
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

_MOST_DEATHS = 3  # times in a row that all slots may die before one has trained its list


class SlotsDied(RuntimeError):
    """No slot of this host stays alive long enough to train a client."""


class SlotWork(NamedTuple):
    """The result of a round in slots: Σ w_k · x_k, float64, over usable models; maybe each x_k."""

    trained: list[ClientReport]
    total: Tensor
    models: dict[int, Tensor]


@dataclass(eq=False)
class Slots:
    """The slots of a host in one process: they train clients in the thread of the host.

    Args:
        make_train: makes `LocalTraining.train` for the number of a slot.
        gives_all: whether `train` returns the models of each client beside their sum.
    """

    shape: tuple[int, ...]
    make_train: Callable[[int], Train]
    gives_all: bool = False
    _train: Train | None = field(default=None, init=False)

    def train(self, lists: Lists, models: Tensor, iteration: int) -> SlotWork:
        """Trains clients, each counted once even if slots die; `SlotsDied` if they keep dying."""
        self._train = self._train or self.make_train(0)
        began, work = time.monotonic(), self._nothing_done()
        for slot, tasks in enumerate(lists):
            groups = self._train(tasks, models, iteration)
            for report, models_of_client in _add_up(groups, slot, began, work.total):
                work.trained.append(report)
                if self.gives_all and report.usable:
                    work.models[report.client] = models_of_client
        return work

    def _nothing_done(self) -> SlotWork:
        return SlotWork([], torch.zeros(self.shape).double(), {})

    def bytes_each(self) -> int:
        """The memory that one more slot needs, bytes; 0 if unknown."""
        return 0

    def memory_bytes(self) -> int:
        """The memory of all slots, bytes; 0 if they are no processes."""
        return 0

    def close(self) -> None:
        """Ends all slots."""


@dataclass(eq=False, kw_only=True)
class SlotProcesses(Slots):
    """Slots that are processes; each calls `make_train` itself."""

    most: int

    def __post_init__(self) -> None:
        # Shared with all slots; the sum of a slot that does not exist yet uses no memory.
        self._models = _shared(self.shape, torch.float32)
        self._sums = [_shared(self.shape, torch.float64) for _ in range(self.most)]
        self._slots: dict[int, Connection] = {}
        self._pids: dict[int, int] = {}
        # Only the host holds `_alive` open: when the host ends, for any reason, its slots notice.
        self._lifeline, self._alive = os.pipe()
        self._fork_server, child_end = socket.socketpair()
        if os.fork() == 0:
            self._fork_server.close()
            os.close(self._alive)
            self._serve_forks(child_end)
        child_end.close()

    # The host calls these.

    def train(self, lists: Lists, models: Tensor, iteration: int) -> SlotWork:
        self._models.copy_(models)
        began = time.monotonic()
        deaths = 0
        work = self._nothing_done()
        waiting: dict[int, list[ClientTask]] = {}
        for place, tasks in enumerate(lists):
            waiting.setdefault(place % self.most, []).extend(tasks)
        while waiting := {slot: tasks for slot, tasks in waiting.items() if tasks}:
            begun = {n: len(ts) for n, ts in waiting.items() if self._begin(n, ts, iteration)}
            done: dict[int, list[ClientReport]] = {}
            models_of: dict[int, Tensor] = {}
            for slot, report, client_models in self._listen(begun, began):
                done.setdefault(slot, []).append(report)
                if client_models is not None:
                    models_of[report.client] = client_models
            complete = [slot for slot, rows in done.items() if len(rows) == len(waiting[slot])]
            for slot in complete:
                work.total.add_(self._sums[slot])
                work.trained.extend(done[slot])
                clients = {report.client for report in done[slot]}
                work.models.update((n, models_of[n]) for n in clients & models_of.keys())
                del waiting[slot]
            deaths = 0 if complete else deaths + 1
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
        """A number about the process of each live slot."""
        numbers = []
        for pid in self._pids.values():
            with contextlib.suppress(psutil.Error):
                numbers.append(int(number(psutil.Process(pid))))
        return numbers

    def close(self) -> None:
        for slot in list(self._slots):
            self._forget(slot)
        self._fork_server.close()
        for end in (self._lifeline, self._alive):
            os.close(end)

    def _begin(self, slot: int, tasks: Sequence[ClientTask], iteration: int) -> bool:
        """Sends a slot its list of tasks; False if the slot has died."""
        try:
            self._connection(slot).send_bytes(msgspec.json.encode((iteration, tasks)))
        except (OSError, EOFError):
            self._forget(slot)
            return False
        return True

    def _listen(
        self, num_owed: dict[int, int], began: float
    ) -> Iterator[tuple[int, ClientReport, Tensor | None]]:
        """Yields the reports that slots owe, with a client's models if `gives_all`."""
        while num_owed:
            by_connection = {self._slots[slot]: slot for slot in num_owed}
            for ready in wait(list(by_connection)):
                slot = by_connection[ready]  # type: ignore[index] # `wait` returns what it got
                try:
                    report = msgspec.json.decode(ready.recv_bytes(), type=ClientReport)  # type: ignore[union-attr] # a connection
                    models = None
                    if self.gives_all and report.usable:
                        raw = bytearray(self._slots[slot].recv_bytes())
                        models = torch.frombuffer(raw, dtype=torch.float32).view(self.shape)
                except (OSError, EOFError):
                    self._forget(slot)
                    del num_owed[slot]
                    continue
                begin = max(0.0, report.begin - began)
                yield slot, msgspec.structs.replace(report, begin=begin), models
                num_owed[slot] -= 1
                if not num_owed[slot]:
                    del num_owed[slot]

    def _connection(self, slot: int) -> Connection:
        """The link to a slot; has the fork server fork a slot that does not exist."""
        if slot not in self._slots:
            host_end, slot_end = socket.socketpair()
            with host_end, slot_end:
                socket.send_fds(self._fork_server, [bytes([slot])], [slot_end.fileno()])
                self._slots[slot] = Connection(host_end.detach())
            self._pids[slot] = msgspec.json.decode(self._slots[slot].recv_bytes(), type=int)
        return self._slots[slot]

    def _forget(self, slot: int) -> None:
        if slot in self._slots:  # it is not there if the fork server has died
            self._slots.pop(slot).close()
        self._pids.pop(slot, None)

    # The fork server and the slots call these.

    def _serve_forks(self, host: socket.socket) -> NoReturn:
        """The fork server: forks a slot for each order of the host, until the host ends."""
        try:
            for number in (signal.SIGTERM, signal.SIGINT):  # slots end when the host ends
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps dead slots
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
        """A slot: trains lists of clients, until the host ends."""
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
                for report, models in _add_up(groups, slot, 0.0, self._sums[slot].zero_()):
                    host.send_bytes(msgspec.json.encode(report))
                    if self.gives_all and report.usable:
                        host.send_bytes(models.contiguous().numpy().data.cast("B"))
        except (OSError, EOFError):
            os._exit(0)
        except Exception:
            _log.exception("slot %d failed", slot)
        finally:
            os._exit(1)

    def _watch_host(self) -> None:
        os.read(self._lifeline, 1)  # returns when the host ends
        os._exit(0)


def _shared(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory that a process shares with the processes that it forks."""
    memory = mmap.mmap(-1, dtype.itemsize * prod(shape))
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def _add_up(
    groups: Iterator[Group], slot: int, began: float, total: Tensor
) -> Iterator[tuple[ClientReport, Tensor]]:
    """Adds each client's models to a sum as soon as it is trained; yields its report and models."""
    begin = time.monotonic()
    for group in groups:
        seconds = (time.monotonic() - begin) / len(group)
        for place, (task, sent, losses) in enumerate(group):
            models = sent.cpu()
            usable = isfinite(float(models.sum())) and bool(losses.isfinite().all())
            means = (0.0, 0.0)
            if usable:
                total += weighted_sum({task.client: models}, {task.client: task.weight})
                means = (float(losses[0]), float(losses[1]))
            first = begin - began + place * seconds
            yield ClientReport(task.client, slot, first, seconds, means, usable), models
        begin = time.monotonic()
