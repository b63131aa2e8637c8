"""Who holds which classes, as a picture."""

import io
from collections.abc import Sequence

from torch import Tensor

from mdgan.errors import BadInput

_MOST_NUMBERS = 400


def partition_picture(
    counts: Tensor, class_names: Sequence[str], title: str, file_format: str
) -> bytes:
    """Draws a heat map, workers against classes, with the number of samples in each cell.

    Args:
        counts: int64 [N, number of classes].
        class_names: one a class; their numbers are shown if there are none.
        title: above the picture.
        file_format: `png` or `svg`.

    Returns:
        The picture file.

    Raises:
        BadInput: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput(
            "pictures of partitions need matplotlib: pip install 'mdgan[plots]'"
        ) from error
    num_workers, num_classes = counts.shape
    width, height = 2.5 + 0.55 * min(num_classes, 40), 1.6 + 0.32 * min(num_workers, 60)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(counts.numpy(), cmap="cividis", aspect="auto", vmin=0)
    axes.set(xlabel="class", ylabel="worker", title=title)
    axes.set_xticks(range(num_classes), class_names or [str(c) for c in range(num_classes)])
    if class_names:
        axes.tick_params(axis="x", rotation=45)
    step = max(1, num_workers // 40)
    axes.set_yticks(range(0, num_workers, step), [str(n + 1) for n in range(0, num_workers, step)])
    figure.colorbar(image, ax=axes, label="samples")
    if counts.numel() <= _MOST_NUMBERS:
        middle = counts.max().item() / 2
        for n, row in enumerate(counts.tolist()):
            for c, count in enumerate(row):
                colour = "black" if count > middle else "white"
                axes.text(c, n, str(count), ha="center", va="center", color=colour, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file_format, dpi=150)
    return buffer.getvalue()
