"""Dataset files found and loaded, partitioned, sampled.

The names below are what a dataset file builds on; see the recipe in the README.
"""

from mdgan.data.images import image_to_tensor, read_image
from mdgan.data.partitioner import ImageFilesPartitioner, InMemoryPartitioner, Partitioner

__all__ = [
    "ImageFilesPartitioner",
    "InMemoryPartitioner",
    "Partitioner",
    "image_to_tensor",
    "read_image",
]
