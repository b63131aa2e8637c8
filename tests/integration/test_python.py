"""Runs of Python programs give the bits of the command line, with objects of the program."""

import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import types
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import mdgan
from mdgan.data import dataset_file
from mdgan.data.dataset_file import DatasetFile
from mdgan.interface import child
from mdgan.interface.messages import TrainingRequest
from tests.processes import (
    QUICK,
    QUICK_SETTINGS,
    REPOSITORY,
    finish,
    generator_bytes,
    read_metrics,
    read_status,
    run_here,
    start_anew,
    wait_until,
)
from tests.processes import run as run_command

pytestmark = pytest.mark.usefixtures("quick_start")

SETTINGS: dict[str, Any] = {**QUICK_SETTINGS, "world_size": 3}


@pytest.fixture(scope="module")
def digits() -> DatasetFile:
    return dataset_file.load("digits", None)


class Digits(Dataset[dict[str, Any]]):
    """Those of the dataset file, as a data set of Hugging Face in torch's format gives them."""

    def __init__(self, digits: DatasetFile, *, held_out: bool = False) -> None:
        self.source = (digits.open_held_out if held_out else digits.open)(Path())

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> dict[str, Any]:
        image = self.source.images(torch.tensor([index]))[0]
        return {"image": image, "label": self.source.labels[index]}


def generator() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))


def discriminator() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))


def nameless_models() -> dict[str, Any]:
    """The same as of a script or a notebook: no other process finds them by their names."""
    program = {"nn": nn, "__name__": "__main__"}
    build = [types.FunctionType(each.__code__, program) for each in (generator, discriminator)]
    return {"generator": build[0], "discriminator": build[1], "z_dim": 16}


MODELS: dict[str, Any] = {"generator": generator, "discriminator": discriminator, "z_dim": 16}

FILE = """
from torch import nn

from mdgan.data.dataset_file import load


def Generator():
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))


def Discriminator():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))


_digits = load("digits", None)
Partitioner, HeldOut = _digits.partitioner, _digits.held_out
SHAPE, Z_DIM = (1, 8, 8), 16
"""
"""What a user of the command line writes for the same data and models."""


def test_own_objects_train_with_the_bits_of_the_command_line(
    cwd: Path, digits: DatasetFile, capsys: pytest.CaptureFixture[str]
) -> None:
    (cwd / "own.py").write_text(FILE)
    flags = ["--datasets-dir", ".", "--dataset", "own", "--world-size", "3", *QUICK]
    told = run_command("train", *flags, "--out", "typed", cwd=cwd)
    assert told.status == 0, told

    data = mdgan.Data(Digits(digits), Digits(digits, held_out=True))
    half = {**SETTINGS, "iterations": np.int64(6)}
    run = mdgan.train(data, out=cwd / "called", **nameless_models(), **half)
    assert "done: 6 of 6 iterations" in capsys.readouterr().out
    assert run.scores["iteration"].tolist() == []
    assert run.resume(iterations=12, quiet=True) == run
    assert capsys.readouterr().out == ""
    assert generator_bytes(run.path) == generator_bytes(cwd / "typed")
    assert np.isfinite(run.losses["generator"]).all()
    assert (run.state, run.iteration, run.losses["iteration"][-1]) == ("finished", 12, 12)
    check_what_is_read(run, cwd)
    check_without_the_program(run, data, cwd)


def check_what_is_read(run: mdgan.Run, cwd: Path) -> None:
    samples = run.sample(5, seed=3)
    result = run_here("sample", "called", "-n", "5", "--seed", "3", "-o", "samples.npz", cwd=cwd)
    assert result.status == 0, result
    with np.load(cwd / "samples.npz") as written:
        assert (written["images"] == samples.numpy()).all()
    with torch.no_grad():
        assert run.generator(torch.zeros(2, 16)).shape == (2, 1, 8, 8)
    assert "finished at iteration 12" in run._repr_html_()
    with pytest.raises(mdgan.BadInput, match="batch_size: scores do not depend on it"):
        run.evaluate(batch_size=3)
    with pytest.raises(mdgan.BadInput, match="n=0"):
        run.sample(0)


