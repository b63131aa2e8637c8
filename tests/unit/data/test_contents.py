"""What tells samples from others: what they hold, and not how they are read."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mdgan.data import ImageFilesPartitioner, InMemoryPartitioner, Partitioner
from mdgan.data.images import pixels_to_float
from mdgan.data.readable import Readable
from mdgan.data.shard import Shard
from mdgan.errors import BadInput
from mdgan.privacy.contents import Contents
from tests.unit.dataset_formats import write_image_folder
from tests.unit.privacy.halves import Few

PIXELS = torch.randint(0, 256, (300, 3, 4, 4), generator=torch.Generator().manual_seed(0)).byte()
ALL = torch.arange(300)


class InMemory(InMemoryPartitioner):
    """Pixels, as bytes or as floats."""

    images_as: Tensor

    def read(self, _data_dir: Path) -> tuple[Tensor, Tensor]:
        return self.images_as, torch.zeros(len(self.images_as), dtype=torch.int64)


def in_memory(images: Tensor) -> InMemory:
    class Given(InMemory):
        images_as = images

    return Given(Path())


def shard_of(source: Partitioner, positions: Tensor = ALL) -> Shard:
    return Shard(source, positions, torch.Generator())


def test_floats_and_bytes_of_the_same_picture_agree() -> None:
    known = in_memory(PIXELS).contents(ALL)
    assert known == in_memory(pixels_to_float(PIXELS)).contents(ALL)
    assert known == Few(pixels_to_float(PIXELS)).contents(ALL)
    assert known[7] == bytes(PIXELS[7].flatten().tolist())


def test_a_shard_has_those_of_its_samples_whatever_their_order() -> None:
    source, some = in_memory(PIXELS), torch.tensor([9, 2, 280])
    shard = shard_of(Readable(source, torch.arange(1, 300)), some - 1)
    assert list(shard.contents()) == source.contents(some)
    assert Contents.of(shard) == Contents.of(shard_of(source, some.flip(0)))
    assert len(Contents.of(shard_of(source)).digests) == 300
    assert Contents.of(shard_of(source, torch.tensor([5, 6, 5, 5]))).num_repeats == 2


def test_a_picture_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    class Files(ImageFilesPartitioner):
        shape = (3, 8, 8)

        def find(self, data_dir: Path) -> tuple[list[Path], Tensor]:
            paths = sorted(data_dir.rglob("*.*"))
            return paths, torch.zeros(len(paths), dtype=torch.int64)

    write_image_folder(tmp_path, ["a"], 3)
    source = Files(tmp_path)
    assert source.contents(torch.tensor([2, 0])) == [
        source.paths[2].read_bytes(),
        source.paths[0].read_bytes(),
    ]
    source.paths[1].unlink()
    with pytest.raises(BadInput, match="cannot be read to find out what it has spent"):
        Contents.of(Shard(source, torch.arange(3), torch.Generator()))


def test_pictures_that_are_others_each_time_are_refused() -> None:

    class Counted(Few):
        seen = 0

        def images(self, indices: Tensor) -> Tensor:
            self.seen += 1
            return super().images(indices) * (1 - 0.1 * self.seen)

    with pytest.raises(BadInput, match=r"another picture each time .*define `contents`"):
        Contents.of(shard_of(Counted(pixels_to_float(PIXELS))))
