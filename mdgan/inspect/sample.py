"""Writes samples of a run's newest generator."""

import io
from pathlib import Path

import numpy as np

from mdgan.errors import BadInput
from mdgan.gan.sampling import draw_samples
from mdgan.inspect.trained import load_trained
from mdgan.observe.grid import class_grid_png, grid_png, usual_grid
from mdgan.storage.whole_file import write_output

_NUM_SAMPLES = 64


def sample_run(
    path: Path,
    num_samples: int | None,
    seed: int,
    output: Path,
    *,
    as_npz: bool,
    raw: bool = False,
    label: int | None = None,
) -> tuple[int, int]:
    """Writes samples of a finished or running run, the same for the same seed.

    Args:
        num_samples: n; None for 64, or for the picture that training draws of all classes.
        as_npz: one array `images`, float32 [n, C, H, W] in [−1, 1], instead of a grid; and
            `labels`, int64 [n], if the generator is conditional.
        label: the class that all samples are of; None for all classes, a row each.

    Returns:
        The iteration after which the generator was saved, and n.
    """
    ending = ".npz" if as_npz else ".png"
    if output.suffix.lower() != ending:
        other = "; --npz writes arrays" if output.suffix.lower() == ".npz" else ""
        raise BadInput(f"-o {output}: must end in {ending}{other}")
    trained = load_trained(path, raw=raw)
    if num_samples is None and label is None and not as_npz:
        data, num_samples = usual_grid(trained.generator, trained.models.z_dim, seed)
        write_output("-o", output, data)
        return trained.iteration, num_samples
    num_samples = num_samples or _NUM_SAMPLES
    labels = trained.labels(num_samples, label)
    if labels is not None and not as_npz:
        labels = labels.sort().values  # as the rows of the picture are filled
    images = draw_samples(trained.generator, num_samples, trained.models.z_dim, seed, labels)
    if as_npz:
        buffer = io.BytesIO()
        arrays = {"images": images.numpy()}
        if labels is not None:
            arrays["labels"] = labels.numpy()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type] # numpy's stubs take the arrays for its own flag
        data = buffer.getvalue()
    elif labels is not None and label is None:
        data = class_grid_png(images, labels)
    else:
        data = grid_png(images)
    write_output("-o", output, data)
    return trained.iteration, num_samples
