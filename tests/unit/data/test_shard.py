"""How a worker draws real batches, and how digests tell samples apart."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.data import ImageFilesPartitioner, InMemoryPartitioner, Partitioner
from mdgan.data.readable import Readable
from mdgan.data.shard import Shard
from mdgan.errors import BadInput
from mdgan.privacy.contents import Contents
from mdgan.samples.pictures.reading import pixels_to_float
from tests.claims.registry import claim
from tests.unit.dataset_formats import write_image_folder
from tests.unit.privacy.halves import Few

SOURCE_SIZE = 100


class Numbers(InMemoryPartitioner):
    """Sample i is the number i, so that a batch tells which samples were drawn."""

    def __init__(self) -> None:
        self.pixels = torch.arange(SOURCE_SIZE, dtype=torch.float32).reshape(-1, 1, 1, 1)
        super().__init__(Path())

    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        return self.pixels, torch.zeros(SOURCE_SIZE, dtype=torch.int64)


def make_shard(indices: Tensor, seed: int = 0) -> Shard:
    return Shard(Numbers(), indices, torch.Generator().manual_seed(seed))


def draw(shard: Shard, *batch_sizes: int) -> list[int]:
    batches = [shard.next_batch(batch_size).images for batch_size in batch_sizes]
    assert [tuple(batch.shape) for batch in batches] == [(size, 1, 1, 1) for size in batch_sizes]
    return torch.cat(batches).flatten().long().tolist()


all_indices = st.sets(st.integers(0, SOURCE_SIZE - 1), min_size=1).map(
    lambda chosen: torch.tensor(sorted(chosen))
)
all_batch_sizes = st.lists(st.integers(1, 30), min_size=1, max_size=12)
seeds = st.integers(0, 2**63 - 1)


@settings(deadline=None, max_examples=60)
@given(all_indices, all_batch_sizes, seeds)
@claim("own-draw", "without replacement until the shard is used up.")
def test_without_replacement_until_used_up(
    indices: Tensor, batch_sizes: list[int], seed: int
) -> None:
    drawn = draw(make_shard(indices, seed), *batch_sizes)
    size = len(indices)
    rounds = [drawn[start : start + size] for start in range(0, len(drawn), size)]
    for one in rounds[:-1]:
        assert sorted(one) == indices.tolist()
    assert len(set(rounds[-1])) == len(rounds[-1])
    assert set(rounds[-1]) <= set(indices.tolist())


@settings(deadline=None, max_examples=30)
@given(all_indices, all_batch_sizes, seeds)
def test_the_seed_decides_and_the_batch_size_does_not(
    indices: Tensor, batch_sizes: list[int], seed: int
) -> None:
    drawn = draw(make_shard(indices, seed), *batch_sizes)
    assert draw(make_shard(indices, seed), *batch_sizes) == drawn
    assert draw(make_shard(indices, seed), sum(batch_sizes)) == drawn


def test_every_round_has_its_own_order() -> None:
    shard = make_shard(torch.arange(50))
    first, second = draw(shard, 50), draw(shard, 50)
    assert first != second
    assert first != sorted(first)
    assert draw(make_shard(torch.arange(50), seed=1), 50) != first


def test_nothing_is_copied() -> None:
    source, indices = Numbers(), torch.arange(10, 20)
    shard = Shard(source, indices, torch.Generator().manual_seed(0))
    assert shard.indices.data_ptr() == indices.data_ptr()
    assert len(shard) == 10
    source.pixels += 1000
    assert sorted(draw(shard, 10)) == list(range(1010, 1020))


def test_an_empty_shard_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        make_shard(torch.empty(0, dtype=torch.int64))


@settings(deadline=None, max_examples=60)
@given(all_indices, all_batch_sizes, all_batch_sizes, seeds)
def test_a_shard_goes_on_where_another_was(
    indices: Tensor, before: list[int], after: list[int], seed: int
) -> None:
    whole, fresh = make_shard(indices, seed), make_shard(indices, seed ^ 1)
    draw(whole, *before)
    state = whole.state()
    wanted = draw(whole, *after)
    assert fresh.load_state(state)
    assert draw(fresh, *after) == wanted
    assert fresh.load_state(state), "what was loaded is not written to"
    assert draw(fresh, *after) == wanted


def test_a_state_tells_no_sample_and_takes_as_much_however_many_there_are() -> None:
    for num_samples in (30, 10**6):
        shard = make_shard(torch.zeros(num_samples, dtype=torch.int64))
        draw(shard, 7)
        state = shard.state()
        assert state.keys() == {"left", "generator", "size"}
        assert state["left"] == num_samples - 7
        assert state["size"] == num_samples
        assert state["generator"].dtype == torch.uint8
        assert sum(tensor.nbytes for tensor in state.values()) < 6000


def test_a_shard_of_another_size_is_left_as_it_is() -> None:
    for other_size in (1, 29, 31):
        shard, untouched = make_shard(torch.arange(30)), make_shard(torch.arange(30))
        other = make_shard(torch.arange(other_size), seed=5)
        draw(other, 1)
        assert not shard.load_state(other.state())
        assert draw(shard, 7, 40) == draw(untouched, 7, 40)


@pytest.mark.parametrize(
    "change",
    [
        {"left": torch.tensor(31)},
        {"left": torch.tensor(-1)},
        {"left": torch.tensor(1.0)},
        {"left": torch.tensor([1])},
        {"size": torch.tensor([30])},
        {"generator": torch.zeros(3, dtype=torch.uint8)},
        {"generator": torch.zeros(5056)},
        {"more": torch.zeros(1)},
    ],
)
def test_a_wrong_state_is_refused_and_changes_nothing(change: dict[str, Tensor]) -> None:
    shard, untouched = make_shard(torch.arange(30)), make_shard(torch.arange(30))
    state = make_shard(torch.arange(30), seed=5).state()
    with pytest.raises((KeyError, RuntimeError)):
        shard.load_state({**state, **change})
    with pytest.raises(KeyError):
        shard.load_state({"left": state["left"]})
    assert draw(shard, 7, 40) == draw(untouched, 7, 40)


# What samples hold, and not how they are read.


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
    assert [known.content for known in shard.known()] == source.contents(some)
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
        num_reads = 0

        def images(self, indices: Tensor) -> Tensor:
            self.num_reads += 1
            return super().images(indices) * (1 - 0.1 * self.num_reads)

    with pytest.raises(BadInput, match=r"another picture each time .*define `contents`"):
        Contents.of(shard_of(Counted(pixels_to_float(PIXELS))))
