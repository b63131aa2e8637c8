"""`--init-from`: a run begins with the models of another run, however its workers are spread."""

import shutil
from pathlib import Path

import pytest

from mdgan.records.run_directory import RunDirectory
from tests.marks import mostly_slow
from tests.processes import QUICK, generator_bytes, run, run_here

DIGITS = Path(__file__).parents[2] / "datasets" / "digits.py"
REFERENCE = f"""
import importlib.util
from safetensors.torch import load_file

_spec = importlib.util.spec_from_file_location("digits_of_the_reference", {str(DIGITS)!r})
_digits = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_digits)
SHAPE, Z_DIM, DEFAULTS = _digits.SHAPE, _digits.Z_DIM, _digits.DEFAULTS
Partitioner, HeldOut = _digits.Partitioner, _digits.HeldOut
_state = load_file("base/checkpoints/0000012/server.safetensors")


def _weights(prefix):
    part = {{n: t for n, t in _state.items() if n.startswith(prefix)}}
    return {{n.removeprefix(prefix): t for n, t in part.items()}}


class Generator(_digits.Generator):
    def __init__(self):
        super().__init__()
        self.load_state_dict(_weights("generator."))


class Discriminator(_digits.Discriminator):
    def __init__(self):
        super().__init__()
        self.load_state_dict(_weights("worker.discriminator.model."))
"""
"""A data set whose models are built with the weights that the run `base` ended with."""

FOUR = ["--world-size", "4", "--seed", "5", "--eval-interval", "0"]
MEMORY = ["--transport", "memory"]
BEGUN = ["--init-from", "base"]
WAYS = {
    "mdgan": ["train", *FOUR, "--swap-interval", "4"],
    "fl-gan": ["train", *FOUR, "--algorithm", "fl-gan", "--round-iterations", "4"],
    "standalone": ["standalone", "--seed", "5", "--eval-interval", "0"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Holds `base`, a run of the baseline, and `reference.py`, which builds its models."""
    result = run_here("standalone", *QUICK, "--eval-interval", "0", "--out", "base", cwd=tmp_path)
    assert result.status == 0, result
    (tmp_path / "reference.py").write_text(REFERENCE)
    return tmp_path


def trained(folder: Path, out: str, *arguments: str) -> bytes:
    start = run_here if "standalone" in arguments or MEMORY[1] in arguments else run
    result = start(*arguments[:1], *QUICK, *arguments[1:], "--out", out, cwd=folder)
    assert result.status == 0, result
    return generator_bytes(folder / out)


@pytest.mark.parametrize("name", mostly_slow(["mdgan", "fl-gan", "standalone"], ["mdgan"]))
def test_it_is_as_if_the_models_had_been_built_so(folder: Path, name: str) -> None:
    way = [*WAYS[name], *(MEMORY if name != "standalone" else [])]
    begun = trained(folder, "begun", *way, *BEGUN)
    files = ["--dataset", "reference", "--datasets-dir", "."]
    assert trained(folder, "reference", *way, *files) == begun
    assert trained(folder, "anew", *way) != begun
    assert RunDirectory.open(folder / "begun").read_config()["init_from"] == "base"


def test_over_processes_and_resumed_it_ends_with_the_same_bits(folder: Path) -> None:
    """A run that goes on does not read the other run again; hosts never do."""
    way = [*WAYS["mdgan"], *BEGUN]
    longer = ["--iterations", "18"]
    whole = trained(folder, "whole", *way, *MEMORY, *longer)
    checkpoints = ["--checkpoint-interval", "4"]
    trained(folder, "spread", *way, "--workers-per-host", "2", *checkpoints)
    shutil.rmtree(folder / "base")
    result = run_here("train", "--resume", "spread", *MEMORY, *longer, cwd=folder)
    assert result.status == 0, result
    assert generator_bytes(folder / "spread") == whole


def test_workers_begin_with_their_own_discriminators(folder: Path) -> None:
    """Bits differ from a start with the generator alone."""
    trained(folder, "first", *WAYS["mdgan"], *MEMORY)
    shutil.copy(folder / "first" / "generator.safetensors", folder / "alone.safetensors")
    with_all = trained(folder, "all", *WAYS["mdgan"], *MEMORY, "--init-from", "first")
    alone = trained(folder, "alone", *WAYS["mdgan"], *MEMORY, "--init-from", "alone.safetensors")
    assert with_all != alone
