"""`SampleKind`: the interface by which mdgan reads, shows and scores a kind of sample."""

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor, nn

from mdgan.errors import BadInput

Shape = tuple[int, ...]  # of one sample, such as (C, H, W) of a picture

Writer = Callable[[Tensor, Tensor | None], bytes]
"""Makes a file from samples, float32 [n, *shape], and their classes, int64 [n] or None."""

HeldOut = tuple[Tensor, Tensor]
"""Samples that the server may hold, float32 [n, *shape], and their classes, int64 [n]."""


@dataclass(frozen=True)
class Verdict:
    """The scores that a kind of sample gives generated samples."""

    scores: dict[str, float]  # by name; every number is finite
    # The scores that could not be computed: by name, the reason in one line.
    left_out: dict[str, str] = field(default_factory=dict)
    # Some of the same scores for real samples, by name.
    real: dict[str, float] = field(default_factory=dict)
    num_held_out: int = 0  # the number of held-out samples that the scores used
    figures: dict[str, Any] = field(default_factory=dict)  # what the report draws, as JSON
    rare: list[dict[str, Any]] = field(default_factory=list)  # see `ScoresRow`


Judge = Callable[[Tensor, Tensor | None], Verdict]
"""Scores generated samples, float32 [n, *shape], with their classes, int64 [n]."""


class Where(NamedTuple):
    """Selects the samples that meet a user's conditions."""

    label: int | None  # the class that a condition names; None without such a condition
    # Takes samples [n, *shape] and their classes, int64 [n] or None; returns a mask, bool [n].
    keeps: Callable[[Tensor, Tensor | None], Tensor]
    real_shares: str = ""  # in words, the share of real samples that meet each condition, if known


def npz_of(samples: Tensor, labels: Tensor | None) -> bytes:
    """Makes a numpy file: `images`, float32 [n, *shape] in [−1, 1]; `labels`, int64 [n], if any."""
    arrays = {"images": samples.numpy()}
    if labels is not None:
        arrays["labels"] = labels.numpy()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type] # numpy's stubs take the arrays for its own flag
    return buffer.getvalue()


class SampleKind(ABC):
    """One kind of sample: pictures, rows of a table, plain tensors.

    Training sees samples as float32 in [−1, 1]. An object of this class belongs to one data set,
    and knows its particulars, such as the columns of a table. Some kinds can encode samples only
    after all sites have added up counts of them: `num_counts` is then above 0.
    """

    name: ClassVar[str]  # one word for messages, in the plural where there is one
    is_seen: ClassVar[bool] = False  # whether `png` and `class_png` draw samples
    # Whether `judge` scores samples; otherwise mdgan compares features of a network.
    judges: ClassVar[bool] = False
    most_scored: ClassVar[int] = 1 << 40  # a score uses at most this many generated samples
    # The weight of each value when two samples are compared; empty if all weigh alike.
    value_weights: tuple[float, ...] = ()
    num_counts: int = 0  # how many counts all sites add up before training
    num_noisy_counts: int = 0  # how many sums a site sends under noise; see `noisy_form`
    num_histograms: int = 0  # a single sample adds 1 to at most this many of those sums
    counts_meaning: str = ""  # a text that differs if the counts of the same samples would

    @abstractmethod
    def why_not(self, shape: Shape) -> str:
        """Says in a few words why samples of this kind cannot have a shape; empty if they can."""

    def contents(self, samples: Tensor) -> list[bytes]:
        """The bytes by which the privacy ledger recognises each of samples [n, *shape]."""
        return [sample.tobytes() for sample in samples.contiguous().numpy()]

    def writers(self) -> Mapping[str, Writer]:
        """The functions that write samples, by the ending of a file; the default comes first."""
        return {".npz": npz_of}

    def in_python(self, samples: Tensor, labels: Tensor | None) -> Any:
        """Converts samples [n, *shape] and classes, int64 [n] or None, for a user of Python."""
        del labels
        return samples

    def as_written(self, samples: Tensor) -> Tensor:
        """Rounds samples [n, *shape] as writing them to a file and reading them again would."""
        return samples

    def png(self, samples: Tensor, columns: int | None = None) -> bytes:
        """Draws samples [n, *shape] side by side as PNG; TypeError unless `is_seen`.

        Args:
            columns: how many stand in a row; None for about as many as there are rows.
        """
        raise TypeError(f"{self.name} have no picture of {len(samples)} in {columns} columns")

    def class_png(self, samples: Tensor, labels: Tensor) -> bytes:
        """Draws a row for each class of `labels`, int64 [n], as PNG; TypeError unless `is_seen`."""
        raise TypeError(f"{self.name} have no picture of {len(samples)}, {len(labels)} labels")

    def columns(self) -> Mapping[str, str]:
        """The columns of a table in order, name → kind in a word; empty for other samples."""
        return {}

    def where(self, conditions: Sequence[str]) -> Where:
        """Reads a user's conditions such as `sex=F`, which must all hold; BadInput if it cannot."""
        raise BadInput(f"--where {conditions[0]}", f"is for rows of tables, not for {self.name}")

    def judge(self, held_out: HeldOut | None) -> Judge:
        """Makes the function that scores samples, after `learn`; TypeError unless `judges`."""
        raise TypeError(f"{self.name} are scored by features, {held_out is not None}")

    # The counts that all sites add up before training.

    @property
    def is_learnt(self) -> bool:
        """Whether samples can be encoded: `learn` was called, or the kind needs no counts."""
        return True

    @property
    def meaning(self) -> str:
        """A text that differs if the same files would give other samples: schema and counts."""
        return ""

    @property
    def class_counts(self) -> Tensor | None:
        """How many samples of each class all sites hold, int64 [K]; None if that is unknown."""
        return None

    def coarse(self, counts: Tensor) -> Tensor:
        """Makes exact counts so coarse that a single sample hardly changes any of them."""
        return counts

    def noisy_form(self, counts: Tensor) -> Tensor:
        """Sums of counts, [num_noisy_counts], which a site sends under noise instead of counts."""
        return counts

    def from_noisy(self, sums: Tensor, variance: float) -> Tensor:
        """Estimates counts, float64, at least 0, from noisy sums; `variance` is the noise's."""
        del variance
        return sums

    def learn(self, counts: Tensor) -> None:
        """Fixes the encoding by the counts of all sites, float64 [num_counts], at least 0.

        With noise they are no whole numbers. The same counts always give the same encoding.
        """
        del counts

    def calibrate(self, generator: nn.Module) -> None:
        """Adjusts a trained generator to the counts, before a user draws samples from it.

        It changes no weights, and does the same for equal weights.
        """
        del generator
