"""How many bytes each kind of message may have, for given models and batches.

A link refuses what is larger, or of a kind that is not listed, before it takes memory for it. The
limits follow from the settings and from the number of a host's ranks, which the server has allowed,
and from nothing else that a host says. They are generous where states of models travel. What a host
sends is also bound in its JSON, which takes many times its size as values; a host believes the
server.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mdgan.engine.hello import MOST_CLASSES
from mdgan.gan.optimizers import COPIES, COUNTS, Network, kept_by, training_bytes
from mdgan.messages import Kind
from mdgan.privacy.masks import SECRET_BYTES
from mdgan.transport.frames import Most

_KIB, _MIB = 1 << 10, 1 << 20
_SMALL_BYTES = 64 * _KIB
_OF_A_WORKER_BYTES = _KIB  # what a worker may add to the JSON of a message
_OF_A_TENSOR_BYTES = 512
"""What a tensor may add beside its elements: name and shape in JSON, and padding."""
_SPANS = Most(_MIB, _MIB, a_second=2.0)
"""Enough for `observe.tracer.MOST_SPANS`, which a host tells once a second."""
_HELLO_BYTES, _OF_A_RANK_BYTES = 4 * _KIB, 64
_OF_A_CLASS_BYTES = 12
_QUESTIONS: Mapping[str, str] = {
    Kind.REAL: Kind.EXTRACTOR,
    Kind.CHECKPOINTED: Kind.CHECKPOINT,
    Kind.ATTEST: Kind.STOP,
}
"""What the server asks for a kind of message; others may answer anything that it sends."""
_UNASKED = {Kind.READY, Kind.LEAVE, Kind.SPENT, Kind.STATE}
"""What a host may say once by itself, as it comes or goes."""
_KEYS_BYTES = 64 * _MIB
_OF_A_SHARE_BYTES = 256
"""What a host's shares have beside them: what seals them, its number, a code."""
_REAL_BYTES = 256 * _MIB
_EXTRACTOR_BYTES = 1024 * _MIB
_RANDOM_STATES_BYTES = 64 * _KIB
_MARGIN = 1.1
_OF_A_COUNT_BYTES = 8

Limits = Callable[[int], Mapping[str, int]]
"""From a number of workers to the kinds of message, each with the most bytes of its body."""


@dataclass(frozen=True)
class MessageSizes:
    """How large the messages of one algorithm can be; see the functions of the same names."""

    state_bytes: int
    from_host: Limits  # the kinds that a host with this many workers may send to the server
    from_server: Limits
    between_hosts: Limits = field(default=lambda _: {})
    names_bytes: int = _MIB
    # The most JSON of those kinds `from_host` that have more than `small_bytes`.
    json_bytes: Limits = field(default=lambda _: {})
    shares_bytes: int = 0
    num_counts: int = 0  # of the kind of sample; see `SampleKind`
    # How many messages of such a kind answer one question, if not one.
    several: Mapping[str, int] = field(default_factory=dict)


def small_bytes(num_workers: int) -> int:
    """Of a message that holds a little JSON for each of some workers."""
    return _SMALL_BYTES + _OF_A_WORKER_BYTES * num_workers


def shares_bytes(num_workers: int, *, is_secure: bool) -> int:
    """Of which hosts take part in a sum, and the shares that each has for each other one.

    Twice as many workers may come as there are at the beginning. It is 0 without masks.
    """
    most = 2 * num_workers
    return int(is_secure) * (_MIB + most * (SECRET_BYTES * most + _OF_A_SHARE_BYTES))


def state_bytes(*networks: Network) -> int:
    """The most bytes that models, their optimizers and their names take in a message."""
    total = 0
    for model, policy in networks:
        total += int(_MARGIN * training_bytes((model, policy))) + _MIB
    return total + names_bytes(*networks)


def names_bytes(*networks: Network) -> int:
    """The most bytes that the names and shapes of what `state_bytes` counts take in a message."""
    num_tensors = 0
    for model, policy in networks:
        kept, num_parameters = kept_by(policy), len(list(model.parameters()))
        copies = COPIES + len(kept.moments) + len(kept.numbers)
        num_tensors += copies * num_parameters + len(list(model.buffers())) + len(COUNTS)
    return _OF_A_TENSOR_BYTES * num_tensors


def from_host(sizes: MessageSizes, num_workers: int) -> dict[str, Most]:
    """What the server accepts from a host that carries so many workers."""
    small, own = small_bytes(num_workers), sizes.json_bytes(num_workers)
    limits: dict[str, int] = {
        **sizes.from_host(num_workers),
        Kind.STATE: num_workers * (sizes.state_bytes + _RANDOM_STATES_BYTES) + _SMALL_BYTES,
        Kind.REAL: _REAL_BYTES,
        Kind.COUNTS: _counts_bytes(sizes, num_workers) + sizes.shares_bytes,
        **dict.fromkeys((Kind.READY, Kind.LEAVE, Kind.SPENT, Kind.CHECKPOINTED), small),
        Kind.ATTEST: 2 * small,
    }
    states = small + num_workers * sizes.names_bytes
    heads = {**own, Kind.STATE: states, Kind.ATTEST: 2 * small}

    def most(kind: str) -> Most:
        return Most(
            limits[kind],
            heads.get(kind, small),
            unasked=int(kind in _UNASKED),
            each=sizes.several.get(kind, 1),
            answers=_QUESTIONS.get(kind, ""),
        )

    return {kind: most(kind) for kind in limits} | {Kind.SPANS: _SPANS}


def hello_bytes(identity: Mapping[str, Any], num_classes: int | None, num_ranks: int) -> int:
    """The most that a host of so many ranks says of itself, with what must be equal on all."""
    counts = _OF_A_CLASS_BYTES * max(num_classes or 0, MOST_CLASSES)
    return _HELLO_BYTES + len(json.dumps(identity)) + num_ranks * (_OF_A_RANK_BYTES + counts)


def from_server(sizes: MessageSizes, count: int) -> dict[str, Most]:
    """What a host of so many workers accepts from the server."""
    limits: dict[str, int] = {
        **sizes.from_server(count),
        Kind.EXTRACTOR: _EXTRACTOR_BYTES,
        Kind.ADOPT: from_host(sizes, count)[Kind.STATE].body_bytes,
        Kind.KEYS: _KEYS_BYTES,
        Kind.LEARNT: _counts_bytes(sizes, count),
        Kind.ASKCOUNTS: small_bytes(count) + sizes.shares_bytes,
        **dict.fromkeys((Kind.SURVIVORS, Kind.UNMASK), count * sizes.shares_bytes),
        **dict.fromkeys((Kind.STOP, Kind.COPY, Kind.CHECKPOINT), small_bytes(count)),
    }
    return {kind: Most(most, most) for kind, most in limits.items()}


def _counts_bytes(sizes: MessageSizes, num_workers: int) -> int:
    return _OF_A_COUNT_BYTES * sizes.num_counts + small_bytes(num_workers)


def between_hosts(sizes: MessageSizes, num_workers: int) -> dict[str, Most]:
    """What a host of so many workers accepts from another one, and the server for it."""
    head_bytes = small_bytes(num_workers) + num_workers * sizes.names_bytes
    limits = sizes.between_hosts(num_workers)
    return {kind: Most(most, head_bytes) for kind, most in limits.items()}
