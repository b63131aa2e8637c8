"""The models of rows: what they make, and what they are told."""

import pytest
import torch

from mdgan.gan.build import build_model
from mdgan.gan.labels import call, num_classes_of
from mdgan.models.registry import architecture
from mdgan.samples.kinds import PICTURES
from mdgan.samples.table.kind import TableKind
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
