"""Parts of messages that a hostile host replaces, and their replacements."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf, nan
from operator import methodcaller
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mdgan.messages import Message


def _filled(value: float, tensor: Tensor) -> Tensor:
    return torch.full(tensor.shape, value)


VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**400, 1e308, nan, inf, "", "x", "\x1b[2J", "9" * 5000),
    *([], [[]], [None], [-1], [1], [4, 4], [[1]], [[4], []], [99], [10**30], [nan]),
    *({}, {"1": 1}, {"1": "0" * 64}, {"99": []}, {"4": nan}, {"": {}}, {"x": {"x": []}}),
)
"""In place of a field: of a wrong type, negative, huge, NaN, empty, of another's rank."""
TENSORS: tuple[Callable[[Tensor], Tensor], ...] = (
    *(partial(_filled, value) for value in (nan, inf, 3e38, -1.0)),
    *(methodcaller("to", kind) for kind in (torch.int64, torch.float64, torch.bool)),
    lambda t: t[:0] if t.dim() else torch.zeros(0),
    lambda _: torch.tensor(1.0),
    lambda t: torch.stack([t, t]),
    lambda t: torch.cat([t, t]) if t.dim() else t,
    lambda t: t.flatten(),
)
"""In place of a tensor."""


class Lie(NamedTuple):
    """Which part of a message is replaced, and by what.

    Attributes:
        part: counts the fields and tensors of the message, and then from the first again.
        value: counts the values that may stand there, and then from the first again; 0: none.
    """

    part: int
    value: int

    def applied_to(self, message: Message) -> Message:
        """The message with that part replaced or missing."""
        parts = [*sorted(message.fields), *sorted(message.tensors)]
        if not parts:
            return message
        name = parts[self.part % len(parts)]
        fields: dict[str, Any] = {**message.fields}
        tensors: Mapping[str, Tensor] = {n: t for n, t in message.tensors.items() if n != name}
        if name not in fields and (place := self.value % (len(TENSORS) + 1)):
            tensors = {**tensors, name: TENSORS[place - 1](message.tensors[name])}
        elif name in fields:
            del fields[name]
            if place := self.value % (len(VALUES) + 1):
                fields[name] = VALUES[place - 1]
        return replace(message, fields=fields, tensors=tensors)
