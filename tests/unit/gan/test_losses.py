"""Losses, penalties and augmentation against the formulas of their papers."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mdgan.gan.arithmetic import prepare
from mdgan.gan.augmentation import augment
from mdgan.gan.labels import Samples
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES, Term
from mdgan.gan.randomness import RandomState
from mdgan.gan.regularizers.augment import Augmentation
from mdgan.gan.regularizers.contract import Penalty, Regularizers, mix
from mdgan.gan.regularizers.gradient_penalty import GradientPenalty
from mdgan.gan.regularizers.r1 import R1
from mdgan.gan.regularizers.registry import RegularizerSettings, make_regularizers
from mdgan.gan.regularizers.spectral_norm import add_spectral_norm
from mdgan.gan.settings import DISCRIMINATOR_LOSS_NAMES, GENERATOR_LOSS_NAMES
from tests.unit.gan import small

TERMS: dict[str, Term] = {
    **{f"{name} real": loss.real for name, loss in DISCRIMINATOR_LOSSES.items()},
    **{f"{name} fake": loss.fake for name, loss in DISCRIMINATOR_LOSSES.items()},
    **{f"{name} generator": loss for name, loss in GENERATOR_LOSSES.items()},
}


def _cross_entropy(logits: Tensor, target: float) -> Tensor:
    return F.binary_cross_entropy(torch.sigmoid(logits), torch.full_like(logits, target))


def _one_by_one(formula: Term) -> Term:
    return lambda logits: torch.stack([formula(s) for s in logits.flatten()]).sum() / len(logits)


# Each written as its paper has it, from probabilities or sample by sample.
FORMULAS: dict[str, Term] = {
    "bce real": lambda s: _cross_entropy(s, 1.0),
    "bce fake": lambda s: _cross_entropy(s, 0.0),
    "least-squares real": lambda s: F.mse_loss(s, torch.ones_like(s)) / 2,
    "least-squares fake": lambda s: F.mse_loss(s, torch.zeros_like(s)) / 2,
    "hinge real": _one_by_one(lambda s: -torch.minimum(torch.zeros_like(s), s - 1)),
    "hinge fake": _one_by_one(lambda s: -torch.minimum(torch.zeros_like(s), -s - 1)),
    "wasserstein real": lambda s: -s.sum() / s.numel(),
    "wasserstein fake": lambda s: s.sum() / s.numel(),
    "non-saturating generator": lambda s: -torch.sigmoid(s).log().mean(),
    "saturating generator": lambda s: (1 - torch.sigmoid(s)).log().mean(),
    "least-squares generator": lambda s: F.mse_loss(s, torch.ones_like(s)) / 2,
    "hinge generator": _one_by_one(lambda s: -s),
    "wasserstein generator": lambda s: -s.sum() / s.numel(),
}


def some_logits(num: int = 64) -> Tensor:
    """Between −12 and 12, in float64, none within 0.01 of a kink at ±1."""
    random = torch.Generator().manual_seed(7)
    logits = (torch.rand(num, 1, generator=random, dtype=torch.float64) - 0.5) * 24
    return logits.where((logits.abs() - 1).abs() > 0.01, logits + 0.1)


def test_every_loss_that_can_be_chosen_has_a_formula_here() -> None:
    assert FORMULAS.keys() == TERMS.keys()
    assert set(GENERATOR_LOSS_NAMES.all) == GENERATOR_LOSSES.keys()
    assert set(DISCRIMINATOR_LOSS_NAMES.all) == DISCRIMINATOR_LOSSES.keys()


@pytest.mark.parametrize("name", TERMS)
def test_a_loss_and_its_gradient_equal_the_formula(name: str) -> None:
    logits = some_logits().requires_grad_()
    losses = TERMS[name](logits), FORMULAS[name](logits)
    torch.testing.assert_close(*losses, rtol=1e-9, atol=1e-12)
    found, wanted = (torch.autograd.grad(loss, logits)[0] for loss in losses)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("extreme", [100.0, -100.0, 1e4, -1e4])
def test_extreme_logits_overflow_nothing(name: str, extreme: float) -> None:
    logits = torch.full((4, 1), extreme, requires_grad=True)
    loss = TERMS[name](logits)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    assert gradient.isfinite().all()
    if loss.abs() >= 99:  # on the wrong side; logarithms that are clamped have no gradient there
        assert gradient.any()


# Penalties and spectral norm, with gradients computed in other ways.


GAMMA, LAMBDA = 3.0, 10.0


def samples(seed: int = 0) -> Tensor:
    return small.images(seed).double()


class TwoLayers(nn.Module):
    """D(x) = v·tanh(Wx), whose gradient ∇D(x) = Wᵀ(v ∘ (1 − tanh²)) can be written down."""

    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(1)
        self.first = nn.Parameter(torch.randn(7, 16, generator=random).double())
        self.second = nn.Parameter(torch.randn(7, generator=random).double())

    def forward(self, images: Tensor) -> Tensor:
        return torch.tanh(images.flatten(1) @ self.first.T) @ self.second

    def gradients(self, images: Tensor) -> Tensor:
        hidden = torch.tanh(images.flatten(1) @ self.first.T)
        return (self.second * (1 - hidden.square())) @ self.first


def written_out(kind: str, model: TwoLayers, images: Tensor) -> Tensor:
    """The penalty by the formula of ∇D, so that autograd differentiates once."""
    norms = model.gradients(images).square().sum(1)
    if kind == "r1":
        return GAMMA / 2 * norms.mean()
    return LAMBDA * (norms.sqrt() - 1).square().mean()


PENALTIES: dict[str, Penalty] = {"r1": R1(GAMMA), "gradient": GradientPenalty(LAMBDA)}


def penalty_of(kind: str, logits: Tensor, images: Tensor) -> Tensor:
    penalty = PENALTIES[kind]
    nothing = logits.new_zeros(())
    return Regularizers([penalty]).penalized(penalty.place, nothing, logits, images)


@pytest.mark.parametrize("kind", PENALTIES)
def test_a_penalty_and_its_gradient_are_those_of_the_paper(kind: str) -> None:
    model, images = TwoLayers(), samples().requires_grad_()
    result = penalty_of(kind, model(images), images)
    wanted = written_out(kind, model, images.detach())
    torch.testing.assert_close(result, wanted, rtol=1e-9, atol=0)
    gradients = [torch.autograd.grad(each, list(model.parameters())) for each in (result, wanted)]
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-12)


def test_a_flat_discriminator_gets_finite_gradients() -> None:
    images, weight = samples().requires_grad_(), torch.zeros(16).double().requires_grad_()
    for kind in PENALTIES:
        penalty = penalty_of(kind, images.flatten(1) @ weight, images)
        (gradient,) = torch.autograd.grad(penalty, weight)
        assert bool(gradient.isfinite().all())


def test_mixtures_lie_between_each_real_and_its_generated_sample() -> None:
    real, fake = torch.zeros(200, 1, 4, 4), torch.ones(200, 1, 4, 4)
    with RandomState(3, small.CPU).in_place():
        mixed = mix(real, fake)
    shares = mixed[:, 0, 0, 0]
    assert torch.equal(mixed, shares.view(-1, 1, 1, 1).expand_as(mixed))
    assert 0 <= float(shares.min()) < 0.05
    assert 0.95 < float(shares.max()) <= 1
    with RandomState(3, small.CPU).in_place():
        assert torch.equal(mixed, mix(real, fake))


def normalized() -> nn.Module:
    with RandomState(0, small.CPU).in_place():
        model = nn.Sequential(nn.Flatten(), *small.make_model()[1:])
        add_spectral_norm(model)
        return model


def test_spectral_norm_makes_the_largest_singular_value_one() -> None:
    model = normalized()
    plain = small.make_model()
    for _ in range(50):
        model(small.images(0))
    for name in ("1", "5"):
        weight = model.get_submodule(name).weight
        assert isinstance(weight, Tensor)
        original = plain.get_parameter(f"{name}.weight")
        wanted = original / torch.linalg.matrix_norm(original, 2)
        torch.testing.assert_close(weight, wanted, rtol=1e-5, atol=1e-6)


def test_spectral_norm_twice_is_spectral_norm_once() -> None:
    model = normalized()
    with pytest.raises(ValueError, match="normalised already"):
        add_spectral_norm(model)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_with_spectral_norm_the_last_layer_stays_exact(precision: str) -> None:
    """Spectral norm adds modules behind the last layer, which are no layers."""
    notes = []
    model = normalized()
    last = model.get_submodule("5")
    last.register_forward_hook(lambda _layer, _inputs, output: notes.append(output.dtype))
    first = model.get_submodule("1")
    first.register_forward_hook(lambda _layer, _inputs, output: notes.append(output.dtype))
    half = prepare(model, small.CPU, precision=precision, channels_last=False, compiled=False)
    assert half(small.images(0)).dtype == torch.float32
    assert notes == [{"bf16": torch.bfloat16, "fp16": torch.float16}[precision], torch.float32]


# DiffAugment and ADA, sample by sample.


DOUBLE = torch.float64


def pictures(num: int, *shape: int) -> Tensor:
    random = torch.Generator().manual_seed(4)
    return torch.rand(num, *shape, generator=random, dtype=DOUBLE) * 2 - 1


def drawn(num: int) -> Tensor:
    return torch.rand(num, 1, 1, 1, dtype=DOUBLE).flatten()


def pixel_by_pixel(samples: Tensor, probability: float) -> Tensor:
    """The paper's three transformations in loops, with the same random numbers in order."""
    num, _, height, width = samples.shape
    brightness, saturation, contrast, coloured = (drawn(num) for _ in range(4))
    most = [int(size / 8 + 0.5) for size in (height, width)]
    down, right = (torch.randint(-m, m + 1, (num, 1)).flatten().tolist() for m in most)
    moved = drawn(num)
    half = [int(size / 2 + 0.5) for size in (height, width)]
    middle = [
        torch.randint(0, size + 1 - h % 2, (num, 1)).flatten().tolist()
        for size, h in zip((height, width), half, strict=True)
    ]
    cut = drawn(num)
    made = []
    for n, picture in enumerate(samples.clone()):
        x = picture
        if coloured[n] < probability:
            x = x + brightness[n] - 0.5
            grey = x.mean(0)
            x = torch.stack([grey + 2 * saturation[n] * (plane - grey) for plane in x])
            x = x.mean() + (0.5 + contrast[n]) * (x - x.mean())
        if moved[n] < probability:
            shifted = torch.zeros_like(x)
            for row in range(height):
                for column in range(width):
                    source = row + down[n], column + right[n]
                    if 0 <= source[0] < height and 0 <= source[1] < width:
                        shifted[:, row, column] = x[:, source[0], source[1]]
            x = shifted
        if cut[n] < probability:
            begin = [middle[i][n] - half[i] // 2 for i in (0, 1)]
            rows = slice(max(begin[0], 0), max(begin[0] + half[0], 0))
            columns = slice(max(begin[1], 0), max(begin[1] + half[1], 0))
            x = x.clone()
            x[:, rows, columns] = 0
        made.append(x)
    return torch.stack(made)


@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 8, 8), (3, 9, 13)])
@pytest.mark.parametrize("probability", [0.0, 0.4, 1.0])
def test_each_sample_goes_through_the_papers_transformations(
    shape: tuple[int, ...], probability: float
) -> None:
    samples = pictures(40, *shape)
    with RandomState(8, small.CPU).in_place():
        result = augment(samples, probability)
    with RandomState(8, small.CPU).in_place():
        wanted = pixel_by_pixel(samples, probability)
    torch.testing.assert_close(result, wanted, rtol=1e-12, atol=1e-12)
    assert torch.equal(result, samples) is (probability == 0)


