"""Lays out the weights, gradients and buffers of networks as one tensor each, for messages."""

from collections.abc import Mapping

from torch import Tensor, nn

from mdgan.gan.model_vector import TensorVector, buffers_of, gradients_of, weights_of

ALL = GENERATOR, DISCRIMINATOR, BUFFERS = "generator", "discriminator", "buffers"
"""The names of `weight_vectors`."""
WHOLE = 2.0**24  # divides whole numbers while they are in one tensor with gradients


class GradientVector(TensorVector):
    """The gradients of some models as one tensor, and after them the buffers of some.

    It divides whole numbers, such as BatchNorm's count of batches, by `WHOLE`: they would outweigh
    all gradients.

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
    """The tensors that the server sends: the weights of each network, and the buffers of both."""
    generator, discriminator = models[GENERATOR], models[DISCRIMINATOR]
    return {
        GENERATOR: TensorVector(weights_of(generator)),
        DISCRIMINATOR: TensorVector(weights_of(discriminator)),
        BUFFERS: TensorVector(buffers_of(generator, discriminator)),
    }
