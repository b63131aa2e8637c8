"""Samples from a run's newest generator."""

import hashlib
import io
import sys
from pathlib import Path

import numpy as np

from mdgan.data.dataset_file import load_path
from mdgan.errors import BadInput
from mdgan.observe.grid import draw_samples, grid_png
from mdgan.observe.run_directory import RunDirectory, write_whole


def sample_run(path: Path, num_samples: int, seed: int, output: Path, *, as_npz: bool) -> int:
    """Writes samples of a finished or running run, the same for the same seed.

    Args:
        path: the run's folder.
        num_samples: n.
        seed: decides the noise.
        output: the file to write.
        as_npz: one array `images`, float32 [n, C, H, W] in [−1, 1], instead of a grid.

    Returns:
        The iteration that the generator is from.

    Raises:
        BadInput: not a run, no generator yet, its dataset file is gone or no longer fits, or the
            output cannot be written.
    """
    run = RunDirectory.open(path)
    status = run.read_status()
    state, iteration = run.read_generator()
    source = Path(status.get("dataset_file", ""))
    if not source.is_file():
        raise BadInput(f"{path}: its dataset file {source} is gone; put it back")
    if hashlib.sha256(source.read_bytes()).hexdigest() != status.get("dataset_sha256"):
        print(f"mdgan: warning: {source} has changed since the run began", file=sys.stderr)
    dataset = load_path(source)
    generator = dataset.generator()
    try:
        generator.load_state_dict(state)
    except RuntimeError as error:
        raise BadInput(f"{path}: its generator no longer fits the models in {source}") from error
    images = draw_samples(generator, num_samples, dataset.z_dim, seed)
    if as_npz:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, images=images.numpy())
        data = buffer.getvalue()
    else:
        data = grid_png(images)
    try:
        write_whole(output, data)
    except OSError as error:
        raise BadInput(f"-o {output}: cannot write it ({error.strerror})") from error
    return iteration
