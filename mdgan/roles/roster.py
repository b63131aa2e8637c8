"""Who takes part: which host carries which workers, and who may come in."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any


class Roster:
    """The server's list of hosts and workers.

    Args:
        num_workers: N; ranks 1..N are expected.
        identity: what must be equal on every rank: version, dataset file, every setting of the
            experiment.
    """

    def __init__(self, num_workers: int, identity: Mapping[str, Any]) -> None:
        self.mean_shard_size = 0.0
        self._expected = set(range(1, num_workers + 1))
        self._identity = identity
        self._admitted: set[int] = set()
        self._workers_of: dict[int, list[int]] = {}
        self._samples: dict[int, int] = {}
        self._classes: dict[int, list[int]] = {}
        self._open = True
        self._lock = threading.Lock()

    def admit(self, hello: Mapping[str, Any]) -> str | None:
        """Decides on a host that wants to join; called from the acceptor's thread.

        Args:
            hello: `workers`, `num_samples` (worker → m), `class_counts` and `identity`, from
                `make_hello`.

        Returns:
            None if it is welcome, else the reason why not, for the person who started it.
        """
        try:
            workers = [int(worker) for worker in hello["workers"]]
            theirs: Mapping[str, Any] = hello["identity"]
            samples = {int(rank): int(count) for rank, count in hello["num_samples"].items()}
            classes = {
                int(rank): [int(count) for count in counts]
                for rank, counts in hello["class_counts"].items()
            }
            well_formed = isinstance(theirs, dict) and hello["host"] == workers[0]
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
            well_formed = False
        if not well_formed:
            return "its hello is malformed; use the same version of mdgan everywhere"
        for name, ours in self._identity.items():
            if theirs.get(name) != ours:
                return (
                    f"rank {workers[0]} has {name} = {theirs.get(name)}, rank 0 has {name} = "
                    f"{ours}; start every rank with the same settings"
                )
        if len(set(workers)) < len(workers):
            return f"ranks {workers}: one is given twice"
        with self._lock:
            if not self._open:
                return "training has begun without it"
            for worker in workers:
                if worker not in self._expected:
                    return f"rank {worker} is outside 1..{len(self._expected)}"
                if worker in self._admitted:
                    return f"rank {worker} has joined already; start every rank once"
            self._admitted.update(workers)
            self._samples.update(samples)
            self._classes.update(classes)
        return None

    def joined(self, host: int, workers: list[int]) -> None:
        """A host's link is open."""
        self._workers_of[host] = workers

    def absent(self) -> list[int]:
        """The ranks whose links are not open."""
        return sorted(self._expected - set(self.workers()))

    def close(self) -> None:
        """Nobody may join from here on; the mean shard size m is now known."""
        with self._lock:
            self._open = False
            live = [self._samples.get(worker, 0) for worker in self.workers()]
        self.mean_shard_size = sum(live) / max(1, len(live))

    def holdings(self) -> dict[str, dict[str, Any]]:
        """For every worker, how many samples it holds, and how many of each class."""
        return {
            str(worker): {
                "samples": self._samples[worker],
                "classes": self._classes.get(worker, []),
            }
            for worker in self.workers()
        }

    def lose(self, host: int) -> list[int]:
        """A host is gone; returns the workers it carried."""
        return self._workers_of.pop(host, [])

    def workers(self) -> list[int]:
        """The live workers in increasing order."""
        return sorted(worker for workers in self._workers_of.values() for worker in workers)

    def hosts(self) -> dict[int, list[int]]:
        """The live hosts, each with its workers in increasing order."""
        return {host: sorted(workers) for host, workers in sorted(self._workers_of.items())}

    def host_of(self) -> dict[int, int]:
        """The host of every live worker."""
        return {worker: host for host, workers in self._workers_of.items() for worker in workers}


def make_hello(
    host: int, class_counts: Mapping[int, Sequence[int]], identity: Mapping[str, Any]
) -> dict[str, Any]:
    """What a host says of itself when it joins.

    Args:
        host: its number, that of its first worker.
        class_counts: the number of samples of each class, for each of its workers.
        identity: see `Roster`.
    """
    return {
        "host": host,
        "workers": list(class_counts),
        "num_samples": {str(worker): sum(counts) for worker, counts in class_counts.items()},
        "class_counts": {str(worker): list(counts) for worker, counts in class_counts.items()},
        "identity": dict(identity),
    }
