"""The slots of one host: places where clients train one after another, at once with other slots.

A host forks a *nursery* before it opens its link: a process of one thread that holds the data and
forks a slot whenever the host wants one more. Models go out and sums come back through memory that
all of them share; what else they say to each other is JSON.
"""

import contextlib
import logging
import mmap
import os
import signal
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import isfinite, prod
from multiprocessing.connection import Connection, wait
from typing import NamedTuple, NoReturn

import msgspec
import psutil
import torch
from torch import Tensor

from mdgan.families.federated.placed_messages import Task, Trained
from mdgan.gan.weighted_mean import weighted_sum

_log = logging.getLogger(__name__)

Train = Callable[[Sequence[Task], Tensor, int], Iterator[Sequence[tuple[Task, Tensor, Tensor]]]]
"""Trains clients, group by group.

It takes the tasks, the models to begin with, float32 `ModelVector.shape`, and the last iteration of
the round. As soon as a group is trained, it yields of each client the task, the models after
training, float32, and J_disc and J_gen, float32 [2].
"""

_MOST_DEATHS = 3
"""Slots that may die one after another before any client is trained."""


class SlotsDied(RuntimeError):
    """No slot of this host stays alive long enough to train a client."""


class Work(NamedTuple):
    """What slots have done.

    Attributes:
        trained: all clients.
        total: Σ w_k · x_k over those whose models are usable, float64 `shape`.
        models: x_k by client, float32 `shape`, of the same; empty unless asked for.
    """

    trained: list[Trained]
    total: Tensor
    models: dict[int, Tensor]


class Slots(ABC):
    """Where a host trains clients.

    Args:
        shape: of the models as one vector.
        gives_all: whether it gives each client's models beside their sum.
    """

    def __init__(self, shape: tuple[int, ...], *, gives_all: bool = False) -> None:
        self.shape = shape
        self._gives_all = gives_all

    @abstractmethod
    def train(self, lists: Sequence[Sequence[Task]], models: Tensor, iteration: int) -> Work:
        """Trains clients; no client is counted twice, however many slots die meanwhile.

        Args:
            lists: what each slot does, in order.
            models: to begin with, float32 `shape`.
            iteration: the last of the round.

        Raises:
            SlotsDied: slots keep dying.
        """

    def _nothing_done(self) -> Work:
        return Work([], torch.zeros(self.shape).double(), {})

    def bytes_each(self) -> int:
        """The memory that one more slot takes; 0 if it is not known."""
        return 0

    def memory_bytes(self) -> int:
        """What all slots hold; 0 if they are no processes."""
        return 0

    def close(self) -> None:
        """Ends all slots."""


class SlotsInside(Slots):
    """Slots within the host's own thread: one after another, for runs in one process.

    Args:
        shape: of the models as one vector.
        train: trains clients.
        gives_all: see `Slots`.
    """

    def __init__(self, shape: tuple[int, ...], train: Train, *, gives_all: bool = False) -> None:
        super().__init__(shape, gives_all=gives_all)
        self._train = train

    def train(self, lists: Sequence[Sequence[Task]], models: Tensor, iteration: int) -> Work:
        """See `Slots`."""
        began, work = time.monotonic(), self._nothing_done()
        for slot, tasks in enumerate(lists):
            for told, found in _each(
                self._train(tasks, models, iteration), slot, began, work.total
            ):
                work.trained.append(told)
                if self._gives_all and told.usable:
                    work.models[told.client] = found
        return work


