from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mdgan.gan.sampling import draw_samples, sample_pieces

Z_DIM = 5


def generator() -> nn.Sequential:
    model = nn.Sequential(
        nn.Linear(Z_DIM, 8),
        nn.BatchNorm1d(8),
        nn.Dropout(0.5),
        nn.Linear(8, 12),
        nn.Tanh(),
        nn.Unflatten(1, (3, 2, 2)),
    )
    model(torch.randn(20, Z_DIM))
    return model


@pytest.mark.parametrize("num_samples", [1, 2, 16, 255, 256, 257])
def test_a_sample_does_not_depend_on_how_many_there_are(num_samples: int) -> None:
    model = generator()
    many = draw_samples(model, 300, Z_DIM, 3)
    few = draw_samples(model, num_samples, Z_DIM, 3)
    # Kernels may add up in another order for another batch size; noise or statistics would show.
    torch.testing.assert_close(few, many[:num_samples], rtol=0, atol=1e-6)


class NoisyGenerator(nn.Module):
    """Draws noise of its own even in evaluation, as some generators do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(Z_DIM, 4)

    def forward(self, z: Tensor) -> Tensor:
        made: Tensor = self.linear(z) + torch.randn(4)
        return made.tanh().view(-1, 1, 2, 2)


@pytest.mark.parametrize("make", [generator, NoisyGenerator])
def test_samples_follow_from_the_seed_alone(make: Callable[[], nn.Module]) -> None:
    model = make()
    torch.manual_seed(1)
    samples = draw_samples(model, 4, Z_DIM, 3)
    assert (samples.dtype, samples.requires_grad) == (torch.float32, False)
    assert samples.abs().max() <= 1
    torch.manual_seed(2)
    assert torch.equal(draw_samples(model, 4, Z_DIM, 3), samples)
    assert not torch.equal(draw_samples(model, 4, Z_DIM, 4), samples)
    assert len({tuple(sample.flatten().tolist()) for sample in samples}) == 4


@pytest.mark.parametrize("training", [True, False])
def test_drawing_leaves_the_generator_and_random_numbers_as_they_were(training: bool) -> None:
    model = generator().train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random_state = torch.get_rng_state()
    draw_samples(model, 300, Z_DIM, 3)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(module.training == training for module in model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()


def test_a_part_that_was_frozen_in_evaluation_stays_so() -> None:
    model = generator().train()
    model[1].eval()
    draw_samples(model, 4, Z_DIM, 3)
    assert model.training
    assert [part.training for part in model] == [True, False, True, True, True, True]


def test_a_generator_that_fails_is_put_back_into_training() -> None:
    model = nn.Sequential(nn.Linear(Z_DIM + 1, 4))
    random_state = torch.get_rng_state()
    with pytest.raises(RuntimeError):
        draw_samples(model, 4, Z_DIM, 3)
    assert model.training
    assert torch.equal(torch.get_rng_state(), random_state)


def test_pieces_are_the_samples_in_order() -> None:
    model = generator()
    pieces = []
    for piece in sample_pieces(model, 600, Z_DIM, 3):
        assert model.training, "between two pieces it may train on"
        assert torch.is_grad_enabled()
        pieces.append(piece)
    assert [len(piece) for piece in pieces] == [256, 256, 88]
    assert torch.equal(torch.cat(pieces), draw_samples(model, 600, Z_DIM, 3))