def test_both_its_derivatives_are_those_of_finite_differences() -> None:
    samples = pictures(2, 3, 4, 4).requires_grad_()

    def seen(images: Tensor) -> Tensor:
        with RandomState(3, small.CPU).in_place():
            return augment(images, 0.7).pow(3)

    assert torch.autograd.gradcheck(seen, samples)
    assert torch.autograd.gradgradcheck(seen, samples)


def test_feedback_is_the_gradient_through_the_augmentation() -> None:
    worker, judged = small.make_worker(1, regularizers=[Augmentation()]), small.images(3)
    model, state = small.make_model(1), RandomState(2001, small.CPU)
    leaf = judged.clone().requires_grad_()
    with state.in_place():
        loss = worker.rules.generator_loss(model(augment(leaf)))
    (wanted,) = torch.autograd.grad(loss, leaf)
    judgement = worker.feedback(Samples(judged))
    torch.testing.assert_close(judgement.feedback, wanted)


def test_p_follows_the_mean_sign_of_real_logits() -> None:
    """By formula (1) of Karras et al., at most 4b/images at a time, in [0, 1]."""
    augmentation, b = Augmentation(target=0.5, samples=200), 10
    random = torch.Generator().manual_seed(2)
    signs: list[float] = []
    p, notes = 0.0, set()
    for batch in range(160):
        shift = 2.0 if batch < 60 else -0.5 if batch < 110 else 1.0
        logits = torch.randn(b, 1, generator=random) + shift
        augmentation.note_real(logits)
        signs += [1.0 if x > 0 else -1.0 for x in logits.flatten().tolist()]
        if len(signs) == 4 * b:
            over = sum(signs) / len(signs) - 0.5
            p += (1 if over > 0 else -1 if over < 0 else 0) * len(signs) / 200
            p, signs = min(max(p, 0.0), 1.0), []
        assert augmentation.p == pytest.approx(p)
        notes.add(round(p, 6))
    assert {0.0, 0.2, 0.4, 0.6, 0.8, 1.0} <= notes


@pytest.mark.parametrize(("target", "p"), [(None, 200 / 500_000), (0.6, 200 / 500_000), (0.8, 0.0)])
def test_ada_has_the_numbers_of_its_paper_unless_a_target_is_given(
    target: float | None, p: float
) -> None:
    settings = RegularizerSettings(augment="ada", ada_target=target)
    (first,), (other,) = (make_regularizers(settings).all for _ in range(2))
    assert isinstance(first, Augmentation)
    assert isinstance(other, Augmentation)
    for _ in range(4):
        first.note_real(torch.tensor([1.0] * 43 + [-1.0] * 7))  # a mean sign of 0.72
    assert first.p == pytest.approx(p)
    assert other.p == 0, "each learner has its own"


def test_without_settings_there_are_none() -> None:
    assert not make_regularizers(RegularizerSettings()).all
    (fixed,) = make_regularizers(RegularizerSettings(augment="diffaugment")).all
    fixed.note_real(torch.ones(9))
    assert not fixed.state()
