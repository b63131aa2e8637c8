"""A state on disk is whole, or known to be damaged; it may come from a GPU."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load
from torch import Tensor

from mdgan.storage.state_file import (
    Damaged,
    StoredFile,
    bytes_on_host,
    check_file,
    read_state,
    write_state,
)
from tests.fake_cuda import fake_cuda
from tests.marks import examples
from tests.unit.gan.small import same_bits
from tests.unit.storage.small import all_files, make_state

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64),
    *(torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]


def equal_states(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        same_bits(first[name], second[name]) for name in first
    )


tensors = st.builds(
    lambda dtype, shape, seed: (
        torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3
    ).to(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 4), max_size=3),
    st.integers(0, 1000),
)


@settings(deadline=None, max_examples=examples(24))
@given(st.dictionaries(st.text(max_size=8).filter(lambda name: name.isprintable()), tensors))
def test_the_library_reads_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, state: dict[str, Tensor]
) -> None:
    state.pop("__metadata__", None)
    folder = tmp_path_factory.mktemp("states")
    stored = write_state(folder, "a.safetensors", state)
    data = (folder / "a.safetensors").read_bytes()
    assert equal_states(load(data), state)
    assert equal_states(read_state(folder, stored), state)
    assert stored.num_bytes == len(data)
    assert all_files(folder) == {"a.safetensors"}


def cuts(num_bytes: int, header: int) -> list[int]:
    """Places to cut a file: around every boundary of the format, and some between."""
    edges = (0, 8, 8 + header, num_bytes)
    around = {edge + step for edge in edges for step in (-1, 0, 1)}
    between = {num_bytes // 3, num_bytes // 2, 4, 8 + header // 2}
    return sorted(place for place in around | between if 0 <= place < num_bytes)


def test_a_torn_file_is_damaged_wherever_it_is_torn(tmp_path: Path) -> None:
    stored = write_state(tmp_path, "a", make_state())
    whole = (tmp_path / "a").read_bytes()
    places = cuts(len(whole), int.from_bytes(whole[:8], "little"))
    assert len(places) > 10
    for place in places:
        (tmp_path / "a").write_bytes(whole[:place])
        with pytest.raises(Damaged, match=f"a: {place} bytes instead of {len(whole)}"):
            read_state(tmp_path, stored)
        # As after a loss of power: the right size, zeros instead of content.
        (tmp_path / "a").write_bytes(whole[:place].ljust(len(whole), b"\0"))
        if whole[place:].strip(b"\0"):
            with pytest.raises(Damaged, match="a: its checksum is wrong"):
                read_state(tmp_path, stored)


@settings(deadline=None, max_examples=examples(16))
@given(st.integers(0, 10**9))
def test_a_flipped_bit_is_found(tmp_path_factory: pytest.TempPathFactory, bit: int) -> None:
    folder = tmp_path_factory.mktemp("states")
    stored = write_state(folder, "a", make_state())
    data = bytearray((folder / "a").read_bytes())
    place, bit_of_byte = divmod(bit % (8 * len(data)), 8)
    data[place] ^= 1 << bit_of_byte
    (folder / "a").write_bytes(data)
    with pytest.raises(Damaged, match="a: its checksum is wrong"):
        check_file(folder, stored)


def test_an_unreadable_file_is_damaged(tmp_path: Path) -> None:
    stored = write_state(tmp_path, "a", make_state())
    (tmp_path / "a").unlink()
    with pytest.raises(Damaged, match="a: is not there"):
        read_state(tmp_path, stored)
    with pytest.raises(Damaged, match="a: is not there"):
        read_state(tmp_path / "nowhere", stored)
    (tmp_path / "a").mkdir()
    with pytest.raises(Damaged, match="a: cannot be read \\(is no regular file\\)"):
        read_state(tmp_path, stored)


MEMORY = """
import sys
from pathlib import Path
import torch
from mdgan.storage.state_file import write_state
def resident():
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0])
state = {str(n): torch.ones(2_500_000) for n in range(20)}
write_state(Path(sys.argv[1]), "small", {"a": torch.ones(3)})
before = resident()
write_state(Path(sys.argv[1]), "a", state)
print(resident() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_writing_takes_no_second_copy_in_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MEMORY, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert int(ended.stdout) < 40_000, "of 200,000 KB that were written"


GOOD: dict[str, Any] = {"name": "server.safetensors", "sha256": "0f" * 32, "num_bytes": 12}


@pytest.mark.parametrize(
    "record",
    [
        *(None, [], "server.safetensors", {}, {**GOOD, "more": 1}),
        *({**GOOD, "name": name} for name in ["", ".", "..", "../a", "/a", "a/b", "a\\b", "a\0"]),
        *({**GOOD, "name": name} for name in [".hidden", "a\n", "ä", "a" * 200, 7, None]),
        *({**GOOD, "sha256": value} for value in ["", "0F" * 32, "0f" * 31, "0f" * 32 + "\n", 7]),
        *({**GOOD, "num_bytes": value} for value in [-1, 1.0, True, "12", None]),
    ],
)
def test_a_record_that_is_none_is_damaged(record: object) -> None:
    with pytest.raises(Damaged) as refused:
        StoredFile.from_record(record)
    assert len(str(refused.value).splitlines()) == 1


TENSORS = [
    torch.arange(12.0).view(3, 4),
    torch.arange(6, dtype=torch.int64),
    torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).to(
        memory_format=torch.channels_last
    ),
    torch.zeros(0),
    torch.tensor([True, False, True]),
    torch.randn(5, 7, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16).T,
]