class SlotProcesses(Slots):
    """Slots as processes.

    Args:
        shape: of the models as one vector.
        most: the largest number of slots.
        make_train: called once in each slot; gives what trains clients there.
        prepare: called first in each slot, with its number; sets its threads and cores.
        gives_all: see `Slots`.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        most: int,
        make_train: Callable[[], Train],
        prepare: Callable[[int], None],
        *,
        gives_all: bool = False,
    ) -> None:
        super().__init__(shape, gives_all=gives_all)
        self._most = most
        self._shared = _Shared(shape, most)
        self._make_train = make_train
        self._prepare = prepare
        self._slots: dict[int, Connection] = {}
        self._pids: dict[int, int] = {}
        # Only the host holds this end open: when it ends, for any reason, its slots notice.
        self._lifeline, self._alive = os.pipe()
        own, other = socket.socketpair()
        if os.fork() == 0:
            own.close()
            os.close(self._alive)
            self._be_nursery(other)
        other.close()
        self._nursery = own

    def train(self, lists: Sequence[Sequence[Task]], models: Tensor, iteration: int) -> Work:
        """See `Slots`."""
        self._shared.models.copy_(models)
        began, deaths, work = time.monotonic(), 0, self._nothing_done()
        waiting: dict[int, list[Task]] = {}
        for place, tasks in enumerate(lists):
            waiting.setdefault(place % self._most, []).extend(tasks)
        while waiting := {slot: tasks for slot, tasks in waiting.items() if tasks}:
            begun = {slot for slot, tasks in waiting.items() if self._begin(slot, tasks, iteration)}
            done: dict[int, list[Trained]] = {}
            found: dict[int, Tensor] = {}
            for slot, trained, models_found in self._listen(begun, waiting, began):
                done.setdefault(slot, []).append(trained)
                if models_found is not None:
                    found[trained.client] = models_found
            whole = [slot for slot, got in done.items() if len(got) == len(waiting[slot])]
            for slot in whole:
                work.total.add_(self._shared.sums[slot])
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

    def bytes_each(self) -> int:
        """See `Slots`: the most that any slot has of its own."""
        return max(self._of_each(lambda slot: slot.memory_full_info().uss), default=0)

    def memory_bytes(self) -> int:
        """See `Slots`."""
        return sum(self._of_each(lambda slot: slot.memory_info().rss))

    def _of_each(self, number: Callable[[psutil.Process], int]) -> list[int]:
        """A number of each slot that lives."""
        found = []
        for pid in self._pids.values():
            with contextlib.suppress(psutil.Error):
                found.append(int(number(psutil.Process(pid))))
        return found

    def close(self) -> None:
        """See `Slots`."""
        for slot in list(self._slots):
            self._forget(slot)
        self._nursery.close()
        for end in (self._lifeline, self._alive):
            os.close(end)

    # What the host does.

    def _begin(self, slot: int, tasks: Sequence[Task], iteration: int) -> bool:
        """Sends a slot its list; whether the slot took it."""
        try:
            self._connection(slot).send_bytes(msgspec.json.encode((iteration, tasks)))
        except (OSError, EOFError):
            self._forget(slot)
            return False
        return True

    def _listen(
        self, slots: set[int], lists: dict[int, list[Task]], began: float
    ) -> Iterator[tuple[int, Trained, Tensor | None]]:
        """What slots have trained, with the models if they give all, until each is done or dead."""
        left = {slot: len(lists[slot]) for slot in slots}
        while left:
            by_connection = {self._slots[slot]: slot for slot in left}
            for ready in wait(list(by_connection)):
                slot = by_connection[ready]  # type: ignore[index] # it gives back what it was given
                try:
                    told = msgspec.json.decode(self._slots[slot].recv_bytes(), type=Trained)
                    found = self._models_of(slot) if self._gives_all and told.usable else None
                except (OSError, EOFError):
                    self._forget(slot)
                    del left[slot]
                    continue
                told = msgspec.structs.replace(told, begin=max(0.0, told.begin - began))
                yield slot, told, found
                left[slot] -= 1
                if not left[slot]:
                    del left[slot]

    def _models_of(self, slot: int) -> Tensor:
        raw = bytearray(self._slots[slot].recv_bytes())
        return torch.frombuffer(raw, dtype=torch.float32).view(self.shape)

    def _connection(self, slot: int) -> Connection:
        """The link to a slot, which is forked if it is not there."""
        if slot not in self._slots:
            own, other = socket.socketpair()
            with own, other:
                socket.send_fds(self._nursery, [bytes([slot])], [other.fileno()])
                self._slots[slot] = Connection(own.detach())
            self._pids[slot] = msgspec.json.decode(self._slots[slot].recv_bytes(), type=int)
        return self._slots[slot]

    def _forget(self, slot: int) -> None:
        if slot in self._slots:  # not if the nursery is gone
            self._slots.pop(slot).close()
        self._pids.pop(slot, None)

    # What the nursery and a slot do.

    def _be_nursery(self, host: socket.socket) -> NoReturn:
        """Forks a slot for each order of the host, until the host is gone."""
        try:
            for number in (signal.SIGTERM, signal.SIGINT):  # the host says when they end
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps
            while True:
                told, files, _, _ = socket.recv_fds(host, 1, 1)
                if not files:
                    break
                if os.fork() == 0:
                    host.close()
                    self._be_slot(told[0], Connection(files[0]))
                os.close(files[0])
        finally:
            os._exit(0)

    def _be_slot(self, slot: int, host: Connection) -> NoReturn:
        """Trains lists of clients, until the host is gone."""
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            threading.Thread(target=self._watch_host, daemon=True).start()
            host.send_bytes(msgspec.json.encode(os.getpid()))
            self._prepare(slot)
            train = self._make_train()
            while True:
                iteration, tasks = msgspec.json.decode(
                    host.recv_bytes(), type=tuple[int, list[Task]]
                )
                total = self._shared.sums[slot].zero_()
                for told, found in _each(
                    train(tasks, self._shared.models, iteration), slot, 0.0, total
                ):
                    host.send_bytes(msgspec.json.encode(told))
                    if self._gives_all and told.usable:
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


class _Shared:
    """Memory that a host shares with its slots; sums of slots that are not there take none.

    Args:
        shape: of the models as one vector.
        most: the largest number of slots.
    """

    def __init__(self, shape: tuple[int, ...], most: int) -> None:
        count = prod(shape)
        self.models = torch.frombuffer(mmap.mmap(-1, 4 * count), dtype=torch.float32).view(shape)
        self.sums = [
            torch.frombuffer(mmap.mmap(-1, 8 * count), dtype=torch.float64).view(shape)
            for _ in range(most)
        ]


def _each(
    groups: Iterator[Sequence[tuple[Task, Tensor, Tensor]]],
    slot: int,
    began: float,
    total: Tensor,
) -> Iterator[tuple[Trained, Tensor]]:
    """Adds the models of each client to a sum as soon as they are there, and yields them, too.

    Clients of a group share its time equally.
    """
    begin = time.monotonic()
    for group in groups:
        seconds = (time.monotonic() - begin) / len(group)
        for place, (task, found, losses) in enumerate(group):
            usable = isfinite(float(found.sum())) and bool(losses.isfinite().all())
            told = (0.0, 0.0)
            if usable:
                total += weighted_sum({task.client: found}, {task.client: task.weight})
                told = (float(losses[0]), float(losses[1]))
            first = begin - began + place * seconds
            yield Trained(task.client, slot, first, seconds, told, usable), found
        begin = time.monotonic()
