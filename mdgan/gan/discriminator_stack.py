"""Several discriminators with equal models, computed at once.

Shapes are written [R, b, C, H, W]: a batch of b samples for each of R of the discriminators.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from mdgan.gan.labels import Samples, inputs
from mdgan.gan.losses import Verdict, as_verdict
from mdgan.gan.model_stack import ModelStack, Weights

Loss = Callable[[Verdict, Tensor | None], Tensor]
"""From what one discriminator says of a batch, and the labels if it is conditional, to a scalar."""

Penalty = Callable[[Tensor, Tensor], Tensor]
"""From logits, [R, b], and the batch that they are of, [R, b, C, H, W], to [R]."""


class DiscriminatorStack:
    """What stacked discriminators learn and judge.

    Args:
        models: their weights and optimizers.
    """

    def __init__(self, models: ModelStack) -> None:
        self._models = models

    def rehearse(self, batch: Samples, loss: Loss, penalty: Penalty | None = None) -> None:
        """Sees whether gradients can be computed.

        Args:
            batch: of any content, [W, b, C, H, W] for all W discriminators.
            loss: any.
            penalty: see `learn`.

        Raises:
            CannotStack: they cannot.
        """
        images = batch.images.detach().requires_grad_()

        def compute(weights: Weights) -> Tensor:
            losses, logits = self._losses(weights, batch.of(images), loss)
            return (losses if penalty is None else losses + penalty(logits, images)).sum()

        self._models.rehearse(compute, images)

    def learn(
        self,
        rows: Sequence[int],
        batch: Samples,
        loss: Loss,
        scale: float,
        *,
        begin: bool,
        penalty: Penalty | None = None,
        source: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Puts the gradient of a loss in place, or adds it to the gradient that is there.

        Args:
            rows: of R discriminators, increasing.
            batch: what each of them sees, [R, b, C, H, W]; labels are [R, b].
            loss: of each.
            scale: what losses are multiplied by.
            begin: whether to replace the gradients that are there.
            penalty: added to the loss, from logits [R, b] and `source`.
            source: what the images were made of, by a graph; these themselves if not given.

        Returns:
            The losses without the penalty, [R], not scaled, and the logits, [R, b]; without graphs.
        """
        weights = self._models.chosen(rows)
        self._models.learnt(weights)
        losses, logits = self._losses(weights, batch, loss)
        whole = losses
        if penalty is not None:
            whole = losses + penalty(logits, batch.images if source is None else source)
        self._models.learn(rows, weights, (whole * scale).sum(), begin=begin)
        return losses.detach(), logits.detach()

    def judge(self, rows: Sequence[int], batch: Samples, loss: Loss) -> tuple[Tensor, Tensor]:
        """Losses of what they see, with a graph to the images; the weights are in none.

        Args:
            rows: of R discriminators, increasing.
            batch: what each of them sees, [R, b, C, H, W]; labels are [R, b].
            loss: of each.

        Returns:
            The losses, [R], and the logits, [R, b].
        """
        weights = self._models.chosen(rows)
        found = self._losses(weights, batch, loss)
        self._models.put_back(rows, weights)
        return found

    def _losses(self, weights: Weights, batch: Samples, loss: Loss) -> tuple[Tensor, Tensor]:
        """Losses, [R], and logits, [R, b], with their graph."""

        def read(
            output: Tensor | tuple[Tensor, Tensor], _images: Tensor, labels: Tensor | None = None
        ) -> tuple[Tensor, Tensor]:
            verdict = as_verdict(output)
            return loss(verdict, labels), verdict.logits.flatten()

        losses, logits = self._models.outputs(weights, read, *inputs(batch.images, batch.labels))
        return losses, logits
