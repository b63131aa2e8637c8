"""Extractors: networks that turn images into features, by which scores compare samples."""

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.errors import BadInput, users_code
from mdgan.gan.randomness import RandomState
from mdgan.samples.contract import Shape
from mdgan.spelling import flag

CPU = torch.device("cpu")
WANTED = "features [n, d] with d ≥ 2, or (features, logits [n, K]) with K ≥ 2, floating point"


@dataclass(frozen=True)
class Features:
    """What an extractor returns for n samples."""

    values: Tensor  # float64 [n, d], all finite
    probabilities: Tensor | None  # float64 [n, K], p(y | x); None if the extractor has no classes
    labels: Tensor | None = None  # y, int64 [n], the samples' classes; None if unknown

    def __len__(self) -> int:
        return len(self.values)


def gather(pieces: Iterable[Features]) -> Features:
    """The features of several pieces as one; there must be at least one piece."""
    whole = list(pieces)
    probabilities = [piece.probabilities for piece in whole if piece.probabilities is not None]
    return Features(
        torch.cat([piece.values for piece in whole]),
        torch.cat(probabilities) if probabilities else None,
    )


@dataclass(frozen=True, eq=False)
class Extractor:
    """A fixed network from images to features."""

    kind: str  # "classifier", "random", "inception" or "file": how it is built
    name: str
    sha256: str  # of the weights or of the file they come from, the same on every machine
    shape: Shape | None  # of the samples it takes; None if it takes pictures of more than one shape
    num_features: int
    num_classes: int  # K; 0 if it has no classes
    accuracy: float | None  # share of test samples whose class it predicts; None if not measured
    # In evaluation mode; from float32 [n, *shape] in [−1, 1] to features [n, d], or to features and
    # logits [n, K].
    network: nn.Module
    device: torch.device = CPU
    num_at_once: int = 500  # how many images are computed together, which bounds the memory

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Features:
        """Features, on the CPU, of images in [−1, 1]; random numbers stay as they were."""
        if len(broken := (~images.flatten(1).isfinite().all(dim=1)).nonzero()):
            raise BadInput(
                f"{len(broken)} of {len(images)} samples have pixels that are not finite, first "
                f"sample {int(broken[0])}",
                way_out=(
                    "a generator that makes such samples has diverged: lower the lr of "
                    f"{flag('generator_optimizer')} and {flag('discriminator_optimizer')}"
                ),
            )
        with RandomState(0, self.device).in_place():
            parts = [
                run_network(self.name, self.network, part.to(self.device))
                for part in torch.split(images, self.num_at_once)
            ]
        values = torch.cat([part.cpu().double() for part, _ in parts])
        logits = [part.cpu().double() for _, part in parts if part is not None]
        bad = ~torch.cat([values, *([torch.cat(logits)] if logits else [])], dim=1).isfinite()
        if samples := bad.any(dim=1).nonzero().flatten().tolist():
            first = int(bad[samples[0]].nonzero()[0])
            what = f"feature {first}" if first < self.num_features else "a class"
            raise BadInput(
                self.name,
                f"{len(samples)} of {len(values)} samples have features that are not finite, "
                f"first {what} of sample {samples[0]}",
                f"name another with {flag('extractor', 'FILE')}",
            )
        return Features(values, torch.cat(logits).softmax(1) if logits else None)

    def to(self, device: torch.device) -> "Extractor":
        """The same extractor on a device; this one stays where it is."""
        if device == self.device:
            return self
        return replace(self, network=copy.deepcopy(self.network).to(device), device=device)

    def describe(self) -> dict[str, Any]:
        """The facts to write beside scores, which compare only if these are equal."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "features": self.num_features,
            "classes": self.num_classes,
            "accuracy": self.accuracy,
        }


def affordable_at_once(shape: Shape) -> int:
    """How many images of a shape to give a network together: 16 MiB of pixels, at most 500."""
    return max(1, min(500, (1 << 22) // math.prod(shape)))


def run_network(name: str, network: nn.Module, images: Tensor) -> tuple[Tensor, Tensor | None]:
    """Calls a network and checks that it returns features, or features and logits."""
    with users_code(f"{name}: fails on images {list(images.shape)}"):
        output = network(images)
    parts = list(output) if isinstance(output, tuple | list) else [output]
    usable = all(
        isinstance(part, Tensor)
        and part.is_floating_point()
        and part.dim() == 2
        and len(part) == len(images)
        and part.shape[1] >= 2
        for part in parts
    )
    if not usable or len(parts) not in (1, 2):
        outputs = ", ".join(_described(part) for part in parts) or "nothing"
        raise BadInput(name, f"gives {outputs} for {len(images)} images, must give {WANTED}")
    return parts[0], parts[1] if len(parts) == 2 else None


def _described(part: object) -> str:
    if isinstance(part, Tensor):
        return f"{str(part.dtype).removeprefix('torch.')} {list(part.shape)}"
    return type(part).__name__
