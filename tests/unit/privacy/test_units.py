"""The samples of a person, and equal samples, are one unit, which the noise hides as a whole."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mdgan.gan.labels import Known, Samples
from mdgan.privacy.contents import Contents, Units
from mdgan.privacy.real_half import DrawnUnits, PoissonHalf, SeededSteps
from tests.claims.registry import claim
from tests.unit.gan.small import SHAPE
from tests.unit.privacy.halves import make_shard, make_worker

NUMBERS = st.lists(st.integers(0, 6), min_size=1, max_size=30)


def numbered(names: list[int]) -> Tensor:
    """Numbers of units, in the order of their first samples."""
    notes: dict[int, int] = {}
    return torch.tensor([notes.setdefault(name, len(notes)) for name in names])


class Named:
    """Samples that are known by the names of persons."""

    def __init__(self, names: list[int]) -> None:
        self._names = names

    def known(self) -> list[Known]:
        return [Known(b"%d" % name, b"row %d" % n) for n, name in enumerate(self._names)]


@given(NUMBERS, st.integers(0, 10**6))
def test_a_draw_of_units_gives_a_sample_of_each(names: list[int], seed: int) -> None:
    of_sample = numbered(names)
    units, generator = Units(of_sample), torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(units), generator=generator)
    drawn = units.drawn(chosen, 1 - torch.rand(len(units), generator=generator).double())
    assert of_sample[drawn].tolist() == chosen.tolist()
    assert of_sample[units.drawn(chosen, torch.ones(len(units)))].tolist() == chosen.tolist()
    torch.testing.assert_close(
        torch.zeros(len(units)).double().index_add_(0, of_sample, units.weights),
        torch.ones(len(units)).double(),
    )
    firsts = units.first_samples
    assert of_sample[firsts].tolist() == list(range(len(units)))
    assert [names.index(names[place]) for place in firsts.tolist()] == firsts.tolist()


@given(NUMBERS)
@claim("unit", "A unit is a sample, with all that equal it: copies of a picture, equal rows.")
def test_contents_say_whose_samples_are(names: list[int]) -> None:
    held = Contents.of(Named(names))
    assert len(held.digests) == len(set(names))
    assert held.num_repeats == len(names) - len(set(names))
    assert held.unit_of_sample is not None
    assert torch.equal(held.unit_of_sample, numbered(names))
    assert len(held.rows) == len(names)


def test_all_samples_of_a_unit_are_drawn_alike() -> None:
    units = Units(torch.tensor([0, 1, 0, 0]))
    uniform = torch.arange(1, 3001).double() / 3000
    result = torch.cat([units.drawn(torch.tensor([0]), each[None]) for each in uniform])
    assert torch.bincount(result).tolist() == [1000, 0, 1000, 1000]


class Drawn:
    """Samples that remember which of them were drawn in each step."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.steps: list[list[int]] = []

    def __len__(self) -> int:
        return self._count

    def taken(self, positions: Tensor) -> Samples:
        self.steps.append(positions.tolist())
        return Samples(torch.zeros(len(positions), *SHAPE), None)


@claim("steps", "draws each of its units with probability q")
def test_a_step_has_one_sample_of_a_person_at_most_and_another_one_each_time() -> None:
    owned, of_sample = Drawn(30), torch.arange(30) // 5
    steps = SeededSteps(b"a secret")
    units = DrawnUnits(owned, Units(of_sample), steps)
    half = PoissonHalf(units, steps, 4, clip=1.0, noise=0.0, tells_loss=False)
    assert half.size == 6
    learner = make_worker(make_shard(3), clip=1.0)
    for _ in range(40):
        half.learn(learner.discriminator, learner.rules, learner.regularizers)
        half.taken()
    for places in owned.steps:
        assert len({int(of_sample[place]) for place in places}) == len(places)
    assert {place for places in owned.steps for place in places} == set(range(30))