def check_without_the_program(run: mdgan.Run, data: mdgan.Data, cwd: Path) -> None:
    """The run holds its models but no sample, and can be moved."""
    saved = data.sha256
    assert data.save(cwd / "samples") == saved
    assert not [file for file in run.path.rglob("*") if file.suffix == ".npy"]
    config = (run.path / "config.json").read_text()
    (run.path / "config.json").write_text(config.replace(data.folder, str(cwd / "gone")))
    moved = Path(shutil.move(run.path, cwd / "moved"))
    alone = run_here("train", "--resume", "moved", "--iterations", "14", cwd=cwd)
    assert alone.status == 2
    assert "mdgan.Run.open(RUN).resume(dataset=…)" in alone.errors
    other = mdgan.Data(torch.zeros(30, 1, 8, 8) - 1)
    with pytest.raises(mdgan.BadInput, match="was trained on other samples"):
        mdgan.Run.open(moved).resume(dataset=other, iterations=14)
    again = mdgan.Run.open(moved).resume(dataset=data, iterations=14, quiet=True)
    assert again.iteration == 14
    flags = ("--iterations", "16", "--transport", "memory", "--data-dir", "samples")
    typed = run_here("train", "--resume", "moved", *flags, cwd=cwd)
    assert typed.status == 0, typed
    assert again.iteration == 16


