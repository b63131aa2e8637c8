"""Which worker gives its discriminator to which other, drawn by the server.

Hardy et al. let every worker choose a partner (Algorithm 1, SWAP); Darmanger and Gombas draw
non-overlapping pairs at the server (section 5.3), which is our default.
"""

from collections.abc import Sequence

import torch

from mdgan.gan.randomness import derive_seed, generator_for

Moves = dict[int, int]
"""Giver → taker. Workers that are not in it keep their discriminator."""


def draw_swap(form: str, seed: int, number: int, workers: Sequence[int]) -> Moves:
    """Draws the swap of a number, counted from 0; there are no moves of fewer than two workers."""
    ordered = sorted(workers)
    if len(ordered) < 2:
        return {}
    draw = _pairs if form == "pairs" else _derangement
    return draw(seed, number, ordered)


def _pairs(seed: int, number: int, workers: list[int]) -> Moves:
    """Draws pairs that do not overlap; each member gives to the other."""
    active = list(workers)
    if len(active) % 2:
        active.remove(_sits_out(seed, number, workers))
    order = _shuffled(active, derive_seed(seed, "pairs", number))
    moves: Moves = {}
    for first, second in zip(order[::2], order[1::2], strict=True):
        moves[first], moves[second] = second, first
    return moves


def _derangement(seed: int, number: int, workers: list[int]) -> Moves:
    """Draws a uniformly random permutation in which no worker keeps its own discriminator."""
    attempt = 0
    while True:  # a random permutation has no fixed point with probability ≥ 1/3 (N ≥ 2)
        takers = _shuffled(workers, derive_seed(seed, "derangement", number, attempt))
        if all(giver != taker for giver, taker in zip(workers, takers, strict=True)):
            return dict(zip(workers, takers, strict=True))
        attempt += 1


def _sits_out(seed: int, number: int, workers: list[int]) -> int:
    """The worker without a partner in swap `number`, for an odd count of at least 3."""
    round_number, turn = divmod(number, len(workers))
    order = _shuffled(workers, derive_seed(seed, "sits-out", round_number))
    if round_number:
        before = _shuffled(workers, derive_seed(seed, "sits-out", round_number - 1))
        if before[-1] == order[0]:  # the only way to sit out twice in a row
            order[0], order[1] = order[1], order[0]
    return order[turn]


def _shuffled(workers: list[int], seed: int) -> list[int]:
    order = torch.randperm(len(workers), generator=generator_for(seed))
    return [workers[index] for index in order.tolist()]
