"""Canaries: records of known gradient, which bound a run's own ε from below.

Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run": a fair coin decides
whether each canary is among a worker's samples. An attacker that sees what the worker releases, and
knows everything else, scores each canary; `mdgan.audit.bound` says which ε its guesses rule out.
Most canaries are gradients (Nasr et al. 2023, "Tight Auditing of Differentially Private Machine
Learning"), each of norm C and on coordinates of its own. They show what the noise hides. A few are
planted samples, which show whether gradients are cut as they should be.
"""

import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, sqrt
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from torch import Tensor, nn

from mdgan.errors import BadInput, writing
from mdgan.gan.discriminator_learner import LearningRules
from mdgan.gan.labels import Samples, num_classes_of
from mdgan.gan.randomness import generator_for
from mdgan.gan.regularizers.contract import REAL, Regularizers
from mdgan.privacy.direct import DirectTests, Draw, Seen
from mdgan.privacy.noise_structure import find_structure
from mdgan.privacy.per_sample import clipped_sum, per_sample_gradients, still
from mdgan.privacy.random_stream import SECRET_BYTES, random_state, uniform
from mdgan.spelling import flag
from mdgan.storage.foreign_file import read_whole
from mdgan.storage.whole_file import OWNER_ALONE, make_private_folder, write_whole

