"""Writes small data sets of noise in the real files' formats, for tests to read back."""

import pickle
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

Bytes = npt.NDArray[np.uint8]

_CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
_CELEBA_ATTRIBUTES = (
    "5_o_Clock_Shadow Arched_Eyebrows Attractive Bags_Under_Eyes Bald Bangs Big_Lips Big_Nose "
    "Black_Hair Blond_Hair Blurry Brown_Hair Bushy_Eyebrows Chubby Double_Chin Eyeglasses Goatee "
    "Gray_Hair Heavy_Makeup High_Cheekbones Male Mouth_Slightly_Open Mustache Narrow_Eyes No_Beard "
    "Oval_Face Pale_Skin Pointy_Nose Receding_Hairline Rosy_Cheeks Sideburns Smiling Straight_Hair "
    "Wavy_Hair Wearing_Earrings Wearing_Hat Wearing_Lipstick Wearing_Necklace Wearing_Necktie Young"
)
CIFAR10_CLASSES = tuple(_CIFAR10_CLASSES.split())
CELEBA_ATTRIBUTES = tuple(_CELEBA_ATTRIBUTES.split())


class Written(NamedTuple):
    """What a training set holds.

    Attributes:
        pixels: uint8 [n, C, H, W] in [0, 255].
        labels: int64 [n].
    """

    pixels: Bytes
    labels: npt.NDArray[np.int64]


