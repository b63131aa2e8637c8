"""Noise that certificates add together: how much each host adds (see `privacy/shared_noise.py`).

Each host sends the server how much noise its workers' accounts need. The server sends all hosts of
a sum the least of these amounts, and each host counts on the others for no more.
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
OF_ANSWERS, OF_COUNTS = "noise", "counts_noise"  # fields of a host's hello


def least_noise(question: Message) -> float:
    """The least noise that the accounts of any other host in the sum need, as the server says."""
    least = question.fields.get(_LEAST)
    return float(least) if isinstance(least, int | float) else 0.0


def parts_of_noise(
    question: Message, path: HostPath, noises: Mapping[int, float]
) -> dict[int, float]:
    """By rank, the factor of its noise σ: a host's ranks together add one of M parts."""
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
    """The fields of a question to hosts, and by worker the variance of the noise in its answer."""
    read = {host: read_noise(peers.told().get(host, {}), field) for host in hosts}
    noises = {h: {n: read[h].get(n, 0.0) for n in ranks} for h, ranks in hosts.items() if ranks}
    least = min((max(by_rank.values()) for by_rank in noises.values()), default=0.0)
    sharers = path.num_sharers(hosts, peers)
    variances = {
        n: variance_of_part(max(by_rank.values()), least, sharers) / len(by_rank)
        if path.hides_answers
        else noise**2
        for by_rank in noises.values()
        for n, noise in by_rank.items()
    }
    return {_LEAST: least}, variances


def read_noise(hello: Mapping[str, Any], field: str = OF_ANSWERS) -> dict[int, float]:
    """By worker, the σ that its host has sent in its hello; 0 for an impossible value."""
    try:
        noises = msgspec.convert(hello.get(field, {}), dict[int, float], strict=False)
    except msgspec.ValidationError:
        return {}
    return {n: noise if 0 <= noise <= MOST_NOISE else 0.0 for n, noise in noises.items()}
