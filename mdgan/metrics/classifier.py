"""A small classifier of any data set, trained in seconds, whose inner layer gives the features.

The MD-GAN paper scores MNIST with "a classifier adapted to the MNIST data instead of the Inception
network" (section V.A.c), for its MNIST score and for FID alike.
"""

import hashlib
from collections.abc import Mapping
from math import ceil, prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mdgan.data.partitioner import Partitioner
from mdgan.data.shard import Shard
from mdgan.gan.randomness import RandomState, derive_seed, generator_for
from mdgan.metrics.extractor import CPU, Extractor, affordable_at_once
from mdgan.samples.contract import Shape

ARCHITECTURE = "1"  # to be changed with any code below that changes the weights or their meaning

NUM_FEATURES = 64
RANDOM = "random"

_BATCH_SIZE = 64
_PASSES = 20
_LEAST_STEPS = 100
_MOST_MULTIPLICATIONS = 3e11  # forward; training at 5-10 GMAC/s on two cores: about a minute
_MOST_SIDE = 64
_MOST_VALUES, _HIDDEN = 4096, 128
_MOST_TESTED = 10_000
_LEARNING_RATE = 4e-3


class Classifier(nn.Module):
    """Computes d = 64 features of samples, and from these the logits of classes.

    Pictures pass convolutions that halve them until 4×4, other samples two linear layers. The
    features are taken before the ReLU, and normalised to unit variance. After a ReLU units are dead
    on most samples, and the covariance is singular; before it, without normalisation, its
    scale depends on how long the training was. Here the condition number is about 10³ on digits.

    Args:
        shape: any; pictures with sides above 64, and other samples of more than 4,096 values, are
            first averaged down, which bounds the cost.
    """

    def __init__(self, shape: Shape, num_classes: int) -> None:
        super().__init__()
        layers, size = (
            self._of_pictures(*shape) if len(shape) == 3 else self._of_values(prod(shape))
        )
        self.features = nn.Sequential(
            *layers,
            nn.Linear(size, NUM_FEATURES, bias=False),
            nn.BatchNorm1d(NUM_FEATURES, affine=False),
        )
        self.logits = nn.Linear(NUM_FEATURES, num_classes)

    def _of_values(self, size: int) -> tuple[list[nn.Module], int]:
        """The first layers for plain tensors, and how many values they give."""
        layers: list[nn.Module] = [nn.Flatten()]
        if size > _MOST_VALUES:
            layers += [nn.Unflatten(1, (1, size)), nn.AdaptiveAvgPool1d(_MOST_VALUES), nn.Flatten()]
        size = min(size, _MOST_VALUES)
        self.num_multiplications = size * _HIDDEN + _HIDDEN * NUM_FEATURES
        layers += [nn.Linear(size, _HIDDEN, bias=False), nn.BatchNorm1d(_HIDDEN), nn.ReLU()]
        return layers, _HIDDEN

    def _of_pictures(self, channels: int, height: int, width: int) -> tuple[list[nn.Module], int]:
        """The first layers for pictures, and how many values they give."""
        factor = ceil(max(height, width) / _MOST_SIDE)
        shrink = (min(factor, height), min(factor, width))
        sides = [ceil(height / shrink[0]), ceil(width / shrink[1])]
        layers: list[nn.Module] = [nn.AvgPool2d(shrink, ceil_mode=True)]
        wide, stride = 32, 1 if max(sides) <= 8 else 2
        self.num_multiplications = 0
        while len(layers) == 1 or max(sides) > 4:
            sides = [ceil(side / stride) for side in sides]
            self.num_multiplications += 9 * channels * wide * sides[0] * sides[1]
            layers += [
                nn.Conv2d(channels, wide, 3, stride, 1, bias=False),
                nn.BatchNorm2d(wide),
                nn.ReLU(),
            ]
            channels, wide, stride = wide, min(128, 2 * wide), 2
        return [*layers, nn.Flatten()], channels * sides[0] * sides[1]

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features [n, 64] and logits [n, K] of float32 [n, *shape] in [−1, 1]."""
        features = self.features(images)
        return features, self.logits(features.relu())


def train_classifier(name: str, source: Partitioner, held_out: Partitioner | None) -> Extractor:
    """Trains a classifier with Adam on cross entropy; the number of steps is bounded.

    Images are read batch by batch, never all at once. torch's default generators stay as they were.
    The data alone decide the weights, up to the rounding of other kinds of machine.

    Args:
        source: samples of several classes.
        held_out: what to measure the accuracy on; None keeps back a tenth of `source` for it.
    """
    num_classes = int(source.labels.max()) + 1
    train = torch.arange(len(source))
    tested, test = held_out, torch.arange(0 if held_out is None else len(held_out))
    if tested is None:
        order = torch.randperm(len(source), generator=generator_for(0, "kept back"))
        num_kept_back = max(1, len(source) // 10)
        tested, test, train = source, order[:num_kept_back], order[num_kept_back:]
    shape = tuple(source.images(torch.tensor([0])).shape[1:])
    with RandomState(derive_seed(0, "classifier"), CPU).in_place(), torch.enable_grad():
        model = Classifier(shape, num_classes)
        _train(model, source, train)
    accuracy = _accuracy(model, tested, test)
    return assemble(name, shape, num_classes, accuracy=accuracy, state=model.state_dict())


def assemble(
    name: str, shape: Shape, num_classes: int, accuracy: float, state: Mapping[str, Tensor]
) -> Extractor:
    """A trained classifier as an extractor, on the CPU; ValueError if it has other classes."""
    if len(state.get("logits.bias", ())) != num_classes:
        raise ValueError(f"it has no {num_classes} classes")
    with RandomState(0, CPU).in_place():
        model = Classifier(shape, num_classes)
    model.load_state_dict(state)
    return _as_extractor("classifier", f"classifier of {name}", shape, model, accuracy)


def random_network(shape: Shape) -> Extractor:
    """An extractor with random weights, for data without known classes.

    Its weights follow from the shape alone, so every machine makes the same ones, and scores of
    different runs compare. Random features tell two sets of samples apart, if less finely than
    learnt ones (Naeem et al. 2020, "Reliable fidelity and diversity metrics").
    """
    with RandomState(derive_seed(0, "random network"), CPU).in_place():
        model = Classifier(shape, 1)
        for weight in model.features.parameters():
            if weight.dim() > 1:  # torch's default weights would shrink values layer by layer
                nn.init.kaiming_uniform_(weight, nonlinearity="relu")
    return _as_extractor(RANDOM, "network of random weights", shape, model=model, accuracy=None)


def _as_extractor(
    kind: str, name: str, shape: Shape, model: Classifier, accuracy: float | None
) -> Extractor:
    model.eval().requires_grad_(False)
    knows_classes, num_classes = accuracy is not None, model.logits.out_features
    return Extractor(
        kind=kind,
        name=name,
        sha256=_sha256(shape, num_classes, model.state_dict()),
        shape=shape,
        num_features=NUM_FEATURES,
        num_classes=num_classes if knows_classes else 0,
        accuracy=accuracy,
        network=model if knows_classes else model.features,
        num_at_once=affordable_at_once(shape),
    )


def _train(model: Classifier, source: Partitioner, train: Tensor) -> None:
    steps = max(_LEAST_STEPS, _PASSES * len(train) // _BATCH_SIZE)
    affordable = int(_MOST_MULTIPLICATIONS / model.num_multiplications / _BATCH_SIZE)
    steps = max(_LEAST_STEPS, min(steps, affordable))
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=steps)
    shard = Shard(source, train, generator_for(0, "classifier batches"))
    model.train()
    for _ in range(steps):
        chosen = train[shard.next_positions(_BATCH_SIZE)]
        _, logits = model(source.images(chosen))
        loss = F.cross_entropy(logits, source.labels[chosen])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def _accuracy(model: Classifier, tested: Partitioner, test: Tensor) -> float:
    test = test[:: ceil(len(test) / _MOST_TESTED)]
    model.eval()
    num_right = 0
    for chosen in torch.split(test, 500):
        _, logits = model(tested.images(chosen))
        num_right += int((logits.argmax(1) == tested.labels[chosen]).sum())
    return num_right / len(test)


def _sha256(shape: Shape, num_classes: int, state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(f"{ARCHITECTURE} {shape} {num_classes}".encode())
    for key in sorted(state):
        tensor = state[key].detach().cpu().contiguous()
        digest.update(f"{key} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
