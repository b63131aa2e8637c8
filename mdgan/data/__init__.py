"""Finds, loads and divides data sets, and draws batches from them.

Dataset files use the names below; `docs/extending.md` has the recipe. The package imports each name
when it is first used, since all need torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mdgan.data.partitioner import ImageFilesPartitioner, InMemoryPartitioner, Partitioner
    from mdgan.data.volume_files import VolumesPartitioner
    from mdgan.samples.pictures.reading import image_to_tensor, read_image

__all__ = [
    "ImageFilesPartitioner",
    "InMemoryPartitioner",
    "Partitioner",
    "VolumesPartitioner",
    "image_to_tensor",
    "read_image",
]

_PARTITIONERS, _READING = "mdgan.data.partitioner", "mdgan.samples.pictures.reading"
_HOMES = {
    "VolumesPartitioner": "mdgan.data.volume_files",
    "image_to_tensor": _READING,
    "read_image": _READING,
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, _PARTITIONERS)), name)
