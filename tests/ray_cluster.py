"""A Ray cluster of several raylets on this machine."""

import contextlib
import logging
import os
from collections.abc import Callable
from importlib import import_module, util
from typing import Any

import psutil

from tests.processes import kill_at_one_blow

OBJECTS_BYTES = 80_000_000  # the least that Ray takes


def why_not() -> str | None:
    """Why no Ray can be started here; None if one can."""
    return None if util.find_spec("ray") else "ray is not installed; pip install 'mdgan[ray]'"


class RayCluster:
    """A head, and nodes with room for one process each.

    Args:
        num_nodes: how many of these.
    """

    def __init__(self, num_nodes: int) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        make: Callable[..., Any] = import_module("ray.cluster_utils").Cluster
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": OBJECTS_BYTES}
        self._cluster = make(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        for _ in range(num_nodes):
            self.add_node()

    def add_node(self) -> None:
        """Adds a node with room for one process."""
        self._cluster.add_node(num_cpus=1, object_store_memory=OBJECTS_BYTES)

    def kill_node_of(self, ranks: str) -> None:
        """Ends everything on the node where some ranks run at one blow, as a cut of its power."""
        doomed: list[psutil.Process] = []
        for process in process_of(ranks):
            raylet = next(p for p in process.parents() if p.name() == "raylet")
            doomed = [raylet, *raylet.children(recursive=True)]
        assert doomed, ranks
        kill_at_one_blow(doomed)

    def stop(self) -> None:
        """Ends all nodes."""
        self._cluster.shutdown()


def process_of(ranks: str) -> list[psutil.Process]:
    """The processes of mdgan that actors have started for some ranks."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            ours = "--ranks" in words and words[words.index("--ranks") + 1] == ranks
            if ours and process.environ().get("MDGAN_ENDS_WITH_INPUT"):
                processes.append(process)
    return processes
