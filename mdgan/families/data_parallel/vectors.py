"""How networks and their gradients travel: each as one tensor."""

from collections.abc import Mapping

from torch import Tensor, nn

from mdgan.gan.model_vector import TensorVector, buffers_of, gradients_of, weights_of

ALL = GENERATOR, DISCRIMINATOR, BUFFERS = "generator", "discriminator", "buffers"
"""The names of `weight_vectors`."""
WHOLE = 2.0**24  # by this whole numbers are divided while they are averaged with gradients


class GradientVector(TensorVector):
    """Gradients of some models as one tensor, and buffers of some, which follow them.

    Whole numbers, such as BatchNorm's count of batches, are scaled down, or drown gradients.

    Attributes:
        num_gradient_blocks: how many of the first blocks hold gradients.
    """

    def __init__(self, trained: list[nn.Module], buffered: list[nn.Module]) -> None:
        buffers = buffers_of(*buffered)
        gradients = gradients_of(*trained)
        super().__init__(gradients, buffers)
        self.num_gradient_blocks, _ = TensorVector(gradients).shape
        _, whole = buffers()
        num_whole_blocks, _ = TensorVector(lambda: [whole]).shape
        self._first_whole = self.shape[0] - num_whole_blocks

    def read(self) -> Tensor:
        vector = super().read()
        vector[self._first_whole :] /= WHOLE
        return vector

    def write(self, *vectors: Tensor) -> None:
        (vector,) = vectors
        super().write(vector[: self._first_whole], vector[self._first_whole :] * WHOLE)


def weight_vectors(models: Mapping[str, nn.Module]) -> dict[str, TensorVector]:
    """What the server sends: the weights of each network, and the buffers of both."""
    generator, discriminator = models[GENERATOR], models[DISCRIMINATOR]
    return {
        GENERATOR: TensorVector(weights_of(generator)),
        DISCRIMINATOR: TensorVector(weights_of(discriminator)),
        BUFFERS: TensorVector(buffers_of(generator, discriminator)),
    }
