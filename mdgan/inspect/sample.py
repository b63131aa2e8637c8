"""Writes samples of a run's newest generator."""

import io
from pathlib import Path

import numpy as np

from mdgan.errors import BadInput
from mdgan.gan.sampling import draw_samples
from mdgan.inspect.trained import load_trained
from mdgan.observe.grid import grid_png
from mdgan.storage.whole_file import write_output


def sample_run(
    path: Path, num_samples: int, seed: int, output: Path, *, as_npz: bool, raw: bool = False
) -> int:
    """Writes samples of a finished or running run, the same for the same seed.

    Args:
        path: the run's folder.
        num_samples: n.
        seed: decides the noise.
        output: the file to write.
        as_npz: one array `images`, float32 [n, C, H, W] in [−1, 1], instead of a grid.
        raw: of the generator itself, though the run has averaged it.

    Returns:
        The iteration after which the generator was saved.

    Raises:
        BadInput: not a run, no generator yet, its dataset file is gone or no longer fits, or the
            output cannot be written, or its ending is not that of what is written.
    """
    ending = ".npz" if as_npz else ".png"
    if output.suffix.lower() != ending:
        other = "; --npz writes arrays" if output.suffix.lower() == ".npz" else ""
        raise BadInput(f"-o {output}: must end in {ending}{other}")
    trained = load_trained(path, raw=raw)
    images = draw_samples(trained.generator, num_samples, trained.models.z_dim, seed)
    if as_npz:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, images=images.numpy())
        data = buffer.getvalue()
    else:
        data = grid_png(images)
    write_output("-o", output, data)
    return trained.iteration
