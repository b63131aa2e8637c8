"""FL-GAN and FeGAN from the command line: the same bits everywhere, and no byte too many."""

import json
import shutil
from math import prod
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mdgan.data import dataset_file
from mdgan.gan.model_vector import ModelVector
from tests.gallery import Gallery
from tests.integration.federated import rounds_of, spread, train_in_memory
from tests.marks import mostly_slow
from tests.processes import generator_bytes, read_events, run_here

HALF = ["--participation", "0.5"]
FEGAN = ["--algorithm", "fegan", *HALF]
NUM_WORKERS = 4


def model_bytes() -> int:
    """|θ| + |w| of digits in float32, filled up to whole blocks."""
    dataset = dataset_file.load("digits", None)
    return 4 * prod(ModelVector(dataset.models.generator(), dataset.models.discriminator()).shape)


def traffic(folder: Path) -> dict[str, Any]:
    """What the server has sent and received, by kind of message."""
    last = (folder / "trace" / "server.jsonl").read_text().splitlines()[-1]
    counts: dict[str, Any] = json.loads(last)
    return counts


@pytest.fixture(scope="session")
def whole(gallery: Gallery) -> Path:
    """A run of FL-GAN in processes, one for each worker."""
    flags = ["--algorithm", "fl-gan", "--log-interval", "1"]
    return gallery.show("fl-gan", lambda folder: spread(folder, "run", *flags)) / "run"


def test_fegan_without_its_two_ideas_is_fl_gan(tmp_path: Path) -> None:
    plain = ["--sampling", "random", "--weighting", "uniform"]
    fl_gan = train_in_memory(tmp_path, "fl-gan", "--algorithm", "fl-gan", *HALF)
    assert train_in_memory(tmp_path, "plain", *FEGAN, *plain) == fl_gan
    taken = [event["took_part"] for event in rounds_of(tmp_path / "plain")]
    assert taken == [event["took_part"] for event in rounds_of(tmp_path / "fl-gan")]
    assert [len(workers) for workers in taken] == [2, 2, 2]
    others = [
        train_in_memory(tmp_path, "weighted", *FEGAN, *plain[:2], "--partition", "sorted"),
        train_in_memory(tmp_path, "neither", *FEGAN, *plain, "--partition", "sorted"),
        train_in_memory(tmp_path, "balanced", *FEGAN, *plain[2:], "--partition", "sorted"),
        fl_gan,
    ]
    assert len(set(others)) == 4


ALONE = "memory, a host per worker"
LAYOUTS = {
    "memory": ["--transport", "memory"],
    ALONE: ["--transport", "memory", "--workers-per-host", "1"],
    "three in a process": ["--workers-per-host", "3"],
    "all in a process": ["--workers-per-host", "4"],
    "to the server": ["--set", "checkpoint_to_server=true", "--checkpoint-interval", "5"],
}


@pytest.mark.parametrize("name", mostly_slow(LAYOUTS, [ALONE, "three in a process"]))
def test_any_spread_gives_the_same_generator(tmp_path: Path, whole: Path, name: str) -> None:
    start_run = train_in_memory if "memory" in name else spread
    flags = ["--algorithm", "fl-gan", *LAYOUTS[name]]
    assert start_run(tmp_path, "run", *flags) == generator_bytes(whole)


WEAK = ["--training-load", "weak:0.5,memory", "--partition", "sorted"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [FEGAN, ["--algorithm", "fl-gan", *WEAK], ["--algorithm", "fl-gan", "--aggregation", "median"]],
    ids=["fegan", "weak", "median"],
)
def test_any_spread_of_other_settings(tmp_path: Path, settings: list[str]) -> None:
    alone = spread(tmp_path, "alone", *settings)
    for number, (name, flags) in enumerate(LAYOUTS.items()):
        start_run = train_in_memory if "memory" in name else spread
        assert start_run(tmp_path, f"run-{number}", *settings, *flags) == alone, name


def test_both_models_travel_once_each_way(whole: Path, tmp_path: Path) -> None:
    """Table III of Hardy et al.: N(|θ| + |w|) from and to the server in a round."""
    whole = Path(shutil.copytree(whole, tmp_path / "run"))
    counts, num_rounds = traffic(whole), 3
    table = num_rounds * NUM_WORKERS * model_bytes()
    for moved in (counts["sent_bytes"]["ROUND"], counts["received_bytes"]["UPDATE"]):
        assert table <= moved <= table + num_rounds * NUM_WORKERS * 512
    assert counts["sent_bytes"].keys() == {"ROUND", "CHECKPOINT", "STOP"}
    assert run_here("trace", "run", cwd=whole.parent).status == 0
    spans = json.loads((whole / "trace.json").read_text())
    assert "train" in {event.get("name") for event in spans["traceEvents"]}


def test_updates_can_take_a_quarter_of_the_bytes(tmp_path: Path) -> None:
    train_in_memory(
        tmp_path, "run", "--algorithm", "fl-gan", "--wire", "models=int8", *LAYOUTS[ALONE]
    )
    counts = traffic(tmp_path / "run")
    down, up = counts["sent_bytes"]["ROUND"], counts["received_bytes"]["UPDATE"]
    assert 0.25 < up / down < 0.26


def write_pictures(folder: Path, count: int = 24) -> None:
    """Pictures of two kinds that are not sorted into folders."""
    folder.mkdir(parents=True)
    for number in range(count):
        shade = 250 - number if number % 2 else number
        Image.new("L", (8, 8), shade).save(folder / f"{number:02d}.png")


GREY = """
import torch
from torch import nn
from mdgan.data import ImageFilesPartitioner
SHAPE, Z_DIM = (1, 8, 8), 4
class Partitioner(ImageFilesPartitioner):
    shape = SHAPE
    def find(self, data_dir):
        paths = sorted(data_dir.glob("*.png"))
        return paths, torch.zeros(len(paths), dtype=torch.int64)
class Generator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 64), nn.Tanh(), nn.Unflatten(1, SHAPE))
class Discriminator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 1))
"""


def test_samples_without_labels_are_grouped(tmp_path: Path) -> None:
    write_pictures(tmp_path / "pictures")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "grey.py").write_text(GREY)
    flags = [
        *("--algorithm", "fegan", "--clusters", "kmeans:2", "--participation", "0.25"),
        *("--dataset", "grey", "--datasets-dir", "mine", "--data-dir", "pictures"),
        *("--partition", "iid", "--batch-size", "4"),
    ]
    train_in_memory(tmp_path, "run", *flags)
    (held,) = read_events(tmp_path / "run", "holdings")
    assert all(len(worker["classes"]) == 2 for worker in held["workers"].values())
    assert all(sum(worker["classes"]) == 6 for worker in held["workers"].values())
    taken_digests = {tuple(event["took_part"]) for event in rounds_of(tmp_path / "run")}
    assert len(taken_digests) == 3, "no worker is drawn twice before all were drawn once"
