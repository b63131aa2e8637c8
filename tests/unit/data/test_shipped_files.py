"""MNIST, CIFAR-10 and CelebA, read exactly or refused; and the shipped models."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from mdgan.data.dataset_file import load
from mdgan.errors import BadInput
from mdgan.gan.build import build_model, num_parameters
from mdgan.models.check import check_models
from tests.claims.registry import claim
from tests.unit.dataset_formats import (
    CIFAR10_CLASSES,
    Written,
    python2_pickle,
    write_celeba,
    write_cifar10,
    write_mnist,
)

NUM_SAMPLES = 23
WRITERS: dict[str, Callable[[Path, int], Written]] = {
    "mnist": write_mnist,
    "cifar10": write_cifar10,
    "celeba": write_celeba,
}
FILES = {
    "mnist": [
        f"MNIST/raw/{prefix}-{kind}-ubyte"
        for prefix in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    ],
    "cifar10": [
        f"cifar-10-batches-py/{name}"
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")
    ],
    "celeba": [
        f"celeba/{name}.txt"
        for name in (
            "list_attr_celeba",
            "list_bbox_celeba",
            "list_landmarks_align_celeba",
            "list_eval_partition",
            "identity_CelebA",
        )
    ],
}
ALL_FILES = [(name, file) for name, files in FILES.items() for file in files]
FILES_READ = [(name, file) for name, file in ALL_FILES if "t10k" not in file and "test" not in file]


def refusal(name: str, data_dir: Path, held_out: bool = False) -> str:
    """What the user reads; it must be one line."""
    dataset = load(name, None)
    with pytest.raises(BadInput) as caught:
        (dataset.open_held_out if held_out else dataset.open)(data_dir)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def as_floats(pixels: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]") -> torch.Tensor:
    return torch.from_numpy(pixels).to(torch.float32) / 127.5 - 1


@pytest.mark.parametrize(
    ("name", "held_out"), [("mnist", 0), ("mnist", 5), ("cifar10", 0), ("cifar10", 6)]
)
def test_pixels_and_labels_are_read_back_exactly(name: str, held_out: int, tmp_path: Path) -> None:
    written = WRITERS[name](tmp_path, 30)
    dataset = load(name, None)
    source = dataset.open(tmp_path)
    if held_out:
        written = {"mnist": write_mnist, "cifar10": write_cifar10}[name](
            tmp_path / "expected", held_out, seed=1
        )
        source = dataset.open_held_out(tmp_path)
    assert source.class_names == (CIFAR10_CLASSES if name == "cifar10" else ())
    images = source.images(torch.arange(len(source)))
    assert images.shape == (held_out or 30, *dataset.shape)
    assert images.dtype == torch.float32
    assert images.min() >= -1
    assert images.max() <= 1
    assert torch.equal(images, as_floats(written.pixels))
    assert source.labels.dtype == torch.int64
    assert source.labels.tolist() == written.labels.tolist()


@pytest.mark.parametrize("held_out", [False, True])
def test_celeba_faces_are_shrunk_and_centre_cropped(held_out: bool, tmp_path: Path) -> None:
    everything = write_celeba(tmp_path, 7)
    is_test = np.arange(7) % 3 == 2
    chosen = is_test if held_out else ~is_test
    written = Written(everything.pixels[chosen], everything.labels[chosen])
    dataset = load("celeba", None)
    source = (dataset.open_held_out if held_out else dataset.open)(tmp_path)
    assert len(source) == chosen.sum()
    assert source.class_names == ("not male", "male")
    faces = [Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in written.pixels]
    shrunk = [
        np.asarray(face.resize((64, 64), Image.Resampling.BILINEAR, box=(0, 20, 178, 198)))
        for face in faces
    ]
    images = source.images(torch.arange(len(source)))
    assert images.dtype == torch.float32
    assert torch.equal(images, as_floats(np.stack(shrunk).transpose(0, 3, 1, 2)))
    assert source.labels.tolist() == written.labels.tolist()
    assert source.labels.dtype == torch.int64


def test_cifar10_pickled_by_python_3_is_read_too(tmp_path: Path) -> None:
    written = write_cifar10(tmp_path, NUM_SAMPLES)
    for path in (tmp_path / "cifar-10-batches-py").iterdir():
        content = pickle.loads(path.read_bytes(), encoding="latin1")
        path.write_bytes(pickle.dumps(content))
    source = load("cifar10", None).open(tmp_path)
    assert torch.equal(source.images(torch.arange(NUM_SAMPLES)), as_floats(written.pixels))


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_there(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "absent"
    message = refusal(name, folder)
    assert str(folder) in message
    assert "download=True" in message
    assert all(Path(file).name in message for file in FILES[name])


@pytest.mark.parametrize(("name", "file"), ALL_FILES)
def test_one_file_missing(name: str, file: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path, 7)
    (tmp_path / file).unlink()
    message = refusal(name, tmp_path)
    assert f"{(tmp_path / file).parent} lacks {Path(file).name};" in message
    assert "download=True" in message


@pytest.mark.parametrize("content", [b"", None, b"<html>\n<body>quota exceeded</body>\n</html>\n"])
@pytest.mark.parametrize(("name", "file"), FILES_READ)
def test_a_damaged_file(name: str, file: str, content: bytes | None, tmp_path: Path) -> None:
    WRITERS[name](tmp_path, 7)
    whole = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(whole[: len(whole) // 2] if content is None else content)
    message = refusal(name, tmp_path)
    assert Path(file).name in message
    assert str((tmp_path / file).parent) in message


def test_celeba_splits_that_cannot_be_used(tmp_path: Path) -> None:
    write_celeba(tmp_path, 2)
    assert "no held-out sample in" in refusal("celeba", tmp_path, held_out=True)
    write_celeba(tmp_path, 4)
    splits = tmp_path / "celeba" / "list_eval_partition.txt"
    splits.write_text(splits.read_text().replace("jpg 2", "jpg 3"))
    assert "list_eval_partition.txt: a split must be 0, 1 or 2" in refusal("celeba", tmp_path)


def test_mnist_files_that_do_not_belong_together(tmp_path: Path) -> None:
    write_mnist(tmp_path, 8)
    labels = (tmp_path / FILES["mnist"][1]).read_bytes()
    write_mnist(tmp_path, 9)
    (tmp_path / FILES["mnist"][1]).write_bytes(labels)
    assert "9 images but 8 labels" in refusal("mnist", tmp_path)


@pytest.mark.parametrize(
    ("labels", "shape"),
    [([0, 1, 2], (2, 3072)), ([0, 10], (2, 3072)), ([0, 1], (2, 3071)), ([0, 1], (2, 3, 1024))],
)
def test_cifar10_batch_of_wrong_content(
    labels: list[int], shape: tuple[int, ...], tmp_path: Path
) -> None:
    write_cifar10(tmp_path, 7)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    path.write_bytes(python2_pickle({"labels": labels, "data": np.zeros(shape, np.uint8)}))
    assert str(path) in refusal("cifar10", tmp_path)


@claim("no-pickle", "No pickle that comes in a file or over a socket can run code")
def test_cifar10_pickle_cannot_run_code(tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    class Payload:
        def __reduce__(self) -> tuple[Callable[[str, str], object], tuple[str, str]]:
            return open, (str(marker), "w")

    write_cifar10(tmp_path, 7)
    path = tmp_path / "cifar-10-batches-py" / "batches.meta"
    path.write_bytes(pickle.dumps({"label_names": Payload()}))
    message = refusal("cifar10", tmp_path)
    assert str(path) in message
    assert "open" in message
    assert not marker.exists()


def test_celeba_workers_need_no_held_out_picture_and_the_server_no_other(tmp_path: Path) -> None:
    write_celeba(tmp_path, 6)
    pictures = tmp_path / "celeba" / "img_align_celeba"
    (pictures / "000003.jpg").unlink()
    assert len(load("celeba", None).open(tmp_path)) == 4
    assert "lacks 1 of 2 pictures" in refusal("celeba", tmp_path, held_out=True)
    (pictures / "000006.jpg").rename(pictures / "000003.jpg")
    assert "first 000006.jpg" in refusal("celeba", tmp_path, held_out=True)


# The shipped models against appendix A of Darmanger and Gombas' report.


SHIPPED = {
    "digits": (1, 8, 8),
    "mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
    "celeba": (3, 64, 64),
    "folder": (3, 64, 64),
}


CELEBA = 3_576_704, 2_765_568


@pytest.mark.parametrize(
    ("name", "num"),
    [
        ("mnist", (1_486_352, 1_460_225)),
        ("cifar10", (3_448_576, 663_296)),
        ("celeba", CELEBA),
        ("folder", CELEBA),
    ],
)
def test_number_of_parameters(name: str, num: tuple[int, int]) -> None:
    models = load(name, None).models
    assert (num_parameters(models.generator()), num_parameters(models.discriminator())) == num


@pytest.mark.parametrize("name", SHIPPED)
def test_discriminator_gives_raw_logits_and_a_gradient_for_every_pixel(name: str) -> None:
    dataset = load(name, None)
    assert dataset.shape == SHIPPED[name]
    assert dataset.models.z_dim == 100
    check_models(dataset.models)
    images = torch.rand(4, *dataset.shape, generator=torch.Generator().manual_seed(1)) * 2 - 1
    images.requires_grad_()
    discriminator = build_model(dataset.models.discriminator, 0)
    logits = discriminator(images)
    assert logits.shape == (4, 1)
    assert not any(isinstance(layer, nn.Sigmoid) for layer in discriminator.modules())
    (feedback,) = torch.autograd.grad(logits.sum(), images)
    assert feedback.shape == images.shape
    assert feedback.isfinite().all()


def test_leaky_relu_slope_is_0_2_everywhere() -> None:
    slopes = {
        layer.negative_slope
        for name in SHIPPED
        for kind in (load(name, None).models.generator, load(name, None).models.discriminator)
        for layer in kind().modules()
        if isinstance(layer, nn.LeakyReLU)
    }
    assert slopes == {0.2}
