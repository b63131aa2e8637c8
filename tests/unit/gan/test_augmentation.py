"""DiffAugment and ADA against their papers' formulas, sample by sample."""

import pytest
import torch
from torch import Tensor

from mdgan.gan.augmentation import augment
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import RandomState
from mdgan.gan.regularizers.augment import Augmentation
from mdgan.gan.regularizers.registry import RegularizerSettings, make_regularizers
from tests.unit.gan import small

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
        got = augment(samples, probability)
    with RandomState(8, small.CPU).in_place():
        wanted = pixel_by_pixel(samples, probability)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    assert torch.equal(got, samples) is (probability == 0)


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
    p, seen = 0.0, set()
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
        seen.add(round(p, 6))
    assert {0.0, 0.2, 0.4, 0.6, 0.8, 1.0} <= seen


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
