"""BatchNorm whose scale and shift depend on a condition of each sample."""

from torch import Tensor, nn


class ConditionalBatchNorm(nn.Module):
    """BatchNorm with the scale 1 + A·c and the shift B·c (Brock et al. 2019, figure 15).

    Args:
        channels: of the maps.
        condition_size: of c.
    """

    def __init__(self, channels: int, condition_size: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.scale = nn.Linear(condition_size, channels, bias=False)
        self.shift = nn.Linear(condition_size, channels, bias=False)

    def forward(self, maps: Tensor, condition: Tensor) -> Tensor:
        """Normalises.

        Args:
            maps: [b, channels, h, w].
            condition: c, [b, condition_size].
        """
        scale, shift = 1 + self.scale(condition), self.shift(condition)
        scaled: Tensor = self.norm(maps) * scale[:, :, None, None] + shift[:, :, None, None]
        return scaled
