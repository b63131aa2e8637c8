"""The most bytes of each kind of message, for given models and batches.

A link refuses a larger message, or one of a kind that is not listed, before it allocates memory for
it. The limits follow from the settings and from the number of ranks that the server has granted a
host, not from anything else that the host says. They are generous for states of models. A host's
messages also have a limit for their JSON, which takes many times its size in memory once decoded;
messages of the server have none.
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
_OF_A_WORKER_BYTES = _KIB  # the JSON of one worker in a message
_OF_A_TENSOR_BYTES = 512
"""What a tensor takes beside its elements: name and shape in JSON, and padding."""
_SPANS = Most(_MIB, _MIB, a_second=2.0)
"""Enough for `observe.tracer.MOST_SPANS`, which a host sends once a second."""
_HELLO_BYTES, _OF_A_RANK_BYTES = 4 * _KIB, 64
_OF_A_CLASS_BYTES = 12
_QUESTIONS: Mapping[str, str] = {
    Kind.REAL: Kind.EXTRACTOR,
    Kind.CHECKPOINTED: Kind.CHECKPOINT,
    Kind.ATTEST: Kind.STOP,
}
"""Kind of answer → the only kind of question that it may answer; other kinds may answer any."""
_UNASKED = {Kind.READY, Kind.LEAVE, Kind.SPENT, Kind.STATE}
"""Kinds of which a host may send one message unasked, as it joins or leaves."""
_KEYS_BYTES = 64 * _MIB
_OF_A_SHARE_BYTES = 256
"""What a share of a secret takes beside itself: its seal, the host's number, a code."""
_REAL_BYTES = 256 * _MIB
_EXTRACTOR_BYTES = 1024 * _MIB
_RANDOM_STATES_BYTES = 64 * _KIB
_MARGIN = 1.1
_OF_A_COUNT_BYTES = 8

Limits = Callable[[int], Mapping[str, int]]
"""From a number of workers to the most bytes of the body of each kind of message."""


@dataclass(frozen=True)
class MessageSizes:
    """How large the messages of one algorithm can be; see the functions of the same names."""

    state_bytes: int
    from_host: Limits  # for a host with this many workers
    from_server: Limits
    between_hosts: Limits = field(default=lambda _: {})
    names_bytes: int = _MIB
    # The most bytes of JSON, for kinds `from_host` that need more than `small_bytes`.
    json_bytes: Limits = field(default=lambda _: {})
    shares_bytes: int = 0
    num_counts: int = 0  # of the kind of sample; see `SampleKind`
    # Kind → how many messages answer one question, where it is not one.
    several: Mapping[str, int] = field(default_factory=dict)


def small_bytes(num_workers: int) -> int:
    """The most bytes of a message that holds a little JSON for each worker."""
    return _SMALL_BYTES + _OF_A_WORKER_BYTES * num_workers


def shares_bytes(num_workers: int, *, is_secure: bool) -> int:
    """The most bytes for the hosts of a sum and the shares that each has for each other one.

    Allows for twice the initial number of workers. It is 0 without masks.
    """
    most = 2 * num_workers
    return int(is_secure) * (_MIB + most * (SECRET_BYTES * most + _OF_A_SHARE_BYTES))


def state_bytes(*networks: Network) -> int:
    """The most bytes that models with their optimizers and names take in a message."""
    total = 0
    for model, policy in networks:
        total += int(_MARGIN * training_bytes((model, policy))) + _MIB
    return total + names_bytes(*networks)


def names_bytes(*networks: Network) -> int:
    """The part of `state_bytes` that names and shapes take."""
    num_tensors = 0
    for model, policy in networks:
        moments, num_parameters = kept_by(policy), len(list(model.parameters()))
        copies = COPIES + len(moments.moments) + len(moments.numbers)
        num_tensors += copies * num_parameters + len(list(model.buffers())) + len(COUNTS)
    return _OF_A_TENSOR_BYTES * num_tensors


def from_host(sizes: MessageSizes, num_workers: int) -> dict[str, Most]:
    """The limits of messages that the server accepts from a host with this many workers."""
    small, json_of_kinds = small_bytes(num_workers), sizes.json_bytes(num_workers)
    limits: dict[str, int] = {
        **sizes.from_host(num_workers),
        Kind.STATE: num_workers * (sizes.state_bytes + _RANDOM_STATES_BYTES) + _SMALL_BYTES,
        Kind.REAL: _REAL_BYTES,
        Kind.COUNTS: _counts_bytes(sizes, num_workers) + sizes.shares_bytes,
        **dict.fromkeys((Kind.READY, Kind.LEAVE, Kind.SPENT, Kind.CHECKPOINTED), small),
        Kind.ATTEST: 2 * small,
    }
    states = small + num_workers * sizes.names_bytes
    heads = {**json_of_kinds, Kind.STATE: states, Kind.ATTEST: 2 * small}

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
    """The most bytes of the hello of a host with this many ranks."""
    counts = _OF_A_CLASS_BYTES * max(num_classes or 0, MOST_CLASSES)
    return _HELLO_BYTES + len(json.dumps(identity)) + num_ranks * (_OF_A_RANK_BYTES + counts)


def from_server(sizes: MessageSizes, count: int) -> dict[str, Most]:
    """The limits of messages that a host with this many workers accepts from the server."""
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
    """The limits of messages between two hosts, also where the server passes them on."""
    head_bytes = small_bytes(num_workers) + num_workers * sizes.names_bytes
    limits = sizes.between_hosts(num_workers)
    return {kind: Most(most, head_bytes) for kind, most in limits.items()}
