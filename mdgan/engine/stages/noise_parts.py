"""Noise that certificates add together: what the server says of it, and what each host adds.

Each host says how much noise its workers' accounts take. All hosts of a sum are told the least of
others, and each has as much itself; see `privacy/shared_noise.py`.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Any

import msgspec

from mdgan.engine.host_keys import NotMasked
from mdgan.engine.server.hosts import Hosts
from mdgan.engine.server.peers import Peers
from mdgan.engine.stages.contract import HostPath, ServerPath
from mdgan.messages import Message
from mdgan.privacy.accountant import MOST_NOISE
from mdgan.privacy.shared_noise import variance_of_part

_LEAST = "least_noise"
OF_ANSWERS, OF_COUNTS = "noise", "counts_noise"  # fields of what a host says of its workers


def least_noise(question: Message) -> float:
    """The least that the accounts of any other host in the sum take, as the server says."""
    least = question.fields.get(_LEAST)
    return float(least) if isinstance(least, int | float) else 0.0


def parts_of_noise(
    question: Message, path: HostPath, noises: Mapping[int, float]
) -> dict[int, float]:
    """By what each rank multiplies its noise σ: all of this host add what one of M sharers adds."""
    if not noises:
        return {}
    most, least = max(noises.values()), least_noise(question)
    if not 0 <= least <= most:
        raise NotMasked(f"it says that others add noise of {least:g} at least, and not {most:g}")
    variance = variance_of_part(most, least, path.num_sharers(question)) / len(noises)
    return {rank: sqrt(variance) / noise for rank, noise in noises.items()}


def noise_of_sum(
    hosts: Hosts, field: str, path: ServerPath, peers: Peers
) -> tuple[dict[str, Any], dict[int, float]]:
    """Fields of a question to hosts, and the variance of each worker's noise, by what they said."""
    read = {host: read_noise(peers.told().get(host, {}), field) for host in hosts}
    said = {h: {n: read[h].get(n, 0.0) for n in own} for h, own in hosts.items() if own}
    least = min((max(own.values()) for own in said.values()), default=0.0)
    sharers = path.num_sharers(hosts, peers)
    variances = {
        n: variance_of_part(max(own.values()), least, sharers) / len(own)
        if path.hides_answers
        else noise**2
        for own in said.values()
        for n, noise in own.items()
    }
    return {_LEAST: least}, variances


def read_noise(told: Mapping[str, Any], field: str = OF_ANSWERS) -> dict[int, float]:
    """The standard deviation of each worker's noise, as a host says; 0 where it makes no sense."""
    try:
        given = msgspec.convert(told.get(field, {}), dict[int, float], strict=False)
    except msgspec.ValidationError:
        return {}
    return {n: noise if 0 <= noise <= MOST_NOISE else 0.0 for n, noise in given.items()}