def _raw(tensor: Tensor) -> list[int]:
    results: list[int] = tensor.contiguous().reshape(-1).view(torch.uint8).tolist()
    return results


class _LateStream:
    """A stream whose copies take place as late as they may."""

    queue: list[Callable[[], object]]

    def __init__(self, *_: object) -> None:
        self.queue, self.waited_for = [], list[object]()
        _LateStream.last = self

    last: "_LateStream"

    def wait_stream(self, other: object) -> None:
        self.waited_for.append(other)


class _LateEvent:
    """Everything before it has been done once it is waited for."""

    def record(self, stream: _LateStream) -> None:
        self._stream, self._place = stream, len(stream.queue)

    def synchronize(self) -> None:
        for copy in self._stream.queue[: self._place]:
            copy()
        self._stream.queue[: self._place] = [lambda: None] * self._place


@contextmanager
def _late_copies() -> Iterator[None]:
    at_once = Tensor.copy_

    def copy_(self: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if not non_blocking:
            return at_once(self, source)
        _LateStream.last.queue.append(lambda: at_once(self, source))
        return self

    with (
        patch("torch.cuda.Stream", _LateStream),
        patch("torch.cuda.Event", _LateEvent),
        patch("torch.cuda.default_stream", return_value="training"),
        patch.object(Tensor, "copy_", copy_),
    ):
        yield


def test_tensors_on_the_cpu_are_read_as_they_are() -> None:
    assert [each.tolist() for each in bytes_on_host(TENSORS)] == [_raw(t) for t in TENSORS]


@pytest.mark.parametrize("kept_here", [set(), {0}, {1, 4}, {5}], ids=str)
def test_each_tensor_is_whole_when_it_is_handed_out(kept_here: set[int]) -> None:
    expected = [_raw(tensor) for tensor in TENSORS]
    with fake_cuda() as device:
        state = [t if n in kept_here else t.to(device) for n, t in enumerate(TENSORS)]
        with _late_copies():
            results = [each.tolist() for each in bytes_on_host(state)]
    assert results == expected
    assert _LateStream.last.waited_for == ["training"]


def test_the_next_tensor_is_copied_while_one_is_written() -> None:
    with fake_cuda() as device:
        state = [torch.full((4,), float(n)).to(device) for n in range(4)]
        with _late_copies():
            copies = bytes_on_host(state)
            first = next(copies)
            assert len(_LateStream.last.queue) == 2, "that after it has begun"
            assert first.view(torch.float32).tolist() == [0.0] * 4
            second = next(copies)
            assert len(_LateStream.last.queue) == 3
            assert second.data_ptr() != first.data_ptr()
