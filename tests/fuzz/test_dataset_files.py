"""Data files of arbitrary bytes: refused in one line, and with little memory."""

import io
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.fuzz import dataset_files
from tests.fuzz.seeds import mutations, search_a_minute
from tests.marks import examples

FIRST_BATCH = "cifar-10-batches-py/data_batch_2"
VALUES = (
    *("5", "None", "True", "-1", "(1, 4, 4)", "(1, 2**40, 2**40)", "(1, 0, 4)", "[1, 4, 4]"),
    "2**50",
    *("'text'", "{}", "{'batch_size': 3}", "{5: 3}", "{'seed': None}", "lambda: None", "object()"),
    *("lambda *_: 1 / 0", "int", "type('M', (), {'train': lambda self: self})", "float('nan')"),
)
DATASET = """
import torch
from torch import nn
from mdgan.data import InMemoryPartitioner
SHAPE = (1, 4, 4)
Z_DIM = 5
class Partitioner(InMemoryPartitioner):
    def read(self, data_dir):
        return torch.zeros(64, 1, 4, 4), torch.zeros(64, dtype=torch.int64)
class Generator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(5, 16), nn.Tanh(), nn.Unflatten(1, SHAPE))
class Discriminator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(16, 1))
"""
NAMES = ("Partitioner", "Generator", "Discriminator", "SHAPE", "Z_DIM", "DEFAULTS", "HeldOut")


def png(width: int, height: int, rows: bytes) -> bytes:
    """A picture of black and white dots."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">2I5B", width, height, 1, 0, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def pictures() -> list[bytes]:
    """A small picture in each of the formats that are read."""
    results = []
    for kind, mode in (
        *(("PNG", "RGBA"), ("PNG", "I;16"), ("PNG", "P"), ("JPEG", "RGB"), ("BMP", "RGB")),
        *(("GIF", "P"), ("TIFF", "RGB"), ("TIFF", "F"), ("WEBP", "RGB"), ("PPM", "L")),
    ):
        buffer = io.BytesIO()
        Image.new(mode, (9, 7), 9).save(buffer, kind)
        results.append(buffer.getvalue())
    return results


def of_the_file(name: str, file: str) -> bytes:
    return (dataset_files.whole(name) / file).read_bytes()


@pytest.mark.parametrize("name", ["mnist", "cifar10", "celeba"])
@settings(deadline=None, max_examples=examples(20))
@given(st.data())
def test_any_bytes_in_a_file(name: str, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(dataset_files.FILES[name]))
    whole = of_the_file(name, file)
    dataset_files.read(name, file, data.draw(mutations(st.just(whole)) | st.binary(max_size=200)))


@settings(deadline=None, max_examples=examples(50))
@given(mutations(st.sampled_from(pictures())) | st.binary(max_size=100))
def test_any_bytes_as_a_picture(data: bytes) -> None:
    dataset_files.read("folder", dataset_files.FILES["folder"][0], data)


@settings(deadline=None, max_examples=examples(20))
@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), min_size=1, max_size=2))
def test_any_value_of_a_name_in_a_dataset_file(values: dict[str, str]) -> None:
    lines = "".join(f"{name} = {value}\n" for name, value in values.items())
    dataset_files.load_file((DATASET + lines).encode())


@settings(deadline=None, max_examples=examples(15))
@given(st.sets(st.sampled_from(NAMES[:5]), min_size=1), st.binary(max_size=30))
def test_a_dataset_file_that_misses_names(missing: set[str], more: bytes) -> None:
    dataset_files.load_file(f"{DATASET}\ndel {', '.join(sorted(missing))}\n".encode())
    dataset_files.load_file(more)


@pytest.mark.parametrize(
    "text", ["raise SystemExit", "exit()", "import none_such", "1 +", "\0", "x = " + "(" * 3000]
)
def test_a_dataset_file_that_cannot_be_imported(text: str) -> None:
    dataset_files.load_file(text.encode())


def small_file_of_a_large_array() -> bytes:
    """A pickle that has NumPy make an array of 4 GB, and of as many labels."""

    class Array:
        def __reduce__(self) -> tuple[type, tuple[tuple[int, int], str]]:
            return np.ndarray, ((1_400_000, 3072), "u1")

    return pickle.dumps({"labels": [0], "data": Array()})


BOMBS = {
    "a pickle that numbers an object up to a billion": (
        *("cifar10", FIRST_BATCH),
        pickle.PROTO + b"\x02" + pickle.NONE + pickle.LONG_BINPUT + struct.pack("<I", 10**9) + b".",
    ),
    "a pickle of 4 GB of bytes": (
        *("cifar10", FIRST_BATCH),
        pickle.PROTO + b"\x05" + pickle.BYTEARRAY8 + struct.pack("<Q", 1 << 32) + b"few.",
    ),
    "a pickle of a large array": ("cifar10", FIRST_BATCH, small_file_of_a_large_array()),
    "a pickle that encodes and encodes": (
        *("cifar10", FIRST_BATCH),
        b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x03\0\0\0hex\x86R.",
    ),
    "an IDX file of 4 GB": (
        *("mnist", "MNIST/raw/train-images-idx3-ubyte"),
        struct.pack(">4I", 0x0803, 5_500_000, 28, 28),
    ),
    "a PNG of 144 million dots": (
        *("folder", "cats/0001.png"),
        png(12_000, 12_000, (b"\0" + bytes(1500)) * 12_000),
    ),
    "a GIF of 4 billion dots": (
        *("folder", "cats/0001.png"),
        b"GIF89a" + struct.pack("<2H3B", 65_535, 65_535, 0, 0, 0) + b",",
    ),
    "PostScript": ("folder", "cats/0001.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
}


@pytest.mark.parametrize("case", BOMBS)
def test_a_small_file_that_claims_to_be_large_is_refused(case: str) -> None:
    name, file, data = BOMBS[case]
    assert len(data) < 30_000
    dataset_files.read(name, file, data)
    assert dataset_files.refusal(name, file, data)


def test_the_inputs_that_fuzzing_starts_from_are_whole() -> None:
    for name, files in dataset_files.FILES.items():
        for file in files:
            assert dataset_files.refusal(name, file, of_the_file(name, file)) == ""
    for picture in pictures():
        assert dataset_files.refusal("folder", dataset_files.FILES["folder"][0], picture) == ""
    dataset_files.load_file(DATASET.encode())


@pytest.mark.slow
@pytest.mark.parametrize("target", ["mnist", "cifar10", "celeba", "picture"])
def test_a_minute_of_inputs_that_reach_new_lines(tmp_path: Path, target: str) -> None:
    files = enumerate(dataset_files.FILES.get(target, ()))
    whole = [bytes([number]) + of_the_file(target, file) for number, file in files]
    search_a_minute(f"tests.fuzz.dataset_files:read_any_{target}", whole or pictures(), tmp_path)
