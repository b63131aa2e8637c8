"""Clients that train at once (`--vectorize`): groups of equal loads, as long as that works."""

import logging
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from mdgan.families.federated.fl_gan import Client
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.federated.training_load import Load
from mdgan.gan.model_stack import CannotStack

_log = logging.getLogger(__name__)

LEAST_AT_ONCE = 8
"""Fewer are faster one after another (`python -m benchmarks.vectorized --algorithm fl-gan`)."""
MOST_AT_ONCE = 32
"""Clients of a group: more take memory, and are hardly faster."""


class Together:
    """Trains groups of clients.

    Args:
        settings: of the run.
    """

    def __init__(self, settings: FederatedSettings) -> None:
        self._most = MOST_AT_ONCE if settings.vectorize else 1
        self._works = None if settings.vectorize else False
        why_not = _why_not(settings)
        if settings.vectorize and why_not:
            self._give_up(why_not)

    def groups(
        self, loads: Mapping[int, Load], num_samples: Callable[[int], int]
    ) -> list[list[int]]:
        """Clients that train the same number of batches of the same size.

        Clients that too few others are like, and all if it is off, are groups of one.

        Args:
            loads: of the clients, in order.
            num_samples: of a client.
        """
        if self._most == 1:
            return [[client] for client in loads]
        alike: dict[tuple[int, int], list[int]] = {}
        for client, load in loads.items():
            batch_size = min(load.batch_size, num_samples(client))
            alike.setdefault((load.iterations, batch_size), []).append(client)
        return [
            group
            for clients in alike.values()
            for group in _evenly(clients, self._most if len(clients) >= LEAST_AT_ONCE else 1)
        ]

    def train(
        self, clients: Sequence[Client], models: Tensor, load: Load, last: int
    ) -> list[tuple[Tensor, Tensor]]:
        """`Client.train` of each of a group.

        Args:
            clients: of the group.
            models: to begin with.
            load: of each.
            last: the last iteration of the round.
        """
        if len(clients) > 1 and self._works is not False:
            try:
                found = Client.train_at_once(
                    clients,
                    models,
                    load.iterations,
                    load.batch_size,
                    last,
                    rehearses=self._works is None,
                )
            except CannotStack as reason:
                self._give_up(str(reason))
            else:
                self._works = True
                return found
        return [c.train(models, load.iterations, load.batch_size, last) for c in clients]

    def _give_up(self, why: str) -> None:
        _log.warning("clients train one after another: %s", why)
        self._works, self._most = False, 1


def _why_not(settings: FederatedSettings) -> str:
    """Why no models can be trained at once with these settings; empty if they may be."""
    if settings.training.arithmetic.compile:
        return "compiled models are called one by one"
    if any(
        settings.training.policy(who).clip_norm is not None
        for who in ("generator", "discriminator")
    ):
        return "gradients are clipped one client at a time"
    return ""


def _evenly(clients: Sequence[int], most: int) -> list[list[int]]:
    """Clients in as few groups as possible, whose sizes differ by one at most."""
    number = -(-len(clients) // most)
    each, left = divmod(len(clients), number)
    ends = [(n + 1) * each + min(n + 1, left) for n in range(number)]
    return [list(clients[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
