import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES, Term
from mdgan.gan.settings import DISCRIMINATOR_LOSS_NAMES, GENERATOR_LOSS_NAMES

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
