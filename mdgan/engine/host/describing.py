"""Computes a host's statistics of real data: sums over features, in pieces; no sample leaves.

The server may belong to another owner than the data, and it sends the network that makes features.
So a host sends sums only if they hide each sample among others, and for few networks. If it sends
none, it tells the server why in words that name no file; the host's own log has the whole reason.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from mdgan import messages
from mdgan.data.shard import Shard
from mdgan.engine.host.protocol import sensible
from mdgan.errors import BadInput
from mdgan.messages import Message
from mdgan.metrics.chosen import CLASSIFIER, unpack
from mdgan.metrics.classifier import RANDOM
from mdgan.metrics.extractor import Extractor
from mdgan.metrics.real_statistics import RealStatistics, added_up
from mdgan.spelling import flag

_log = logging.getLogger(__name__)

_MOST_NETWORKS = 2
"""One of the server, and one of a server that takes over on another kind of machine."""
_LEAST = 64  # sums over fewer samples would reveal much of each
_SEE_LOG = "its own log says why"


class Withheld(BadInput):
    """This host does not send its statistics; the text names no file."""


@dataclass
class Describer:
    """Adds up the statistics of all shards of one host, in steps short enough to fit into waiting.

    Attributes:
        own_file: this machine's extractor file; None if it agreed to the data set's classifier.
        why_not: why the user lets this host send none; empty if it may.
        shape: of a sample; None if it is not known.
        server_is_here: whether the server runs on this machine, for the same user. It could read
            the data itself, so sums over any number of samples reveal nothing new to it.
    """

    shards: Mapping[int, Shard]
    own_file: Path | None
    device: torch.device
    why_not: str = ""
    shape: tuple[int, ...] | None = None
    server_is_here: bool = False
    _networks: set[str] = field(default_factory=set, init=False)
    _steps: Iterator[dict[str, Tensor] | None] | None = field(default=None, init=False)

    @property
    def busy(self) -> bool:
        """Whether statistics are still to be computed."""
        return self._steps is not None

    def begin(self, message: Message) -> None:
        """Starts anew with the network of an EXTRACTOR message."""
        self._steps = self._work(message)

    def step(self, iteration: int) -> Message | None:
        """Does one piece of the work; returns a REAL message once it is done, or has failed."""
        assert self._steps is not None
        reason = ""
        try:
            sums = next(self._steps)
        except BadInput as error:
            if str(error) != self.why_not:  # else the user knows, having asked for it
                told = "warning: the server is told nothing of the data here: %s"
                _log.warning(told, error.marked)
            sums, reason = {}, str(error) if isinstance(error, Withheld) else _SEE_LOG
        if sums is None:
            return None
        self._steps = None
        return messages.real(iteration, sums, reason)

    def _work(self, message: Message) -> Iterator[dict[str, Tensor] | None]:
        if self.why_not:
            raise Withheld(self.why_not)
        with sensible(message.kind):
            # A network of another shape could take any amount of memory.
            if self.shape is not None and message.fields["shape"] not in (None, [*self.shape]):
                raise ValueError(f"samples are {[*self.shape]}")
            extractor = unpack(message.fields, message.tensors, self.own_file).to(self.device)
        self._networks.add(extractor.sha256)
        if len(self._networks) > _MOST_NETWORKS:
            self._networks.remove(extractor.sha256)
            raise Withheld(f"it has described its data by {_MOST_NETWORKS} other networks already")
        for so_far in added_up(self.shards.values(), extractor):
            total = so_far
            yield None
        if not self.server_is_here:
            _check_enough(total, extractor)
        yield total.tensors()


def _check_enough(total: RealStatistics, extractor: Extractor) -> None:
    """Checks that sums over a host's samples hide each of them among others.

    With no more samples than features, Σffᵀ gives all features up to a rotation, and shows of any
    picture whether it is among the samples. Where the server has made the network, features may be
    pixels, so there must be twice as many samples. (The user knows the features of a network that
    this machine agreed to.) No samples are enough, too.

    Raises:
        Withheld: there are too few samples.
    """
    least = _LEAST
    if extractor.kind in (CLASSIFIER, RANDOM):
        least = max(least, 2 * (extractor.num_features + 1), 2 * (extractor.num_classes + 1))
    if 0 < total.num_samples < least:
        raise Withheld(
            f"it has {total.num_samples} sample(s), and sums over fewer than {least} would tell "
            f"too much of each; carry more workers in one host with {flag('workers_per_host')}"
        )
