"""Helpers that compare runs bit for bit, whatever the runs train with."""

from pathlib import Path

from tests.processes import QUICK, ended_well, run, run_here

IN_MEMORY = ["--transport", "memory"]
SMALL = ["--width", "4", "--batch-size", "4"]
AVERAGE = "generator-average.safetensors"
FAMILIES = {
    # Swaps after 3, 6 and 9 iterations: within Lookahead windows of five steps.
    "mdgan": ["train", *QUICK, *IN_MEMORY, "--world-size", "3", "--swap-interval", "3"],
    "standalone": ["standalone", *QUICK],
    "fl-gan": [
        *("train", "--algorithm", "fl-gan", *QUICK, *IN_MEMORY, "--world-size", "3"),
        *("--round-iterations", "4"),
    ],
    "fegan": [
        *("train", "--algorithm", "fegan", *QUICK, *IN_MEMORY, "--world-size", "3"),
        *("--round-iterations", "4", "--participation", "0.5"),
    ],
}


def whole_and_resumed(
    family: str, flags: list[str], out: Path, cwd: Path | None = None
) -> tuple[bytes, bytes]:
    """Runs to the end at once, and again with a stop; in the folders `whole` and `cut`."""
    cwd, command = cwd or out, [*FAMILIES[family], *flags]
    whole = run_here(*command, "--out", str(out / "whole"), cwd=cwd)
    cut = run_here(*command, "--iterations", "8", "--out", str(out / "cut"), cwd=cwd)
    assert cut.status == 0, cut
    more = ["--resume", str(out / "cut"), "--iterations", "12"]
    resumed = run_here(command[0], *more, cwd=cwd)
    assert "from iteration 8" in resumed.errors
    return ended_well(whole, out / "whole"), ended_well(resumed, out / "cut")


def one_worker_and_a_single_process(
    flags: list[str], out: Path, cwd: Path | None = None
) -> tuple[bytes, bytes]:
    """The generators of MD-GAN with one worker, and of `standalone`."""
    cwd = cwd or out
    alone = run_here("standalone", *QUICK, *flags, "--out", str(out / "alone"), cwd=cwd)
    one = ["train", *QUICK, *IN_MEMORY, "--world-size", "2", *flags]
    worker = run_here(*one, "--out", str(out / "worker"), cwd=cwd)
    return ended_well(worker, out / "worker"), ended_well(alone, out / "alone")


def spread_and_together(
    flags: list[str], out: Path, cwd: Path | None = None
) -> tuple[bytes, bytes]:
    """The generators of hosts with two workers each, and of one process.

    Discriminators move over links, and by reference.
    """
    cwd = cwd or out
    command = ["train", *QUICK, "--world-size", "5", "--swap-interval", "3", *flags]
    apart = ["--workers-per-host", "2", "--out", str(out / "spread")]
    spread = run(*command, *apart, cwd=cwd)
    in_memory = run_here(*command, *IN_MEMORY, "--out", str(out / "here"), cwd=cwd)
    return ended_well(spread, out / "spread"), ended_well(in_memory, out / "here")


MODELS = """
import torch
from torch import nn
from mdgan.data.dataset_file import load

_digits = load("digits", None)
Partitioner, HeldOut = _digits.partitioner, _digits.held_out
SHAPE, Z_DIM, NUM_CLASSES = _digits.shape, 6, 10


class Generator(nn.Module):
    num_classes = NUM_CLASSES

    def __init__(self):
        super().__init__()
        self.classes = nn.Embedding(NUM_CLASSES, 6)
        self.layers = nn.Sequential(
            nn.Linear(Z_DIM, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2),
            nn.Linear(16, 64), nn.Tanh(), nn.Unflatten(1, SHAPE),
        )

    def forward(self, z, y):
        return self.layers(z + self.classes(y))


class Discriminator(nn.Module):
    num_classes = NUM_CLASSES

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.LeakyReLU(0.2), nn.Dropout(0.3)
        )
        self.logit, self.tell = nn.Linear(16, 1), nn.Linear(16, NUM_CLASSES)

    def forward(self, x, y):
        features = self.layers(x)
        RETURN
"""
RETURN = {
    "auxiliary": "return self.logit(features), self.tell(features)",
    "projection": "return self.logit(features) + (features * self.tell.weight[y]).sum(1, True)",
}
SETS = ["--datasets-dir", ".", "--dataset"]
