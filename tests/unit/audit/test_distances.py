import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from mdgan.audit.distances import Space, copied_share, copying, most_suspicious
from mdgan.records.audit import Copying
from tests.marks import mostly_slow


@pytest.fixture
def points() -> Tensor:
    return torch.randn(900, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def space_of(generated: Tensor, trained: Tensor, held_out: Tensor) -> Space:
    """Of samples in two classes that say nothing."""
    classes = (torch.arange(len(each)) % 2 for each in (trained, held_out))
    return Space("pixels", generated, trained, held_out, *classes)


def attacked(space: Space) -> Copying:
    result = copying(space, seed=0)
    assert result is not None
    return result


def test_a_generator_that_copies_is_found(points: Tensor) -> None:
    copied = points[:200].repeat(3, 1) + 1e-3 * points[:600]
    outcome = attacked(space_of(copied, points[:200], points[600:]))
    assert outcome.membership.auc > 0.999
    assert outcome.membership.place == pytest.approx(1 / 201)
    assert outcome.membership.found[0].share > 0.99
    assert outcome.ratio < 0.01
    assert outcome.nearer == 1
    assert outcome.error < 0.1


def test_one_that_makes_new_samples_is_not_accused_though_more_are_trained_on(
    points: Tensor,
) -> None:
    outcome = attacked(space_of(points[:300], points[300:800], points[800:]))
    assert outcome.membership.auc == pytest.approx(0.5, abs=0.1)
    assert outcome.ratio == pytest.approx(1, abs=0.12)
    assert outcome.nearer == pytest.approx(0.5, abs=0.1)


def digits() -> tuple[Tensor, Tensor]:
    result = load_digits()
    return torch.tensor(result.images).flatten(1) / 8 - 1, torch.tensor(result.target)


_FOUR = [3, 4, 7, 8]


def of_few_classes(images: Tensor, classes: Tensor, number: int) -> Tensor:
    """Samples around the mean of four of the classes: new ones, of a generator that has four."""
    random = torch.Generator().manual_seed(0)
    made = []
    for each in _FOUR:
        own = images[classes == each]
        noise = torch.randn(number, 64, generator=random, dtype=torch.float64)
        made.append(own.mean(0) + own.std(0) * noise)
    return torch.cat(made)


@pytest.mark.parametrize(
    "held_out", mostly_slow(["every fifth", "few of the four classes"], ["few of the four classes"])
)
def test_a_generator_of_four_classes_is_not_taken_for_one_that_knows_who_was_held_out(
    held_out: str,
) -> None:
    images, classes = digits()
    places = torch.arange(len(images))
    if held_out == "every fifth":
        out = places % 5 == 4
    else:
        few = torch.isin(classes, torch.tensor(_FOUR))
        chance = torch.rand(len(images), generator=torch.Generator().manual_seed(1))
        out = chance < torch.where(few, 0.1, 0.3)
    generated = of_few_classes(images, classes, 300)
    outcome = attacked(
        Space("pixels", generated, images[~out], images[out], classes[~out], classes[out])
    ).membership
    assert abs(outcome.auc - 0.5) < 2 * outcome.error
    assert outcome.chance == pytest.approx(0.5, abs=0.01)
    assert outcome.place is not None
    assert 0.025 < outcome.place < 0.975


def test_without_a_class_in_common_nothing_can_be_said(points: Tensor) -> None:
    classes = torch.zeros(100, dtype=torch.int64)
    parts = points[:100], points[100:200], points[200:300]
    assert copying(Space("pixels", *parts, classes, classes + 1), seed=0) is None


def test_the_only_copy_is_shown_first_beside_what_it_copies(points: Tensor) -> None:
    generated = points[:300].clone()
    generated[123] = points[400] + 1e-9
    places, trained, held_out = most_suspicious(
        space_of(generated, points[300:700], points[700:]), 5
    )
    assert [int(places[0]), int(trained[0])] == [123, 100]
    assert len(held_out) == 5


def test_ten_stored_samples_are_found_among_many(points: Tensor) -> None:
    stored = points[:10].repeat(60, 1)
    assert copied_share(stored, points[600:], torch.split(points[:600], 100)) > 0.95
    some = torch.cat([stored[:30], torch.randn(570, 6, dtype=torch.float64)])
    assert 0.02 < copied_share(some, points[600:], [points[:600]]) < 0.08


def test_new_samples_are_no_copies_though_many_more_were_trained_on(points: Tensor) -> None:
    assert copied_share(points[:300], points[800:], [points[300:800]]) < 0.02


def test_rows_that_many_share_are_no_copies() -> None:
    random = torch.Generator().manual_seed(0)
    rows = torch.randint(3, (900, 3), generator=random).double()
    assert copied_share(rows[:300], rows[600:], [rows[300:600]]) < 0.02
