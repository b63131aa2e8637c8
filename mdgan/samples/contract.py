"""What mdgan asks of a kind of sample; families, engine, links and privacy ask nothing of it."""

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
    """What a kind of sample finds of generated ones."""

    scores: dict[str, float]  # by name; every number is finite
    # For each of the others, the reason in one line.
    left_out: dict[str, str] = field(default_factory=dict)
    # What real samples would get, for some of the scores.
    real: dict[str, float] = field(default_factory=dict)
    num_held_out: int = 0  # how many samples of the server were compared with
    figures: dict[str, Any] = field(default_factory=dict)  # what the report draws, as JSON
    rare: list[dict[str, Any]] = field(default_factory=list)  # see `ScoresRow`


Judge = Callable[[Tensor, Tensor | None], Verdict]
"""Judges generated samples, float32 [n, *shape], by themselves and their classes, int64 [n]."""


class Where(NamedTuple):
    """Which samples fulfil some conditions."""

    label: int | None  # the class that they name; None if they name none
    # Says of samples [n, *shape] and their classes, int64 [n] or None, which do: bool [n].
    keeps: Callable[[Tensor, Tensor | None], Tensor]
    told: str = ""  # how many real samples fulfil each of them, in a line, as far as that is known


def npz_of(samples: Tensor, labels: Tensor | None) -> bytes:
    """A file of numpy: `images`, float32 [n, *shape] in [−1, 1]; `labels`, int64 [n], if any."""
    arrays = {"images": samples.numpy()}
    if labels is not None:
        arrays["labels"] = labels.numpy()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type] # numpy's stubs take the arrays for its own flag
    return buffer.getvalue()


class SampleKind(ABC):
    """One kind of sample: pictures, rows of a table, plain tensors.

    Samples are float32 in [−1, 1] wherever they are trained on. An object of this class belongs to
    one data set, and knows what is particular to it, such as the columns of its table.
    """

    name: ClassVar[str]  # one word, in the plural where there is one, as messages name it
    is_seen: ClassVar[bool] = False  # whether `png` and `class_png` draw samples
    # Whether `judge` scores samples, rather than the features of a network.
    judges: ClassVar[bool] = False
    most_scored: ClassVar[int] = 1 << 40  # how many are generated for a score, at most
    # What each value of a sample counts for where two are compared; empty if all alike.
    value_weights: tuple[float, ...] = ()
    # How many counts say all that must be learnt from all samples before training.
    num_counts: int = 0
    num_noisy_counts: int = 0  # how many leave a site under noise; see `noisy_form`
    num_histograms: int = 0  # in how many of those a single sample is 1, at most
    # What is counted: it differs wherever the counts of the same samples would.
    counts_meaning: str = ""

    @abstractmethod
    def why_not(self, shape: Shape) -> str:
        """Why samples of this kind cannot have that shape, in a few words; empty if they can."""

    def contents(self, samples: Tensor) -> list[bytes]:
        """What tells each of [n, *shape] from others, by which an account of privacy knows it."""
        return [sample.tobytes() for sample in samples.contiguous().numpy()]

    def writers(self) -> Mapping[str, Writer]:
        """By the ending of a file, such as `.npz`, what makes it; the usual one comes first."""
        return {".npz": npz_of}

    def in_python(self, samples: Tensor, labels: Tensor | None) -> Any:
        """What a program gets of samples [n, *shape] and their classes, int64 [n] or None."""
        del labels
        return samples

    def as_written(self, samples: Tensor) -> Tensor:
        """Samples as they are after they were written and read again, [n, *shape]."""
        return samples

    def png(self, samples: Tensor, columns: int | None = None) -> bytes:
        """A picture of samples [n, *shape] as PNG, side by side, if such samples are seen.

        Args:
            columns: how many stand in a row; None for about as many as there are rows.
        """
        raise TypeError(f"{self.name} have no picture of {len(samples)} in {columns} columns")

    def class_png(self, samples: Tensor, labels: Tensor) -> bytes:
        """A picture with a row for each class of `labels`, int64 [n], if such samples are seen."""
        raise TypeError(f"{self.name} have no picture of {len(samples)}, {len(labels)} labels")

    def columns(self) -> Mapping[str, str]:
        """The columns of samples that have some, in order: name → what stands in it, in a word."""
        return {}

    def where(self, conditions: Sequence[str]) -> Where:
        """Understands conditions such as `sex=F`, of which all shall hold; raises BadInput."""
        raise BadInput(f"--where {conditions[0]}", f"is for rows of tables, not for {self.name}")

    def judge(self, held_out: HeldOut | None) -> Judge:
        """What scores samples, if this kind judges them; its `learn` was called before."""
        raise TypeError(f"{self.name} are scored by features, {held_out is not None}")

    # What all sites learn together before training begins.

    @property
    def is_learnt(self) -> bool:
        """Whether samples can be encoded: `learn` was called, or there is nothing to learn."""
        return True

    @property
    def meaning(self) -> str:
        """What samples follow from beside their files: what was agreed on, and learnt."""
        return ""

    @property
    def class_counts(self) -> Tensor | None:
        """How many samples of each class all sites hold, int64 [K], if that has been learnt."""
        return None

    def coarse(self, counts: Tensor) -> Tensor:
        """Counts without noise so coarse that hardly one of them follows from a single sample."""
        return counts

    def noisy_form(self, counts: Tensor) -> Tensor:
        """Linear in counts, [num_noisy_counts]: what is told under noise in their stead."""
        return counts

    def from_noisy(self, sums: Tensor, variance: float) -> Tensor:
        """Counts, float64, at least 0, from sums of `noisy_form` with noise of a variance."""
        del variance
        return sums

    def learn(self, counts: Tensor) -> None:
        """Takes in the counts of all sites together, float64 [num_counts], at least 0.

        With noise they are no whole numbers. The same counts always give the same encoding.
        """
        del counts

    def calibrate(self, generator: nn.Module) -> None:
        """Has a trained generator that samples are drawn from meet what has been learnt.

        Its weights stay as they are, and the same weights always become the same generator.
        """
        del generator