def test_a_named_data_set_from_a_thread_has_the_bits_of_the_command_line(cwd: Path) -> None:
    runs: list[mdgan.Run] = []
    flags = ["--world-size", "3", *QUICK, "--transport", "memory"]
    result = run_here("train", *flags, "--out", "typed", cwd=cwd)
    assert result.status == 0, result
    thread = threading.Thread(target=lambda: runs.append(mdgan.train(quiet=True, **SETTINGS)))
    thread.start()
    thread.join()
    assert re.fullmatch(r"runs/digits-\d{8}-\d{6}", str(runs[0].path))
    assert generator_bytes(runs[0].path) == generator_bytes(cwd / "typed")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"iteratons": 3}, "iteratons: is no setting; did you mean 'iterations'"),
        ({"callback": print}, "callback: is no setting; did you mean 'callbacks'"),
        ({"iterations": 0}, "iterations=0: must be at least 1"),
        ({"iterations": object()}, "iterations: object is no value of a setting"),
        ({"dataset": "digts"}, "dataset=digts: not found among .*; did you mean 'digits'"),
        ({"generator": generator}, "discriminator: models go in pairs"),
        ({"dataset": [1], **MODELS}, r"train\[0\]: cannot be read: its shape is \[\]"),
        ({"batch_size": 10**6}, "batch_size=1000000: larger than .* at most its 1,438 samples"),
        ({**MODELS, "z_dim": 5}, "Generator fails on a batch"),
    ],
)
def test_what_cannot_work_is_one_line_and_leaves_nothing(
    cwd: Path, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(mdgan.BadInput, match=said) as refused:
        mdgan.train(**{"quiet": True, **values})
    assert "\n" not in str(refused.value)
    assert not list(cwd.glob("runs/*"))


def broken() -> nn.Module:
    layers: list[nn.Module] = []
    return layers[7]


BROKEN_LINE = inspect.getsourcelines(broken)[1] + 2


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_an_error_of_a_model_names_the_line_of_the_program(cwd: Path, is_handed_over: bool) -> None:
    models = nameless_models()
    models["discriminator"] = types.FunctionType(broken.__code__, {"__name__": "__main__"})
    if is_handed_over:  # as what cannot be written down
        models = {**models, "generator": partial(generator), "discriminator": partial(broken)}
    message = rf"Discriminator fails .*: IndexError: .* \(test_python.py:{BROKEN_LINE}\)$"
    with pytest.raises(mdgan.BadInput, match=message):
        mdgan.train(quiet=True, **models, **SETTINGS)


SCRIPT = """
import mdgan
try:
    mdgan.train(iteratons=3)
except mdgan.BadInput as error:
    print("caught", error.what)
mdgan.Data([[1]]).folder
"""


def test_a_refusal_ends_a_script_in_one_line(cwd: Path) -> None:
    (cwd / "own.py").write_text(SCRIPT)
    done = finish(start_anew([sys.executable, "own.py"], cwd, PYTHONPATH=str(REPOSITORY)))
    assert (done.status, done.output) == (1, "caught iteratons\n")
    assert done.errors.startswith("BadInput: train[0]: cannot be read: its shape is []")
    assert done.errors.count("\n") == 1
    (cwd / "own.py").write_text("import mdgan\nmdgan.BadInput\nraise KeyError(3)")
    done = finish(start_anew([sys.executable, "own.py"], cwd, PYTHONPATH=str(REPOSITORY)))
    assert done.errors.startswith("Traceback")


def test_a_run_in_the_background_shows_lines_if_asked(
    cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SETTINGS, "transport": "memory"}
    mdgan.start(**settings).wait()
    assert capsys.readouterr().out == ""
    mdgan.start(quiet=False, **settings).wait()
    assert "done: 12 of 12 iterations" in capsys.readouterr().out


def test_interrupting_saves_the_run(cwd: Path) -> None:
    folder = cwd / "run"
    # Another test may have trained in this process, whose handler stays.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        wait_until(lambda: bool(read_metrics(folder)), "first iterations", 30)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        mdgan.train(out=folder, quiet=True, **{**SETTINGS, "iterations": 10**6})
    run = mdgan.Run.open(folder)
    assert run.state == "stopped"
    stopped = run.iteration
    assert run.resume(iterations=stopped + 2, quiet=True).iteration == stopped + 2


def test_a_run_that_fails_says_why(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MDGAN_FAULTS", "server:kill@wait:3")
    with pytest.raises(mdgan.RunFailed, match="ended with status"):
        mdgan.train(out="run", quiet=True, transport="memory", **SETTINGS)


@pytest.mark.slow
def test_a_comparison(cwd: Path, digits: DatasetFile) -> None:
    data = mdgan.Data(Digits(digits), Digits(digits, held_out=True))
    both = {"few": {"batch_size": 4}, "many": {"batch_size": 8}}
    shared = {**MODELS, **SETTINGS, "eval_interval": 6, "eval_samples": 64}
    result = mdgan.compare(both, dataset=data, seeds=(0, 1), **{**shared, "batch_size": 2})
    assert list(result.table) == ["few", "many"]
    assert [run.iteration for name in both for run in result.runs[name]] == [12] * 4
    assert result.page.exists()
    run = result.runs["few"][0]
    assert run.scores["iteration"].tolist() == [6, 12]
    assert np.isfinite(run.scores["precision"]).all()
    assert mdgan.evaluate(run, n=64)["scores"]["precision"] == run.scores["precision"][-1]
    assert read_status(result.runs["few"][0].path)["dataset_file"] == "dataset/own.py"
    with pytest.raises(mdgan.BadInput, match=r"few.json: batch_size=0"):
        mdgan.compare({"few": {"batch_size": 0}}, seeds=(0,))
    with pytest.raises(mdgan.BadInput, match="becomes that of a folder"):
        mdgan.compare({"a/b": {}})


def test_a_process_is_started_and_refuses_in_one_line(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "subprocess", subprocess)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    shown: list[object] = []
    with pytest.raises(mdgan.BadInput, match=r"^iterations=0: must be at least 1") as refused:
        child.run_child(TrainingRequest({"iterations": 0}), show=shown.append)
    assert (refused.value.setting, refused.value.value) == ("iterations", "0")
    assert shown == []


@pytest.mark.slow
def test_a_program_without_any_stream_is_refused_as_others(cwd: Path) -> None:
    program = """
import mdgan
try:
    mdgan.train(batch_size=10**6)
except mdgan.BadInput as error:
    open("said", "w").write(str(error))
"""
    (cwd / "own.py").write_text(program)
    command = ["sh", "-c", f"{sys.executable} own.py <&- >&- 2>&-"]
    assert finish(start_anew(command, cwd, PYTHONPATH=str(REPOSITORY))).status == 0
    assert (cwd / "said").read_text().startswith("batch_size=1000000: larger than")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["tcp", "memory"])
def test_a_run_ends_with_its_program(cwd: Path, transport: str) -> None:
    """However the program ends, the run is saved and no process is left."""
    settings = {**SETTINGS, "iterations": 10**6, "transport": transport, "out": "run"}
    (cwd / "own.py").write_text(f"import mdgan\nmdgan.train(**{settings})")
    program = start_anew([sys.executable, "own.py"], cwd, PYTHONPATH=str(REPOSITORY))
    wait_until(lambda: bool(read_metrics(cwd / "run")), "first iterations")
    program.kill()
    program.communicate()
    wait_until(lambda: mdgan.Run.open("run").state == "stopped", "the end of the run", 30)


@pytest.mark.slow
def test_the_program_of_the_page(cwd: Path) -> None:
    """A script whose objects are its own, as a new process: from nothing to a report."""
    page = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
    program = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[0]
    assert len([line for line in program.splitlines() if line.strip()]) <= 15
    assert program in (REPOSITORY / "README.md").read_text(encoding="utf-8")
    quick = program.replace("iterations=1000", "iterations=20, threads=1")
    assert quick != program
    (cwd / "own.py").write_text(quick)
    result = finish(start_anew([sys.executable, "own.py"], cwd, PYTHONPATH=str(REPOSITORY)))
    assert result.status == 0, result
    assert list(cwd.glob("runs/own-*/report.html"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "notebook",
    sorted((REPOSITORY / "examples" / "notebooks").glob("*.ipynb")),
    ids=lambda p: p.stem,
)
def test_a_notebook(notebook: Path, cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    content = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(content, timeout=300, kernel_name="python3").execute(cwd=str(cwd))
    shown = [out for cell in content.cells for out in cell.get("outputs", [])]
    assert any("image/png" in str(out) for out in shown)
