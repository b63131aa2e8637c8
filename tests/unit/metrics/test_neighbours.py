import pytest
import torch

from mdgan.metrics.neighbours import nearest


@pytest.mark.parametrize("num_held_out", [2, 7, 1200])
def test_neighbours_are_those_that_a_search_of_all_pairs_finds(num_held_out: int) -> None:
    draw = torch.Generator().manual_seed(num_held_out)
    generated = torch.randn(9, 4, generator=draw, dtype=torch.float64)
    held_out = torch.randn(num_held_out, 4, generator=draw, dtype=torch.float64)
    found = nearest(generated, held_out)
    to_real = [[float((g - h).norm()) for h in held_out] for g in generated]
    assert found.places.tolist() == [row.index(min(row)) for row in to_real]
    median = sorted(map(min, to_real))[4]
    assert found.generated == pytest.approx(median)


def test_a_copy_is_nearer_than_real_samples_are_to_each_other() -> None:
    held_out = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=torch.float64)
    found = nearest(held_out[[2, 0]], held_out)
    assert found.places.tolist() == [2, 0]
    assert found.generated == 0.0
    assert found.real == 1.0  # of 1, 1, 2 and 4 the lower median
