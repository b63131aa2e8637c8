"""Every architecture: shapes, numbers of parameters, its paper's figures; and checks of models."""

from dataclasses import replace
from functools import partial
from math import exp
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from mdgan.data.dataset_file import load
from mdgan.errors import BadInput
from mdgan.gan.build import Models, build_model, num_parameters
from mdgan.gan.labels import call, num_classes_of
from mdgan.models import biggan
from mdgan.models.acgan import NOISE_SIZE
from mdgan.models.blocks import (
    KERNEL_SIZE,
    MinibatchDiscrimination,
    growth_of,
    num_groups,
    with_group_norm,
)
from mdgan.models.check import check_models, compares_samples, tells_classes
from mdgan.models.registry import architecture, architectures
from mdgan.models.settings import ARCHITECTURES

NUM_CLASSES = 3
SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32)]
OF_PICTURES = tuple(name for name in ARCHITECTURES if name not in {"dcgan3d", "table"})
"""See `test_table.py` and `test_dcgan.py` for the others."""
EACH = pytest.mark.parametrize("name", OF_PICTURES)


def small(name: str, shape: tuple[int, int, int] = (1, 8, 8), width: int = 4) -> Models:
    return architecture(name).make(shape, NUM_CLASSES, 8 * width if "mlp" in name else width)


def labels_for(model: nn.Module, num: int) -> Tensor | None:
    return None if num_classes_of(model) is None else torch.arange(num) % NUM_CLASSES


def logits_of(model: nn.Module, samples: Tensor) -> Tensor:
    verdict: Any = call(model, samples, labels_for(model, len(samples)))
    return verdict if isinstance(verdict, Tensor) else verdict[0]


def on_meta(name: str, shape: tuple[int, int, int], num_classes: int) -> tuple[nn.Module, ...]:
    """Both models as they are without --width; they take no memory."""
    entry = architecture(name)
    models = entry.make(shape, num_classes, entry.width)
    with torch.device("meta"):
        return models.generator(), models.discriminator()


def test_settings_know_all_names() -> None:
    assert tuple(entry.name for entry in architectures()) == ARCHITECTURES


@given(st.integers(1, 300), st.integers(1, 300))
def test_what_pictures_grow_from(height: int, width: int) -> None:
    grown = {side << k: (side, k) for side in (4, 7) for k in range(1, 8)}
    if height == width and height in grown:
        assert growth_of((1, height, width)) == grown[height]
    else:
        with pytest.raises(ValueError, match=f"not {height}×{width}"):
            growth_of((1, height, width))


@EACH
@pytest.mark.parametrize("shape", [*SHAPES, (2, 14, 14), (1, 64, 64)], ids=str)
def test_samples_and_logits(name: str, shape: tuple[int, int, int]) -> None:
    models = small(name, shape)
    generator, discriminator = (
        build_model(kind, 0) for kind in (models.generator, models.discriminator)
    )
    assert num_classes_of(generator) == num_classes_of(discriminator)
    assert (num_classes_of(generator) is not None) == architecture(name).conditional
    torch.manual_seed(0)  # dropout may leave a sample without feedback, if seldom
    z = torch.randn(4, models.z_dim)
    samples = call(generator, z, labels_for(generator, 4))
    assert samples.shape == (4, *shape)
    assert samples.abs().max() <= 1
    assert not torch.equal(samples[0], samples[3])  # of the same class
    samples = samples.detach().requires_grad_()
    verdict = call(discriminator, samples, labels_for(discriminator, 4))
    logits = logits_of(discriminator, samples)
    assert logits.numel() == 4
    assert len(logits) == 4
    if isinstance(verdict, tuple):
        assert verdict[1].shape == (4, NUM_CLASSES)
    (feedback,) = torch.autograd.grad(logits.sum(), samples)
    assert (feedback.flatten(1).norm(dim=1) > 0).all()


@EACH
def test_a_seed_decides_all_weights(name: str) -> None:
    for kind in (small(name).generator, small(name).discriminator):
        first, again, other = (build_model(kind, seed).state_dict() for seed in (0, 0, 1))
        assert all(torch.equal(again[key], tensor) for key, tensor in first.items())
        assert any(not torch.equal(other[key], tensor) for key, tensor in first.items())


def test_biggan_has_158_million_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """ParaGAN's table 1: both models together; the two numbers are those of its authors' code."""
    # Both are slow even without values, and add no parameters.
    monkeypatch.setattr(nn.init, "orthogonal_", lambda weights: weights)
    monkeypatch.setattr(biggan, "add_spectral_norm", lambda model: model)
    counts = [num_parameters(model) for model in on_meta("biggan", (3, 128, 128), 1000)]
    assert counts == [70_433_988, 87_982_370]
    assert round(sum(counts) / 1e6, 2) == 158.42


def test_dcgan_is_the_generator_that_cifar10_comes_with() -> None:
    own, given = load("cifar10", None).models, on_meta("dcgan", (3, 32, 32), 0)[0]
    assert [p.shape for p in given.parameters()] == [p.shape for p in own.generator().parameters()]


