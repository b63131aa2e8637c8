"""Samples as a file of numpy's arrays."""

import io

import numpy as np
from torch import Tensor


def npz_of(samples: Tensor, labels: Tensor | None) -> bytes:
    """One array `images`, float32 [n, *shape] in [−1, 1]; `labels`, int64 [n], if there are any."""
    arrays = {"images": samples.numpy()}
    if labels is not None:
        arrays["labels"] = labels.numpy()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type] # numpy's stubs take the arrays for its own flag
    return buffer.getvalue()