CANARIES = "canaries"  # the folder of workers' files, in the run's folder on the host's machine
_WIDTHS = (8, 2)
_FREE = 1024
_ONE_PLANTED_IN, _MOST_PLANTED = 10, 32
"""Each planted sample costs a further gradient in every step."""
_EVERY, _LOOKED_EVERY = 64, 8
"""Steps between two writings of the file, and between two measurements of what samples add."""
_LEAST, _LESS = 1e-4, 0.9
"""Parts of the stated noise: the least that is assumed, and the part below which noise is less."""
_TRIED = 3  # samples that are measured one by one
_SAME = bytes(SECRET_BYTES)
"""The secret of two sums that are compared, so that their dropout masks are equal."""
_SMALL = 2.0**-20  # of C: a bound that cuts every gradient, if gradients are cut at all


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's secret file: coins, log likelihood ratios, and measurements of each process.

    Files of older versions have no measurements.
    """

    coins: list[bool]
    scores: list[Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]]
    planted: Annotated[int, msgspec.Meta(ge=0)] = 0
    steps: Annotated[int, msgspec.Meta(ge=0)] = 0
    seen: list[Seen] = []

    def __post_init__(self) -> None:
        """Checks that each canary has a coin and a score."""
        if len(self.coins) != len(self.scores) or self.planted > len(self.coins):
            raise ValueError("not one score for each coin")


def width_of(number: int, num_weights: int) -> int:
    """Pairs of coordinates of each canary, leaving half of all free; 0 for too many canaries."""
    return next((w for w in _WIDTHS if 2 * w * number <= num_weights // 2), 0)


def planted_of(number: int) -> int:
    """How many of a worker's canaries are planted samples."""
    return min(number // _ONE_PLANTED_IN, _MOST_PLANTED)


def most_canaries(num_weights: int) -> int:
    """The largest M for a discriminator of d weights."""
    return num_weights // 2 // (2 * min(_WIDTHS))


@dataclass(frozen=True)
class Planted:
    """The planted samples, which are judged, cut and added up as the real samples `like` them."""

    model: nn.Module
    rules: LearningRules
    regularizers: Regularizers
    like: Samples
    clip: float
    adds_up: Callable[..., tuple[dict[str, Tensor], Any]] = clipped_sum

    def _samples(self, places: Tensor) -> Samples:
        """The planted samples with these numbers: black and white dots, equal in all steps."""
        shape, classes = self.like.images.shape[1:], num_classes_of(self.model)
        made = [
            torch.randint(0, 2, shape, generator=generator_for(0, "planted", place)) * 2.0 - 1
            for place in places.tolist()
        ]
        images = torch.stack(made) if made else torch.empty(0, *shape)
        labels = None if classes is None else places % classes
        seen = Samples(images, labels).to(self.like.images.device)
        return seen.of(self.regularizers.see(seen.images)) if made else seen

    def summed(self, places: Tensor) -> Tensor:
        """The sum of the cut gradients of the planted samples at `places`, float64 [d], CPU.

        D's buffers afterwards do not depend on `places`, int64 [n]; n may be 0.
        """
        return self._sum(self._samples(places).padded(max(1, len(places))), len(places), self.clip)

    def _sum(self, samples: Samples, count: int, clip: float) -> Tensor:
        total, _ = self.adds_up(
            self.model,
            self.rules,
            samples,
            count=count,
            clip=clip,
            penalties=self.regularizers.at(REAL),
        )
        return torch.cat([part.detach().double().flatten().cpu() for part in total.values()])

    def lengths(self, clip: float) -> dict[str, float]:
        """Norms of what real samples add, relative to the bound; see `longest` and `cut` of `Seen`.

        Each tried sample is summed alone, once with C and once with a bound that cuts every
        gradient. With the latter also a second sample is added, and the whole batch.

        Args:
            clip: C, as stated.
        """
        seen = self.like.of(self.regularizers.see(self.like.images))
        small, unit = _SMALL * self.clip, _SMALL * clip
        alone, cut = [0.0], [self._sum(seen, len(seen), small).norm() / (unit * len(seen))]
        for place in torch.randperm(len(seen))[:_TRIED].tolist():
            pair = seen[[place, (place + 1) % len(seen)]]
            alone.append(float(self._sum(pair, 1, self.clip).norm()) / clip)
            buffers = [buffer.clone() for buffer in self.model.buffers()]
            with random_state(_SAME, seen.images.device).in_place():
                first = self._sum(pair, 1, small)
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
            with random_state(_SAME, seen.images.device).in_place():
                both = self._sum(pair, 2, small)
            cut += [first.norm() / unit, (both - first).norm() / unit]
        return {"longest": max(alone), "cut": float(max(cut))}

    def directions(self, number: int) -> Tensor:
        """Gradients of planted samples without dropout and augmentation, cut: [number, d], CPU."""
        with still(self.model):
            by_name, _ = per_sample_gradients(
                self.model,
                self.rules,
                self._samples(torch.arange(number)),
                penalties=self.regularizers.at(REAL),
            )
        gradients = torch.cat([g.detach().flatten(1).cpu() for g in by_name.values()], dim=1)
        gradients = gradients.nan_to_num(0.0, 0.0, 0.0)  # as in a clipped sum
        norms = gradients.square().sum(1, keepdim=True).sqrt()
        return self.clip / norms.clamp(min=self.clip) * gradients


class Canaries:
    """The canaries of one worker.

    A step draws each included canary with the probability of a sample, and adds its gradient to the
    clipped sum. The gradient is ±C/√k on each of the canary's k coordinates, with a random sign in
    each step, so that it does not pull the discriminator anywhere; or that of a planted sample.
    """

    def __init__(
        self, number: int, rate: float, clip: float, noise: float, *, num_planted: int | None = None
    ) -> None:
        bits = secrets.randbits(number)
        self._coins = torch.tensor([bool(bits >> n & 1) for n in range(number)])
        self._scores = torch.zeros(number, dtype=torch.float64)
        self._steps = 0
        self._rate, self._clip, self._stated = rate, clip, noise * clip
        self._deviation = self._stated
        self.direct, self._earlier = DirectTests(rate, clip, noise), list[Seen]()
        self._planted = planted_of(number) if num_planted is None else num_planted
        self._signs = torch.zeros(number - self._planted, dtype=torch.float64)
        self._added = self._of_planted = torch.zeros(())
        self._directions = torch.zeros(0)
        self._pending: tuple[Tensor, Tensor, Tensor, Draw | None] | None = None
        self._path: Path | None = None

    @property
    def watched(self) -> Watched:
        """The content of the worker's file, up to now."""
        seen = self.direct.seen
        return Watched(
            coins=self._coins.tolist(),
            scores=self._scores.tolist(),
            planted=self._planted,
            steps=self._steps,
            seen=[*self._earlier, *([seen] if seen.steps else [])],
        )

    def open(self, path: Path) -> None:
        """Reads the worker's file, or creates it, before the first step."""
        if self._path == path:  # the host has come back to its server
            return
        stored = read_watched(path)
        if stored is not None:
            if len(stored.coins) != len(self._coins):
                why = f"the run began with {len(stored.coins)} ({path})"
                raise BadInput(flag("audit_canaries", len(self._coins)), why, "give that number")
            self._coins = torch.tensor(stored.coins)
            self._scores = torch.tensor(stored.scores, dtype=torch.float64)
            self._steps = stored.steps
            self._earlier = [seen for seen in stored.seen if seen.steps]
        self._path = path
        self._write()

    def add_to(self, total: Tensor, key: bytes, planted: Planted | None = None) -> None:
        """Adds the gradients of the canaries that this step draws to the clipped sum, [d], CPU."""
        number, gradients = len(self._coins), len(self._signs)
        drawn, signs = uniform(key, 2 * number).view(2, number)
        self._signs = torch.where(signs[:gradients] > 0.5, 1.0, -1.0).double()
        chosen = self._coins & (drawn <= self._rate)
        width, entry = self._shape(total)
        added = (self._signs * chosen[:gradients] * entry).repeat_interleave(width)
        self._added = torch.zeros_like(total)
        for row in _rows(self._added):
            row[: len(added)] = added
        self._of_planted = torch.zeros_like(total)
        if planted is not None and self._planted:
            self._of_planted = planted.summed(chosen[gradients:].nonzero().squeeze(1))
        total += self._added + self._of_planted

    def watch(
        self,
        released: Tensor,
        known: Tensor,
        planted: Planted | None = None,
        draw: Draw | None = None,
    ) -> None:
        """Scores each canary by what the step will release.

        The attacker of differential privacy knows everything else, also the sum of all samples. So
        on the canary's block it sees N(0, σ²C²), with or without the canary's gradient. The
        likelihood ratio of one step is 1 − q + q·exp((2x − 1) / (2σ²)), where x is the projection
        on the gradient, divided by C². The structure of noise that is not Gaussian tells more.

        Args:
            released: the noisy sum, as exact as it leaves the worker, float64 [d], on the CPU.
            known: the sum without canaries and noise, float64 [d].
            draw: the samples of `known`, if they were drawn.
        """
        # The attacker guesses each kind separately, and knows the coins of the other kind.
        ratios = self._of_gradients(released - known - self._of_planted)
        looks = self._steps % _LOOKED_EVERY == 0
        if planted is not None and looks:
            self.direct.measured(**planted.lengths(self._clip))
        if planted is not None and self._planted:
            if looks or not len(self._directions):
                self._directions = planted.directions(self._planted)
            rest = (released - known - self._added).float()
            ratios = torch.cat([ratios, self._unmixed(rest, self._directions)])
        absent = torch.tensor(log(1 - self._rate) if self._rate < 1 else -inf, dtype=torch.float64)
        ratios = torch.logaddexp(absent, log(self._rate) + ratios)
        ratios = torch.where(ratios.isfinite(), ratios, 0.0)
        self._pending = ratios, released - known - self._added - self._of_planted, known, draw

    def _of_gradients(self, noisy: Tensor) -> Tensor:
        """Log likelihood ratios of the noise with each canary's gradient, against without, [n]."""
        rest = torch.stack(_rows(noisy)) / self._stated
        width, entry = self._shape(noisy)
        number = len(self._signs)
        used = number * width
        # On coordinates without canaries an attacker sees if the noise is less than stated.
        seen = float(rest[:, used:].square().mean().sqrt())
        self._deviation = self._stated * (max(seen, _LEAST) if seen < _LESS else 1.0)
        rest, entry = rest * (self._stated / self._deviation), entry / self._deviation
        without = rest[:, :used].view(2, number, width).transpose(0, 1)
        shift = (self._signs * entry)[:, None, None].expand_as(without)
        # Of N(r, 1) and N(r − c, 1): r·c − c²/2.
        ratio = (without * shift - shift.square() / 2).sum((1, 2))
        structure = find_structure(rest[:, used : used + _FREE], entry, self._deviation)
        if structure is not None:
            ratio += structure.told(without - shift) - structure.told(without)
        return ratio

    def _unmixed(self, noisy: Tensor, directions: Tensor) -> Tensor:
        """The ratios of planted samples, [n], whose gradients [n, d] may overlap."""
        # Least squares estimate how much of each gradient is in the sum, with known variance.
        inverse = torch.linalg.pinv((directions @ directions.T).double(), hermitian=True)
        seen = inverse @ (directions @ noisy).double()
        variance = self._deviation**2 * inverse.diagonal()
        ratio: Tensor = (2 * seen - 1) / (2 * variance)
        return ratio

    def taken(self) -> None:
        """Adds the scores of the last step, once it is certain that it is not undone."""
        if self._pending is None:
            return
        scores, rest, known, draw = self._pending
        self._scores += scores
        self.direct.add(rest, known, draw)
        self._pending = None
        self._steps += 1
        if self._steps % _EVERY == 0:
            self._write()

    def close(self) -> None:
        """Writes all scores as the host ends; if it cannot, the file keeps earlier scores."""
        with contextlib.suppress(BadInput):
            self._write()

    def _shape(self, vector: Tensor) -> tuple[int, float]:
        """The number of a canary's pairs, and the size of its gradient on each coordinate."""
        width = width_of(len(self._signs), len(vector))
        assert width, "checked before the run began"
        return width, self._clip / sqrt(2 * width)

    def _write(self) -> None:
        if self._path is None:
            return
        with writing(self._path):
            make_private_folder(self._path.parent)
            write_whole(self._path, msgspec.json.encode(self.watched), OWNER_ALONE)


def _rows(vector: Tensor) -> list[Tensor]:
    """The two halves of a vector, [d // 2] each; a pair is two numbers half a vector apart."""
    pairs = len(vector) // 2
    return [vector[:pairs], vector[len(vector) - pairs :]]


def read_watched(path: Path) -> Watched | None:
    """Reads a worker's file; None if there is none."""
    try:
        return msgspec.json.decode(read_whole(path), type=Watched)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(path, f"cannot read it ({error.strerror})") from error
    except ValueError as error:
        raise BadInput(path, f"damaged ({error})", "restore it from a copy") from error
