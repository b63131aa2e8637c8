"""What sums over the features of samples tell of each of them."""

from mdgan.errors import BadInput
from mdgan.metrics.chosen import CLASSIFIER
from mdgan.metrics.classifier import RANDOM
from mdgan.metrics.extractor import Extractor
from mdgan.metrics.real_statistics import RealStatistics

_LEAST = 64
"""Sums over few samples are almost samples."""


class Withheld(BadInput):
    """This host keeps to itself what it was asked for; the text names no file."""


def check_enough(total: RealStatistics, extractor: Extractor) -> None:
    """Checks that sums over a host's samples hide each of them among others.

    From Σffᵀ of no more samples than features, all features can be computed up to a rotation, and
    of any picture it can be told whether it is among the samples. Where the server has made the
    network, features may be pixels, so twice as many samples are asked for. (Of a network that this
    machine agreed to, the user knows what it tells.) No samples tell nothing.

    Raises:
        Withheld: there are too few samples.
    """
    least = _LEAST
    if extractor.kind in (CLASSIFIER, RANDOM):
        least = max(least, 2 * (extractor.num_features + 1), 2 * (extractor.num_classes + 1))
    if 0 < total.num_samples < least:
        raise Withheld(
            f"it has {total.num_samples} sample(s), and sums over fewer than {least} would tell "
            "too much of each; carry more workers in one host with --workers-per-host"
        )
