"""Trains one client after another in one process without any framework: the lower bound."""

import copy

import torch
from torch import Tensor

from benchmarks.peers.work import GAN, Shards, Work, clock, train


def run(work: Work, processes: int, times: str) -> None:
    """Runs all rounds in this process; `processes` must be 1."""
    assert processes == 1
    shards, gan, note = Shards(work.file), GAN(), clock(times)
    for _ in range(work.rounds):
        state = copy.deepcopy(gan.state_dict())
        total: dict[str, Tensor] = {}
        for client in torch.randperm(work.clients)[: work.cohort].tolist():
            gan.load_state_dict(state)
            train(gan, shards[client], work.iterations, work.batch_size)
            for name, value in gan.state_dict().items():
                total[name] = total[name] + value if name in total else value.clone()
        mean = {n: (value / work.cohort).to(state[n].dtype) for n, value in total.items()}
        gan.load_state_dict(mean)
        note()
