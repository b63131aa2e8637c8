"""The server's part of a checkpoint: the generator, its optimizer and its random numbers."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mdgan.gan.model_state import check_names, load_model, optimizer_tensors, part_of, under
from mdgan.gan.randomness import RandomState, restore_generator


def generator_state(
    generator: nn.Module,
    optimizer: torch.optim.Optimizer,
    noise: torch.Generator,
    random_state: RandomState,
) -> dict[str, Tensor]:
    """A copy of everything that the generator's next step depends on, besides feedback.

    Args:
        generator: G.
        optimizer: over G's parameters w.
        noise: draws z.
        random_state: the random numbers of dropout and the like.

    Returns:
        `generator.…`, `optimizer.<parameter>.<key>`, `noise` and `random.…`.
    """
    state = {
        **under("generator.", generator.state_dict()),
        **under("optimizer.", optimizer_tensors(generator, optimizer)),
        "noise": noise.get_state(),
        **under("random.", random_state.tensors()),
    }
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def load_generator_state(
    state: Mapping[str, Tensor],
    generator: nn.Module,
    optimizer: torch.optim.Optimizer,
    noise: torch.Generator,
    random_state: RandomState,
) -> None:
    """Restores what `generator_state` returned.

    Raises:
        KeyError, RuntimeError: the state does not fit this generator; nothing changed.
    """
    check_names(state, "generator.", "optimizer.", "noise", "random.")
    noise_before, random_before = noise.get_state(), random_state.tensors()
    try:
        restore_generator(noise, state["noise"])
        random_state.restore(part_of(state, "random."))
        weights, moments = part_of(state, "generator."), part_of(state, "optimizer.")
        load_model(generator, optimizer, weights, moments)
    except BaseException:
        noise.set_state(noise_before)
        random_state.restore(random_before)
        raise
