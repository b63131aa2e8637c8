"""Losses, optimizers, architectures and scaling rules that users register."""

from pathlib import Path

import pytest

import mdgan
from tests.processes import generator_bytes, run_here
from tests.registered import forget_registered  # noqa: F401 - a fixture for every test here

OWN = """
import torch
from torch.nn.functional import softplus
import mdgan
from mdgan.data.dataset_file import load

_digits = load("digits", None)
Partitioner, HeldOut, SHAPE, Z_DIM = _digits.partitioner, _digits.held_out, _digits.shape, 100
Generator, Discriminator = _digits.models.generator, _digits.models.discriminator
DEFAULTS = dict(_digits.defaults)


@mdgan.register.generator_loss("own-loss")
def own_loss(logits):
    return softplus(-logits).mean()


@mdgan.register.discriminator_loss("own-bce")
class OwnBCE:
    @staticmethod
    def real(logits):
        return softplus(-logits).mean()

    @staticmethod
    def fake(logits):
        return softplus(logits).mean()


@mdgan.register.optimizer("heavy-ball")
class HeavyBall(torch.optim.Optimizer):
    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, {"lr": lr, "momentum": betas[0]})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is not None:
                    state = self.state[weights]
                    velocity = state.setdefault("velocity", torch.zeros_like(weights))
                    pace = state.setdefault("pace", torch.ones(()))  # one number
                    velocity.mul_(group["momentum"]).add_(weights.grad)
                    weights.sub_(velocity * pace, alpha=group["lr"])


@mdgan.register.scaling_rule("root")
def root(ratio):
    return ratio ** 0.5
"""
TRAIN = [
    *("train", "--transport", "memory", "--world-size", "3", "--iterations", "4", "--threads", "1"),
    *("--batch-size", "4", "--sample-interval", "0", "--eval-interval", "0"),
]
FROM_FILE = [*TRAIN, "--datasets-dir", ".", "--dataset", "own"]
OWN_LOSSES = ["--generator-loss", "own-loss", "--discriminator-loss", "own-bce"]
HEAVY = ["--generator-optimizer", "heavy-ball", "--discriminator-optimizer", "heavy-ball"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def _train(folder: Path, out: str, *flags: str) -> bytes:
    result = run_here(*flags, "--out", out, cwd=folder)
    assert result.status == 0, result
    return generator_bytes(folder / out)


def test_own_losses_that_equal_mdgans_give_the_same_generator(folder: Path) -> None:
    assert _train(folder, "own", *FROM_FILE, *OWN_LOSSES) == _train(folder, "mdgans", *TRAIN)


def test_own_optimizer_swaps_and_goes_on(folder: Path) -> None:
    flags = [*FROM_FILE, *HEAVY, "--swap-interval", "1", "--checkpoint-interval", "2"]
    whole = _train(folder, "whole", *flags)
    assert _train(folder, "sgd", *(("sgd" if f == "heavy-ball" else f) for f in flags)) == whole
    _train(folder, "part", *flags, "--iterations", "2")
    resumed = run_here("train", "--resume", "part", "--iterations", "4", cwd=folder)
    assert resumed.status == 0, resumed
    assert generator_bytes(folder / "part") == whole
    together = run_here(*flags, "--vectorize", "--workers-per-host", "2", "--out", "v", cwd=folder)
    assert "HeavyBall steps one model at a time" in together.errors
    assert generator_bytes(folder / "v") == whole


def test_own_architecture(folder: Path) -> None:
    text = """
@mdgan.register.architecture("mine", width=8)
def mine(shape, num_classes, width):
    if shape[1] != 8:
        raise ValueError("8 pixels alone")
    from torch import nn
    size = shape[0] * shape[1] * shape[2]
    def generator():
        return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, size), nn.Tanh(),
                             nn.Unflatten(1, shape))
    def discriminator():
        return nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.ReLU(), nn.Linear(width, 1))
    return generator, discriminator, 5
"""
    (folder / "own.py").write_text(OWN + text)
    _train(folder, "wide", *FROM_FILE, "--architecture", "mine", "--width", "16")
    sampled = run_here("sample", "wide", "-n", "4", "-o", "four.png", cwd=folder)
    assert sampled.status == 0, sampled


@pytest.mark.slow
def test_an_own_scaling_rule_that_equals_mdgans_gives_the_same_generator(folder: Path) -> None:
    flags = [
        "--algorithm",
        "paragan",
        "--set",
        "reference_batch_size=2",
        "--checkpoint-interval",
        "2",
    ]
    flags += ["--generator-optimizer", "warmup=3"]
    theirs = _train(folder, "mdgans", *TRAIN, *flags, "--lr-scaling", "sqrt")
    ours = [*FROM_FILE, *flags, "--lr-scaling", "root"]
    assert _train(folder, "own", *ours, "--iterations", "2") != theirs
    resumed = run_here("train", "--resume", "own", "--iterations", "4", cwd=folder)
    assert resumed.status == 0, resumed
    assert generator_bytes(folder / "own") == theirs
    refused = run_here(*ours, "--lr-scaling", "rot", "--out", "no", cwd=folder)
    assert "'root'?" in refused.errors


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("", ["--generator-loss", "own-los"], "did you mean 'own-loss'?"),
        ("", ["--generator-optimizer", "lookahead:heavy-bal"], "'lookahead:heavy-ball'?"),
        ("@mdgan.register.generator_loss('hinge')\ndef f(x): pass", [], "comes with mdgan"),
        ("mdgan.register.optimizer('mine')(3)", [], "int cannot be called"),
        (
            "@mdgan.register.discriminator_loss('half')\nclass Half: real = len",
            [],
            "no term 'fake'",
        ),
        (
            "@mdgan.register.generator_loss('each')\ndef each(x): return -x",
            ["--generator-loss", "each"],
            "must give a scalar",
        ),
        (
            "class Counts(HeavyBall):\n    def step(self):\n        for w in "
            "self.param_groups[0]['params']: self.state[w]['n'] = 3\n"
            "mdgan.register.optimizer('counts')(Counts)",
            ["--generator-optimizer", "counts"],
            "keeps 'n' as int, which does not move",
        ),
        (
            "@mdgan.register.scaling_rule('falls')\ndef falls(k): return 1.5 - k",
            ["--algorithm", "paragan", "--lr-scaling", "falls"],
            "for 2 times the samples it gives -0.5; it must give a finite number above 0",
        ),
        (
            "@mdgan.register.scaling_rule('fails')\ndef fails(k): return k / 0",
            ["--algorithm", "paragan", "--lr-scaling", "fails"],
            "fails: ZeroDivisionError",
        ),
    ],
)
def test_what_cannot_be_registered(folder: Path, text: str, flags: list[str], message: str) -> None:
    (folder / "own.py").write_text(OWN + text)
    refused = run_here(*FROM_FILE, *flags, "--out", "no", cwd=folder)
    assert refused.status == 2, refused
    assert message in refused.errors
    assert refused.errors.strip().count("\n") == 0, refused
    assert not (folder / "no").exists()


@pytest.mark.slow
def test_registered_in_a_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = folder / "script.py"
    script.write_text(
        OWN.partition("_digits")[0].replace("from mdgan.data.dataset_file import load", "")
        + "def _mean"
        + "(x): return softplus(-x).mean()\n\n"
        "@mdgan.register.generator_loss('mine')\ndef mine(logits): return _mean(logits)\n"
        + OWN[OWN.index("\n\n@mdgan.register.discriminator_loss") :]
        + "\nif __name__ == '__main__':\n    mdgan.train('digits', world_size=3, iterations=4,"
        "batch_size=4, sample_interval=0, eval_interval=0, threads=1, transport='memory',"
        "generator_loss='mine', discriminator_loss='own-bce', out='own')\n"
    )
    import subprocess
    import sys

    subprocess.run([sys.executable, "script.py"], cwd=folder, check=True, timeout=300)
    assert generator_bytes(folder / "own") == _train(folder, "mdgans", *TRAIN)
    monkeypatch.chdir(folder)
    assert mdgan.Run.open("own").resume(iterations=6, quiet=True).iteration == 6
