"""What an iteration and a swap send: counted on the messages themselves, and by Table III."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from mdgan import messages
from mdgan.families.mdgan.algorithm import assign, resolve_kappa
from mdgan.families.mdgan.messages import Form, batches, feedback
from mdgan.settings.experiment import Experiment
from mdgan.transport.wire import encoded_bytes

_FLOAT_BYTES = 4
_MOST_COUNTED = 256
"""Hosts beyond these repeat the pattern: their bytes are those of the ones before."""


@dataclass(frozen=True)
class Traffic:
    """Bytes on the wire, headers and names included.

    Attributes:
        out: of one iteration, from the server to each host.
        back: from each host to the server.
        swap: of one discriminator that moves to another host, with its optimizer's state.
        num_moved: how many discriminators a swap moves to another host, on average.
    """

    out: tuple[int, ...]
    back: tuple[int, ...]
    swap: int
    num_moved: float


@dataclass(frozen=True)
class Paper:
    """Table III (Hardy et al. 2019) in bytes, four to a number.

    Attributes:
        out_worker: C→W at a worker, 2bd: the text counts both batches, the table one.
        out_server: C→W at the server, 2bdN.
        back_worker: W→C at a worker, bd.
        back_server: W→C at the server, bdN.
        swap: W→W, |θ|.
    """

    out_worker: int
    out_server: int
    back_worker: int
    back_server: int
    swap: int

    @classmethod
    def of(
        cls, num_workers: int, batch_size: int, shape: Sequence[int], num_weights: int
    ) -> "Paper":
        """Fills in the table.

        Args:
            num_workers: N.
            batch_size: b.
            shape: of a sample, (C, H, W), d numbers.
            num_weights: |θ|.
        """
        batch = _FLOAT_BYTES * batch_size * prod(shape)
        swap = _FLOAT_BYTES * num_weights
        return cls(2 * batch, 2 * batch * num_workers, batch, batch * num_workers, swap)


def iteration_bytes(
    experiment: Experiment, shape: Sequence[int], hosts: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Counts the bytes of BATCHES and FEEDBACK, on the messages that would be sent.

    Args:
        experiment: what is computed.
        shape: of a sample, (C, H, W).
        hosts: the workers of each host.

    Returns:
        Bytes to each host, and bytes from it.
    """
    form = Form.of(experiment, shape)
    workers = sorted(worker for carried in hosts for worker in carried)
    kappa = resolve_kappa(experiment.kappa, len(workers))
    assignment = assign(workers, kappa)
    blank = torch.zeros(form.sample_shape)
    generated = blank.expand(kappa, *form.sample_shape)
    out, back = [], []
    for carried in hosts[:_MOST_COUNTED]:
        pairs = {worker: assignment[worker] for worker in carried}
        message = batches(1, generated, pairs, swap_follows=False, last=False, codec=form.images)
        judged = {worker: pair.judge for worker, pair in pairs.items()}
        losses = dict.fromkeys(carried, torch.zeros(2))
        verdicts = dict.fromkeys(carried, torch.zeros(experiment.batch_size))
        answer = feedback(1, dict.fromkeys(carried, blank), losses, judged, form, verdicts)
        out.append(encoded_bytes(message))
        back.append(encoded_bytes(answer))
    more = len(hosts) - len(out)
    return (*out, *_last(out, more)), (*back, *_last(back, more))


def count_traffic(
    experiment: Experiment, shape: Sequence[int], hosts: Sequence[Sequence[int]], swap: int
) -> Traffic:
    """Everything that a run sends.

    Args:
        experiment: what is computed.
        shape: of a sample, (C, H, W).
        hosts: the workers of each host.
        swap: what `swap_bytes` found.
    """
    out, back = iteration_bytes(experiment, shape, hosts)
    return Traffic(out, back, swap, mean_moved(experiment.swap, hosts))


def swap_bytes(state: Mapping[str, Tensor]) -> int:
    """Bytes of a message that carries one discriminator, 3|θ| numbers and a few.

    Args:
        state: `Discriminator.state` after a step: with both of Adam's moments.
    """
    return encoded_bytes(messages.discriminators(1, {1: state}))


def mean_moved(form: str, hosts: Sequence[Sequence[int]]) -> float:
    """How many discriminators change their host in a swap, on average.

    Args:
        form: `pairs`, where an odd worker sits out, or `derangement`.
        hosts: the workers of each host.
    """
    num_workers = sum(map(len, hosts))
    if num_workers < 2:
        return 0.0
    moving = num_workers - (num_workers % 2 if form == "pairs" else 0)
    # Whoever it goes to is as likely one of the others as another.
    away = sum(len(host) * (num_workers - len(host)) for host in hosts)
    return moving * away / (num_workers * (num_workers - 1))


def _last(counted: Sequence[int], count: int) -> list[int]:
    return [counted[-1 - n % min(len(counted), 64)] for n in range(count)]
