"""Finds and loads dataset files, divides their data over workers, and draws batches.

A dataset file builds on the names below; the documentation has a recipe.
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