def test_the_mlp_has_the_parameters_that_md_gans_paper_counts() -> None:
    both = on_meta("md-gan-mlp", (1, 28, 28), 10)
    assert [*map(num_parameters, both)] == [716_560, 670_219]


def test_lsgan_has_the_layers_that_fegans_paper_counts() -> None:
    generator, discriminator = on_meta("lsgan", (1, 28, 28), 0)
    kinds = nn.Linear, nn.Conv2d
    assert [layer.weight.shape[0] for layer in layers_of(generator, *kinds)] == [6272, 128, 64, 1]
    judging = layers_of(discriminator, *kinds)
    assert [layer.weight.shape[0] for layer in judging] == [16, 32, 64, 128, 1]
    assert judging[-1].in_features == 128 * 2 * 2


def layers_of(model: nn.Module, *kinds: type[nn.Module]) -> list[Any]:
    return [layer for layer in model.modules() if isinstance(layer, kinds)]


@pytest.mark.parametrize(
    ("shape", "first", "generated", "judged", "counts", "biases"),
    [
        ((1, 28, 28), 6272, [32, 1], 7 * 7 * 512, (628_058, 286_048), (0, 0)),
        ((3, 32, 32), 6144, [192, 96, 3], 4 * 4 * 512, (628_110, 100_203), (6144, 11)),
    ],
    ids=["mnist", "cifar10"],
)
def test_the_cnns_are_those_of_md_gans_text(
    shape: tuple[int, int, int],
    first: int,
    generated: list[int],
    judged: int,
    counts: tuple[int, int],
    biases: tuple[int, int],
) -> None:
    """Its counts follow if every kernel counts once, for one channel, and a layer is left out."""
    generator, discriminator = on_meta("md-gan-cnn", shape, 10)
    (linear,) = layers_of(generator, nn.Linear)
    assert (linear.in_features, linear.out_features) == (100, first)
    doubling = layers_of(generator, nn.ConvTranspose2d)
    assert [layer.out_channels for layer in doubling] == generated
    assert {layer.kernel_size for layer in doubling} == {(5, 5)}
    assert 100 * first + biases[0] + sum((5 * 5 + 1) * each for each in generated) == counts[0]

    convolutions = layers_of(discriminator, nn.Conv2d)
    channels = [16, 32, 64, 128, 256, 512]
    assert [layer.out_channels for layer in convolutions] == channels
    assert {layer.kernel_size for layer in convolutions} == {(3, 3)}
    (batch,) = layers_of(discriminator, MinibatchDiscrimination)
    *_, last = layers_of(discriminator, nn.Linear)
    assert batch.tensor.in_features == judged
    assert last.out_features == 11
    assert sum((3 * 3 + 1) * each for each in channels) + 11 * judged + biases[1] == counts[1]


def test_closeness_within_a_batch_against_the_formula() -> None:
    layer = MinibatchDiscrimination(4, num_kernels=2)
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    tensor = layer.tensor.weight.detach().view(2, KERNEL_SIZE, 4)
    result = layer(features).detach()
    assert torch.equal(result[:, :4], features)
    rows = [[[float(row @ f) for row in kernel] for kernel in tensor] for f in features]
    for i, mine in enumerate(rows):
        for k in range(2):
            distances = [
                sum(abs(a - b) for a, b in zip(mine[k], theirs[k], strict=True)) for theirs in rows
            ]
            assert float(result[i, 4 + k]) == pytest.approx(sum(exp(-d) for d in distances))


@pytest.mark.parametrize("name", ["sngan", "biggan"])
def test_every_layer_of_d_has_spectral_norm(name: str) -> None:
    model = build_model(small(name).discriminator, 0)
    for _ in range(60):
        logits_of(model, torch.zeros(2, 1, 8, 8))
    layers = layers_of(model, nn.Conv2d, nn.Linear, nn.Embedding)
    assert len(layers) > 8
    for layer in layers:
        matrix = layer.weight.detach().flatten(1)
        assert float(torch.linalg.matrix_norm(matrix, 2)) == pytest.approx(1, abs=0.02)


def test_biggans_matrices_are_orthogonal_and_each_chunk_of_z_matters() -> None:
    models = small("biggan", (1, 32, 32), width=4)
    generator = build_model(models.generator, 0)
    for name, weights in generator.named_parameters():
        if weights.dim() > 1:
            matrix = weights.detach().flatten(1)
            matrix = matrix if len(matrix) <= matrix.shape[1] else matrix.mT
            assert torch.allclose(matrix @ matrix.mT, torch.eye(len(matrix)), atol=1e-5), name
    assert models.z_dim == 80
    z, labels = torch.zeros(2, 80), torch.tensor([0, 1])
    before = generator(z, labels)
    for chunk in range(4):
        changed = z.clone()
        changed[:, 20 * chunk] = 1
        assert not torch.equal(generator(changed, labels), before)
    assert not torch.equal(generator(z, labels.flip(0)), before)


