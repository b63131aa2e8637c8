"""Dataset files found and loaded, partitioned, sampled.

The names below are what a dataset file builds on; `docs/extending.md` has the recipe. They are
imported when they are asked for, since they need torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mdgan.data.partitioner import ImageFilesPartitioner, InMemoryPartitioner, Partitioner
    from mdgan.samples.pictures.reading import image_to_tensor, read_image

__all__ = [
    "ImageFilesPartitioner",
    "InMemoryPartitioner",
    "Partitioner",
    "image_to_tensor",
    "read_image",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    of_data = name.endswith("Partitioner")
    module = "mdgan.data.partitioner" if of_data else "mdgan.samples.pictures.reading"
    return getattr(importlib.import_module(module), name)