def write_mnist(folder: Path, num_samples: int, seed: int = 0) -> Written:
    """Writes the four IDX files below `folder`/MNIST/raw; the test set holds other samples."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    train = _noise(num_samples, (1, 28, 28), 10, seed)
    test = _noise(max(1, num_samples // 6), (1, 28, 28), 10, seed + 1)
    for prefix, written in (("train", train), ("t10k", test)):
        _write_idx(raw / f"{prefix}-images-idx3-ubyte", written.pixels[:, 0])
        _write_idx(raw / f"{prefix}-labels-idx1-ubyte", written.labels.astype(np.uint8))
    return train


def write_cifar10(folder: Path, num_samples: int, seed: int = 0) -> Written:
    """Writes five batches, a test batch and the class names below `folder`/cifar-10-batches-py."""
    batches = folder / "cifar-10-batches-py"
    batches.mkdir(parents=True, exist_ok=True)
    train = _noise(num_samples, (3, 32, 32), 10, seed)
    test = _noise(max(1, num_samples // 5), (3, 32, 32), 10, seed + 1)
    for number, part in enumerate(np.array_split(np.arange(num_samples), 5), start=1):
        chosen = Written(train.pixels[part], train.labels[part])
        _write_batch(batches / f"data_batch_{number}", f"training batch {number} of 5", chosen)
    _write_batch(batches / "test_batch", "testing batch 1 of 1", test)
    meta = {"num_cases_per_batch": 10000, "label_names": list(CIFAR10_CLASSES), "num_vis": 3072}
    (batches / "batches.meta").write_bytes(python2_pickle(meta))
    return train


def write_celeba(folder: Path, num_samples: int, seed: int = 0) -> Written:
    """Writes JPEG pictures and the five lists below `folder`/celeba.

    Returns:
        The pictures as they decode, [n, 3, 218, 178]; the attribute `Male`, 0 or 1.
    """
    random = np.random.default_rng(seed)
    base = folder / "celeba"
    pictures = base / "img_align_celeba"
    pictures.mkdir(parents=True, exist_ok=True)
    names = [f"{number:06d}.jpg" for number in range(1, num_samples + 1)]
    decoded = np.empty((num_samples, 3, 218, 178), np.uint8)
    for index, name in enumerate(names):
        coarse = Image.fromarray(random.integers(0, 256, (11, 9, 3), np.uint8))
        coarse.resize((178, 218)).save(pictures / name, quality=95)
        with Image.open(pictures / name) as picture:
            decoded[index] = np.asarray(picture).transpose(2, 0, 1)
    attributes = random.choice([-1, 1], (num_samples, len(CELEBA_ATTRIBUTES)))
    landmarks = random.integers(50, 160, (num_samples, 10))
    boxes = random.integers(50, 400, (num_samples, 4))
    # The official header line ends in a blank, and numbers stand in columns.
    _write_list(base / "list_attr_celeba.txt", names, attributes, f"{_CELEBA_ATTRIBUTES} ")
    _write_list(base / "list_bbox_celeba.txt", names, boxes, "image_id x_1 y_1 width height")
    points = ("lefteye", "righteye", "nose", "leftmouth", "rightmouth")
    header = " ".join(f"{point}_{axis}" for point in points for axis in "xy")
    _write_list(base / "list_landmarks_align_celeba.txt", names, landmarks, header)
    people, split = random.integers(1, 10178, num_samples), np.arange(num_samples) % 3
    _write_pairs(base / "identity_CelebA.txt", names, people)
    _write_pairs(base / "list_eval_partition.txt", names, split)
    male = attributes[:, CELEBA_ATTRIBUTES.index("Male")] == 1
    return Written(decoded, male.astype(np.int64))


def write_image_folder(
    folder: Path, classes: Sequence[str], per_class: int, seed: int = 0, size: int = 64
) -> Written:
    """Writes square RGB pictures as PNG, `per_class` of them into a subfolder for each class.

    Returns:
        The pictures in the order of the sorted classes, then of their names.
    """
    noise = _noise(len(classes) * per_class, (3, size, size), 1, seed).pixels
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), per_class)
    for index, (pixels, label) in enumerate(zip(noise, labels, strict=True)):
        path = folder / sorted(classes)[label] / f"{index:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.transpose(1, 2, 0)).save(path)
    return Written(noise, labels)


def black_png(side: int) -> bytes:
    """A black square of one bit a pixel, in a file a thousand times smaller than its pixels."""
    squeeze = zlib.compressobj(9)
    line = bytes(1 + -(-side // 8))
    lines = b"".join([*(squeeze.compress(line) for _ in range(side)), squeeze.flush()])
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    chunks = {b"IHDR": header, b"IDAT": lines, b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )


def python2_pickle(value: Any) -> bytes:
    """Pickles as Python 2 did, which wrote CIFAR-10's files: byte strings and NumPy's old names."""
    return pickle.PROTO + b"\x02" + _pickled(value) + pickle.STOP


def _pickled(value: Any) -> bytes:
    match value:
        case None:
            return pickle.NONE
        case int():
            return pickle.BININT + struct.pack("<i", value)
        case str() | bytes():
            text = value.encode("latin1") if isinstance(value, str) else value
            return pickle.BINSTRING + struct.pack("<i", len(text)) + text
        case tuple():
            return pickle.MARK + b"".join(map(_pickled, value)) + pickle.TUPLE
        case list():
            return pickle.EMPTY_LIST + pickle.MARK + b"".join(map(_pickled, value)) + pickle.APPENDS
        case dict():
            items = b"".join(_pickled(part) for item in value.items() for part in item)
            return pickle.EMPTY_DICT + pickle.MARK + items + pickle.SETITEMS
        case np.ndarray():
            assert value.dtype == np.uint8
            empty = pickle.GLOBAL + b"numpy\nndarray\n" + _pickled((0,)) + _pickled("b")
            dtype = pickle.GLOBAL + b"numpy\ndtype\n" + _pickled(("u1", 0, 1)) + pickle.REDUCE
            dtype += _pickled((3, "|", None, None, None, -1, -1, 0)) + pickle.BUILD
            state = _pickled(1) + _pickled(value.shape) + dtype + pickle.NEWFALSE
            state += _pickled(value.tobytes())
            return (
                pickle.GLOBAL
                + b"numpy.core.multiarray\n_reconstruct\n"
                + _as_tuple(empty)
                + pickle.REDUCE
                + _as_tuple(state)
                + pickle.BUILD
            )
    raise TypeError(f"cannot pickle {type(value).__name__}")


def _as_tuple(parts: bytes) -> bytes:
    return pickle.MARK + parts + pickle.TUPLE


def _noise(num_samples: int, shape: tuple[int, int, int], num_classes: int, seed: int) -> Written:
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(num_samples, dtype=np.int64) % num_classes)
    return Written(random.integers(0, 256, (num_samples, *shape), np.uint8), labels)


def _write_idx(path: Path, values: Bytes) -> None:
    header = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape)
    path.write_bytes(header + values.tobytes())


def _write_batch(path: Path, title: str, samples: Written) -> None:
    content = {
        "batch_label": title,
        "labels": samples.labels.tolist(),
        "data": samples.pixels.reshape(len(samples.pixels), -1),
        "filenames": [f"noise_s_{index:06d}.png" for index in range(len(samples.labels))],
    }
    path.write_bytes(python2_pickle(content))


def _write_list(path: Path, names: Sequence[str], rows: npt.NDArray[np.int64], header: str) -> None:
    lines = [
        name + " " + " ".join(f"{number:2d}" for number in row)
        for name, row in zip(names, rows.tolist(), strict=True)
    ]
    path.write_text("\n".join([str(len(names)), header, *lines]) + "\n")


def _write_pairs(path: Path, names: Sequence[str], numbers: npt.NDArray[np.int64]) -> None:
    lines = [f"{name} {number}\n" for name, number in zip(names, numbers.tolist(), strict=True)]
    path.write_text("".join(lines))