def test_biggans_logit_is_one_of_the_features_and_one_of_the_class() -> None:
    model = build_model(small("biggan").discriminator, 0).eval()
    samples = torch.randn(NUM_CLASSES, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    same = samples[:1].expand(NUM_CLASSES, -1, -1, -1)
    logits = model(same, torch.arange(NUM_CLASSES)).flatten()
    assert len(set(logits.tolist())) == NUM_CLASSES


def test_noise_and_class_are_100_numbers_in_md_gan_unless_classes_are_many() -> None:
    sizes = {k: architecture("md-gan-mlp").make((1, 8, 8), k, 4).z_dim for k in (2, 10, 50, 51)}
    assert sizes == {2: 98, 10: 90, 50: 50, 51: 100}
    assert architecture("acgan").make((1, 8, 8), 51, 4).z_dim == NOISE_SIZE


def test_width_scales_layers() -> None:
    for name in OF_PICTURES:
        narrow, wide = (small(name, width=width).discriminator() for width in (4, 8))
        assert num_parameters(wide) > 1.5 * num_parameters(narrow), name


# What is said of conditional models that cannot be trained; all in one line.


def models(
    g_classes: object = 3, d_classes: object = 3, told: int = 0, takes_labels: bool = True
) -> Models:
    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 16)
            if g_classes is not None:
                self.num_classes = g_classes

        def forward(self, z: Tensor, *y: Tensor) -> Tensor:
            assert len(y) == (g_classes is not None)
            images: Tensor = self.layer(z).tanh().view(-1, 1, 4, 4)
            return images

    class Discriminator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 1 + told)
            if d_classes is not None:
                self.num_classes = d_classes

        def forward(self, x: Tensor, *y: Tensor) -> Tensor | tuple[Tensor, Tensor]:
            if not takes_labels and y:
                raise TypeError("takes no labels")
            output = self.layer(x.flatten(1))
            return (output[:, :1], output[:, 1:]) if told else output

    return Models("own.py", (1, 4, 4), 5, Generator, Discriminator)


def test_models_that_can_be_trained() -> None:
    check_models(models(None, None))
    check_models(models(), 3)
    check_models(models(told=3), 3)
    assert tells_classes(models(told=3))
    assert not tells_classes(models())
    assert not tells_classes(models(None, None))


@pytest.mark.parametrize(
    ("made", "num_classes", "says"),
    [
        (models(3, None), 3, "Generator has num_classes = 3 and Discriminator has no num_classes"),
        (models(None, 3), 3, "Generator has no num_classes and Discriminator has num_classes = 3"),
        (models(3, 4), 3, "Generator has num_classes = 3 and Discriminator has num_classes = 4"),
        (models(), None, "the dataset file says none; it must say NUM_CLASSES = 3, and its labels"),
        (models(), 10, "but the dataset file says NUM_CLASSES = 10"),
        (models(0, 0), 3, "the same whole number"),
        (models("3", "3"), 3, "the same whole number"),
        (models(torch.tensor(3), torch.tensor(3)), 3, "the same whole number"),
        (models(told=2), 3, "gives [2, 2] for the classes of 2 samples, must give [2, 3]"),
        (models(None, None, told=3), None, "Discriminator returns tuple, not a tensor"),
        (models(takes_labels=False), 3, "fails on a batch [b, *(1, 4, 4)] with labels [b]"),
    ],
)
def test_models_that_cannot(made: Models, num_classes: int | None, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_models(made, num_classes)
    assert says in str(caught.value)
    assert "own.py" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


# GroupNorm instead of BatchNorm.


@pytest.mark.parametrize(
    ("channels", "groups"), [(1, 1), (3, 1), (8, 2), (16, 4), (100, 25), (128, 32), (4096, 32)]
)
def test_groups_divide_the_channels(channels: int, groups: int) -> None:
    assert num_groups(channels) == groups


def test_scale_and_shift_stay_and_samples_are_judged_one_by_one() -> None:
    models = architecture("dcgan").make((1, 16, 16), 0, 8)
    alone = replace(models, discriminator=partial(with_group_norm, models.discriminator))
    assert compares_samples(models)
    assert not compares_samples(alone)
    before, after = build_model(models.discriminator, 0), build_model(alone.discriminator, 0)
    assert not [m for m in after.modules() if isinstance(m, nn.BatchNorm2d)]
    assert [p.shape for p in after.parameters()] == [p.shape for p in before.parameters()]
    for own, theirs in zip(after.parameters(), before.parameters(), strict=True):
        assert torch.equal(own, theirs)


def test_a_model_that_is_a_norm_and_one_of_vectors() -> None:
    assert isinstance(with_group_norm(lambda: nn.BatchNorm1d(8)), nn.GroupNorm)
    model = with_group_norm(lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)))
    assert model(torch.ones(1, 4)).shape == (1, 8)
