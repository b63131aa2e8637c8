"""Runs one peer: python -m benchmarks.peers.peer bare|with_pfl|with_flower WORK PROCESSES TIMES."""

import importlib
import sys

import torch

from benchmarks.peers.work import Work

if __name__ == "__main__":
    name, work, processes, times = sys.argv[1:]
    torch.set_num_threads(1)
    peer = importlib.import_module(f"benchmarks.peers.{name}")
    peer.run(Work.read(work), int(processes), times)
