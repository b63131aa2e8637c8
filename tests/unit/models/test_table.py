"""The models of rows: what they generate, and what they learn of the columns."""

import numpy as np
import pytest
import torch

from mdgan.gan.build import build_model
from mdgan.gan.labels import call, num_classes_of
from mdgan.gan.sampling import draw_samples
from mdgan.models.registry import architecture
from mdgan.models.table import TableGenerator
from mdgan.samples.kinds import PICTURES
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.schema import CategoryColumn, Schema, WholeColumn, YesNoColumn
from tests.unit.samples.table.tables import STUDY


@pytest.mark.parametrize("target", [None, "stage"])
def test_rows_are_what_columns_are(target: str | None) -> None:
    kind = TableKind(STUDY, target)
    classes = kind.num_classes or 0
    models = architecture("table").make(kind.shape, classes, 16, kind)
    generator, discriminator = (
        build_model(make, 0) for make in (models.generator, models.discriminator)
    )
    assert num_classes_of(generator) == num_classes_of(discriminator) == kind.num_classes
    labels = torch.arange(6) % classes if classes else None
    z = torch.randn(6, models.z_dim, generator=torch.Generator().manual_seed(0))
    rows = call(generator, z, labels)
    assert rows.shape == (6, *kind.shape)
    assert rows.abs().max() <= 1
    for choice in kind.layout.choices:
        assert torch.allclose(rows[:, choice.start : choice.stop].sum(1), torch.ones(6))
    assert torch.equal(call(generator, z, labels), rows)  # all chance comes from z
    logits = call(discriminator, rows, labels)
    assert logits.shape == (6, 1)
    alone = call(discriminator, rows[:1], None if labels is None else labels[:1])
    assert torch.allclose(logits[:1], alone, atol=1e-6)


def test_pictures_are_no_rows() -> None:
    with pytest.raises(ValueError, match="makes rows of tables, not pictures"):
        architecture("table").make((1, 8, 8), 0, 16, PICTURES)


WARDS = ("A", "B", "C")


def with_counts(*counts: int, dose: int = 0, sick: tuple[int, int] = (1, 1)) -> TableKind:
    """What sites have counted of three wards, of doses missing in `dose` rows, and of the sick."""
    ward = CategoryColumn(name="ward", categories=WARDS)
    amount = WholeColumn(name="dose", low=0, high=3, may_be_missing=True)
    kind = TableKind(Schema(columns=(ward, amount, YesNoColumn(name="sick"))), "sick")
    kind.learn(torch.tensor([*counts, 250, 250, 250, 250, 1000, dose, *sick]).double())
    return kind


def drawn(kind: TableKind, generator: torch.nn.Module, z_dim: int, n: int = 20_000) -> np.ndarray:
    """Values of rows by a generator, half of them sick."""
    samples = draw_samples(generator, n, z_dim, seed=3, labels=torch.arange(n) % 2)
    return kind.decode(samples, None).values


def forgetful(kind: TableKind) -> tuple[TableGenerator, int]:
    """A generator that makes hardly any ward C and misses no dose."""
    models = architecture("table").make(kind.shape, 2, 16, kind)
    generator = build_model(models.generator, 0)
    assert isinstance(generator, TableGenerator)
    entries = [kind.layout.places[0].choice[2], kind.layout.places[1].choice[-1]]
    with torch.no_grad():
        generator.last.bias[entries] -= 9
    return generator, models.z_dim


@pytest.mark.parametrize("sick", [(1, 1), (1000, 10)])
@pytest.mark.parametrize(("ward", "dose"), [(1, 4), (4, 1), (9, 9)])
def test_rare_values_come_as_often_as_counted(ward: int, dose: int, sick: tuple[int, int]) -> None:
    kind = with_counts(1500, 500, ward, dose=dose, sick=sick)
    generator, z_dim = forgetful(kind)
    before = drawn(kind, generator, z_dim)
    weights = {name: value.clone() for name, value in generator.state_dict().items()}
    kind.calibrate(generator)
    after = drawn(kind, generator, z_dim)
    for share, column, value in ((ward / (2000 + ward), 0, 2.0), (dose / (1000 + dose), 1, np.nan)):
        told = share * len(after)
        results = [
            int(np.isclose(v[:, column], value, equal_nan=True).sum()) for v in (before, after)
        ]
        assert results[0] < told / 4
        assert abs(results[1] - told) < 4 * told**0.5 + 0.1 * told
    # The others keep their shares, and weights are as trained.
    shares = [(values[:, 0] == 0).mean() / (values[:, 0] == 1).mean() for values in (before, after)]
    assert shares[0] == pytest.approx(shares[1], rel=0.02)
    assert generator.state_dict().keys() == weights.keys()
    assert all(torch.equal(generator.state_dict()[name], weights[name]) for name in weights)
    kind.calibrate(generator)
    again = drawn(kind, generator, z_dim)
    assert np.array_equal(again, after, equal_nan=True)


def test_too_many_of_a_rare_value_become_fewer() -> None:
    kind = with_counts(1500, 500, 9)
    generator, z_dim = forgetful(kind)
    with torch.no_grad():
        generator.last.bias[kind.layout.places[0].choice[2]] += 12
    before = (drawn(kind, generator, z_dim)[:, 0] == 2).mean()
    kind.calibrate(generator)
    after = (drawn(kind, generator, z_dim)[:, 0] == 2).mean()
    assert before > 0.1
    assert after == pytest.approx(9 / 2009, rel=0.3)


@pytest.mark.parametrize("counts", [(1500, 500, 21), (10, 10, 10), (1000, 1000, 0)])
def test_without_rare_values_all_bits_stay(counts: tuple[int, ...]) -> None:
    """A value that no site has is none that is to come more often."""
    kind = with_counts(*counts)
    generator, z_dim = forgetful(kind)
    before = drawn(kind, generator, z_dim, 1000)
    kind.calibrate(generator)
    assert np.array_equal(drawn(kind, generator, z_dim, 1000), before, equal_nan=True)


def test_strangers_with_coarse_counts_draw_the_same() -> None:
    kind = with_counts(1500, 500, 7, dose=3, sick=(1201, 799))
    strangers = with_counts(1, 1, 1)
    strangers.learn(kind.coarse(kind.learnt))
    generator, z_dim = forgetful(kind)
    results = []
    for known in (kind, strangers):
        known.calibrate(generator)
        results.append(draw_samples(generator, 300, z_dim, seed=0, labels=torch.arange(300) % 2))
    assert torch.equal(*results)
