"""A host's side of swaps: its workers give their discriminators away, and try those that arrive.

A worker tries each discriminator before it uses it, also one of a worker on the same host: results
must not depend on which workers share a host. Sizes: no weights or moments may be much larger or
smaller than those of its present D. Judgement: on the samples that the worker judged last, the
feedback of the new D must point along that of the present D; otherwise, where the present D clearly
tells real samples from generated ones, the new D must do so, too. Only sizes count where honest
discriminators disagree (with a class each and a swap every 20 iterations workers refused 105 of 190
honest moves), and under differential privacy, which counts each use of a sample.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import NamedTuple

import torch
from torch import Tensor

from mdgan.engine.stages.contract import HostPath
from mdgan.families.mdgan.messages import DISCRIMINATORS
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from mdgan.gan.model_state import State, digest_of, part_of
from mdgan.gan.optimizers import SLOW
from mdgan.messages import Message, of_workers
from mdgan.transport.base import Lost, Tickets

_log = logging.getLogger(__name__)

_ALONG = 0.02  # how much of the worker's last feedback must show in that of the new D
_HARDLY, _CLEARLY = 2.0, 4.0
"""Standard errors by which a discriminator rates real samples above generated ones. By 64 samples
both signs fail in at most 1 of 100 honest moves on sorted digits and in none of 798 on even ones,
but in two of three to three of four where weights are noise."""
_WEIGHTS = 2.0
"""Between the mean sizes of the same weights of two honest discriminators; 1.4 on digits."""
_SQUARES = 10.0  # as for weights; 4 on digits
_FEW = 1000  # the mean of fewer numbers differs by chance, so the bounds are wider
_TRIED = 64  # samples on which a worker tries whether D tells real ones; ten are too few
_ROUNDING, _TINY = 1.1, 1e-12
_MANY = torch.tensor(math.inf)
_UNLEARNT, _UNLEARNT_BIAS = 0.01, 1.0
"""Added to mean sizes of weights and of biases, which may begin at 0 and then differ by chance."""

Exchange = Callable[..., Mapping[int, Message | Lost]]  # `HostTransport.exchange`


class Answered(NamedTuple):
    """The last batch that a worker judged, its feedback, [b, C, H, W] each, and earlier batches."""

    judged: Samples
    feedback: Tensor
    before: Sequence[Samples] = ()

    def judged_before(self) -> Sequence[Samples]:
        """The `before` of the worker's next answer: up to about `_TRIED` samples in all."""
        return [self.judged, *self.before][: -(-_TRIED // len(self.judged)) - 1]

    @property
    def generated(self) -> Samples:
        """All samples of these batches, [m, C, H, W]."""
        return reduce(Samples.and_then, self.before, self.judged)


class Swapped(NamedTuple):
    """SHA-256 of the D that each worker of this host gave, and took; and workers that took none."""

    given: dict[int, str]
    taken: dict[int, str]
    refused: list[int]


def carry_out(
    order: Message,
    workers: Mapping[int, Worker],
    exchange: Exchange,
    path: HostPath,
    answered: Mapping[int, Answered],
) -> Swapped:
    """Carries out the server's SWAP; a worker that gets no usable discriminator keeps its present.

    If the order asks for means, a worker that also gives goes on with the mean of both. A worker
    tries a new discriminator on the batches that it `answered` last.
    """
    moves = {giver: taker for giver, _, taker, _ in order.fields["moves"]}
    for rank in workers.keys() & {*moves, *moves.values()}:
        workers[rank].undo_real_half()  # a host that has just rejoined may have learnt one
    present = {giver: workers[giver].discriminator.moving() for giver in moves if giver in workers}
    swapped = Swapped({giver: digest_of(state) for giver, state in present.items()}, {}, [])
    arrived = _from_others(order, present, workers, exchange=exchange, path=path)
    for giver, taker in moves.items():
        state = present.get(giver) or arrived.get(taker)
        if taker not in workers or not state:
            continue
        try:
            _take_over(
                workers[taker],
                state,
                present=present.get(taker),
                answered=answered.get(taker),
                agree=order.fields["agree"],
                mean=order.fields["means"] and taker in moves,
            )
        except (KeyError, RuntimeError) as error:  # broken, or not of this architecture
            _log.info("rank %d keeps its own discriminator: %s", taker, error)
            swapped.refused.append(taker)
        else:
            swapped.taken[taker] = swapped.given.get(giver) or digest_of(state)
    return swapped


def _take_over(
    worker: Worker,
    new: State,
    *,
    present: State | None,
    answered: Answered | None,
    agree: bool,
    mean: bool,
) -> None:
    """Gives a worker another discriminator, or their mean, once it has tried it.

    Raises:
        RuntimeError, KeyError: the worker keeps its own.
    """
    if present is None or answered is None:  # there is nothing to compare with
        worker.take(new, mean=mean)
        return
    _check_weights(worker, present, new)
    _check_moments(worker, present, new)
    keep = partial(worker.discriminator.load_moving, present)
    try:
        worker.take(new)
        generated = answered.generated
        if agree and not (_goes_along(worker, answered) or worker.told_apart(generated) >= _HARDLY):
            keep()
            if worker.told_apart(generated) > _CLEARLY:
                raise RuntimeError("it does not tell real samples from generated ones")
            worker.take(new)
        if mean:
            keep()
        if mean or any(True for _ in worker.discriminator.model.buffers()):  # trials change them
            worker.take(new, mean=mean)
    except (KeyError, RuntimeError):
        keep()
        raise


def _goes_along(worker: Worker, answered: Answered) -> bool:
    """Whether D's feedback points along the worker's last; draws no random number."""
    feedback, random = answered.feedback, worker.random_state.tensors()
    gradient = worker.feedback(answered.judged).feedback
    worker.random_state.restore(random)
    return bool((gradient * feedback).sum() >= _ALONG * feedback.square().sum())


def _check_weights(worker: Worker, present: State, new: State) -> None:
    """Refuses, by RuntimeError, weights that are much larger or smaller than a worker's own."""
    buffers = {f"model.{name}" for name, _ in worker.discriminator.model.named_buffers()}
    weights = [
        name
        for name in present.keys() & new.keys() - buffers
        if name.startswith("model.") or name.endswith(f".{SLOW}")
    ]
    both = zip(weights, _sizes(present, weights), _sizes(new, weights), strict=True)
    for name, before, now in both:
        least = _UNLEARNT if present[name].dim() > 1 else _UNLEARNT_BIAS
        most, least_now = (least + before) * _WEIGHTS, (least + before) / _WEIGHTS
        if math.isfinite(before) and not least_now <= least + now <= most:
            raise RuntimeError(f"{name} is much larger or smaller than its own")


def _check_moments(worker: Worker, present: State, new: State) -> None:
    """Refuses, by RuntimeError, moments of Adam and LAMB after which D hardly learns, or leaps."""
    usual, found = (_mean_squares(worker, state) for state in (present, new))
    beta1, beta2 = worker.discriminator.optimizer.param_groups[0].get("betas", (0.0, 0.0))
    # The most that a first moment can be, beside the root of the second (Cauchy and Schwarz).
    most = (1 - beta1) / math.sqrt(max(_TINY, (1 - beta2) * (1 - beta1**2 / max(_TINY, beta2))))
    both = [parameter for parameter in usual if parameter in found]
    firsts = [name for p in both if (name := f"{p}.exp_avg") in new]
    first = dict(zip(firsts, _sizes(new, firsts), strict=True))
    for parameter in both:
        size = found[parameter]
        most_times = _SQUARES * (1 + _FEW / present[f"{parameter}.exp_avg_sq"].numel())
        before = usual[parameter]
        if math.isfinite(before) and not before / most_times <= size <= before * most_times:
            raise RuntimeError(f"squares of {parameter} are much larger or smaller than its own")
        if not first.get(f"{parameter}.exp_avg", 0.0) <= _ROUNDING * most * math.sqrt(size):
            raise RuntimeError(f"no gradients make moments of {parameter} so large")


def _mean_squares(worker: Worker, state: State) -> dict[str, float]:
    """By parameter, the mean of its squared gradients, without what the first steps take away."""
    _, beta = worker.discriminator.optimizer.param_groups[0].get("betas", (0.0, 0.0))
    names = [name for name in state if name.endswith(".exp_avg_sq")]
    squares = {}
    for name, size in zip(names, _sizes(state, names), strict=True):
        parameter = name.removesuffix(".exp_avg_sq")
        steps = state.get(f"{parameter}.step", state.get("optimizer..step", _MANY))
        squares[parameter] = size / (1.0 - beta ** max(1.0, float(steps)))
    return squares


def _sizes(state: State, names: Sequence[str]) -> list[float]:
    """The mean absolute value of each tensor."""
    if not names:
        return []
    norms = torch._foreach_norm([state[name].float() for name in names], 1)  # in one call
    return [
        norm / max(1, state[name].numel())
        for norm, name in zip(torch.stack(norms).tolist(), names, strict=True)
    ]


def _from_others(
    order: Message,
    present: Mapping[int, State],
    workers: Mapping[int, Worker],
    exchange: Exchange,
    path: HostPath,
) -> dict[int, State]:
    """Exchanges with other hosts; returns what has arrived, by the worker that takes it."""
    away: dict[int, dict[int, State]] = {}
    from_hosts: dict[int, int] = {}
    for giver, givers_host, taker, takers_host in order.fields["moves"]:
        if giver in present and taker not in workers:
            away.setdefault(takers_host, {})[taker] = present[giver]
        elif giver not in present and taker in workers:
            from_hosts[taker] = givers_host
    outgoing = {}
    for host, states in away.items():
        message = Message(DISCRIMINATORS, order.iteration, {}, tensors=of_workers(states))
        if (parcel := path.parcel(host, message)) is not None:
            outgoing[host] = parcel
    addresses, gives, takes = (
        {int(host): value for host, value in order.fields[name].items()}
        for name in ("addresses", "gives", "takes")
    )
    tickets, givers = Tickets(gives, takes), set(from_hosts.values())
    incoming = exchange(order.iteration, outgoing, givers, addresses, tickets)
    opened = {
        host: _opened(host, order.iteration, parcel, path)
        for host, parcel in incoming.items()
        if isinstance(parcel, Message)
    }
    return {n: part_of(opened[host], f"{n}/") for n, host in from_hosts.items() if host in opened}


def _opened(host: int, iteration: int, parcel: Message, path: HostPath) -> State:
    try:
        return path.opened(host, DISCRIMINATORS, iteration, parcel)
    except ValueError as error:
        _log.warning("a discriminator in the swap of iteration %d is refused: %s", iteration, error)
        return {}
