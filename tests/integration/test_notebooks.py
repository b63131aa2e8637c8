"""Work in notebooks: models of any kind, callbacks, own scores, runs in the background."""

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mdgan
from tests.claims.registry import claim
from tests.marks import mostly_slow
from tests.processes import QUICK_SETTINGS, run_here, wait_until

pytestmark = pytest.mark.usefixtures("quick_start")
SETTINGS: dict[str, Any] = {**QUICK_SETTINGS, "world_size": 3, "log_interval": 1}


@dataclass
class Sizes:
    width: int = 32


def closures(sizes: Sizes) -> dict[str, Any]:
    def generator() -> nn.Module:
        layers = [nn.Linear(16, sizes.width), nn.ReLU(), nn.Linear(sizes.width, 64), nn.Tanh()]
        return nn.Sequential(*layers, nn.Unflatten(1, (1, 8, 8)))

    class Judge(nn.Sequential):
        pass

    class Discriminator(Judge):
        def __init__(self) -> None:
            super().__init__(nn.Flatten(), nn.Linear(64, sizes.width), nn.Linear(sizes.width, 1))

    return {"generator": generator, "discriminator": Discriminator}


def lambdas(sizes: Sizes) -> dict[str, Any]:
    made = closures(sizes)
    return {"generator": lambda: made["generator"](), "discriminator": made["discriminator"]}


def partials(sizes: Sizes) -> dict[str, Any]:
    made = closures(sizes)
    build = functools.partial(lambda which: made[which](), "generator")
    return {"generator": build, "discriminator": made["discriminator"]}


@pytest.mark.parametrize("kind", mostly_slow([closures, lambdas, partials], [partials]))
@claim("no-pickle", "No pickle that comes in a file or over a socket can run code")
def test_models_of_a_notebook_train(
    cwd: Path, kind: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = mdgan.train(out="run", z_dim=16, **kind(Sizes()), **SETTINGS)
    assert 'mdgan.Run.open("run", generator=…, discriminator=…).resume(' in capsys.readouterr().out
    assert run.sample(3).shape == (3, 1, 8, 8)
    assert run.resume(iterations=14, quiet=True).iteration == 14
    bytes_before = next(run.path.glob("dataset/*.py")).read_text()
    assert "# " in bytes_before
    files = [path for path in run.path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"cloudpickle" in path.read_bytes()]


def test_without_its_program_a_run_says_what_is_missing(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = closures(Sizes())
    run = mdgan.train(out="run", z_dim=16, quiet=True, **models, **SETTINGS)
    monkeypatch.setattr("mdgan.data.handed._KNOWN", {})
    alone = run_here("sample", "run", "-o", "samples.npz", cwd=cwd)
    assert alone.status == 2
    assert "mdgan.Run.open(RUN, generator=…, discriminator=…)" in alone.errors
    assert mdgan.Run.open(run.path, **models).sample(2).shape == (2, 1, 8, 8)
    again = mdgan.Run.open(run.path, **models).resume(iterations=14, quiet=True)
    assert again.iteration == 14


@claim("no-pickle", "No pickle that comes in a file or over a socket can run code")
def test_pickles_are_read_from_pipes_alone(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mdgan.data import handed

    (cwd / "pickle").write_bytes(b"cposix\nsystem\n(S'touch owned'\ntR.")
    monkeypatch.setenv(handed.HANDED, "34")
    monkeypatch.setattr(handed, "_received", [])
    before = os.dup(0)
    with (cwd / "pickle").open() as file:
        os.dup2(file.fileno(), 0)
    try:
        with pytest.raises(mdgan.BadInput, match="the input is no pipe"):
            handed.handed("0" * 16, "Generator")
    finally:
        os.dup2(before, 0)
        os.close(before)
    assert not (cwd / "owned").exists()


@pytest.mark.slow
def test_a_comparison_of_models_of_a_notebook(cwd: Path) -> None:
    both = {"few": {"batch_size": 4}, "many": {"batch_size": 8}}
    settings = {name: value for name, value in SETTINGS.items() if name != "batch_size"}
    result = mdgan.compare(both, seeds=(0,), z_dim=16, **closures(Sizes()), **settings)
    assert [result.runs[name][0].iteration for name in both] == [12, 12]


def test_a_bug_of_a_notebook_is_told(cwd: Path) -> None:
    class Failing(nn.Linear):
        calls = 0

        def forward(self, samples: Tensor) -> Tensor:
            Failing.calls += 1
            if Failing.calls > 60:
                raise KeyError("my bug")
            return super().forward(samples.flatten(1))

    models = {**closures(Sizes()), "discriminator": lambda: Failing(64, 1)}
    settings = {**SETTINGS, "iterations": 200}
    with pytest.raises(mdgan.RunFailed, match=r"rank [12]: KeyError: 'my bug'") as failed:
        mdgan.train(out="run", z_dim=16, quiet=True, **models, **settings)
    assert failed.value._render_traceback_() == [f"RunFailed: {failed.value}"]


def test_callbacks_see_every_iteration_and_own_scores(cwd: Path) -> None:
    notes: list[mdgan.Reached] = []
    settings = {**SETTINGS, "eval_interval": 6, "eval_samples": 64}
    changes = {"mean": lambda samples: float(Tensor.mean(samples))}
    run = mdgan.train(out="run", quiet=True, callbacks=[notes.append], scores=changes, **settings)
    trained = [reached for reached in notes if not reached.scores]
    assert [reached.iteration for reached in trained] == list(range(1, 13))
    assert {reached.iterations for reached in notes} == {12}
    assert trained[-1].losses["generator"] == run.losses["generator"][-1]
    scored = [reached.scores for reached in notes if reached.scores]
    assert all({"kid", "mean"} <= scores.keys() for scores in scored), scored
    assert run.own_scores["mean"][-1] == scored[-1]["mean"]


def test_a_callback_stops_a_run(cwd: Path) -> None:
    settings = {**SETTINGS, "iterations": 10**6}
    run = mdgan.train(out="run", quiet=True, callbacks=[lambda at: at.iteration > 3], **settings)
    assert run.state == "stopped"
    assert 3 < run.iteration < 10**6
    with pytest.raises(ZeroDivisionError):
        run.resume(quiet=True, callbacks=[lambda at: 1 / 0])
    assert run.state == "stopped"


def test_a_run_in_the_background(cwd: Path) -> None:
    endless = mdgan.start(out="endless", **{**SETTINGS, "iterations": 10**6})
    with pytest.raises(TimeoutError):
        endless.wait(0.01)
    wait_until(lambda: endless.reached is not None, "first iterations")
    assert re.search(r"iteration \d+ of 1000000", repr(endless))
    assert len(endless.losses)
    stopped = endless.stop()
    assert endless.done
    assert stopped.state == "stopped"
    run = mdgan.start(out="run", **SETTINGS).wait()
    assert run.iteration == 12
    assert torch.is_tensor(run.sample(1))
    with pytest.raises(mdgan.BadInput, match="iterations=0"):
        mdgan.start(iterations=0)
    failed = mdgan.start(dataset="digts", **SETTINGS)
    with pytest.raises(mdgan.BadInput, match="did you mean 'digits'"):
        failed.wait()
    assert repr(failed) == "<a run that could not begin>"


def test_two_runs_at_once_have_folders_of_their_own(cwd: Path) -> None:
    both = [mdgan.start(**{**SETTINGS, "iterations": 2}) for _ in range(2)]
    first, second = (each.wait() for each in both)
    assert first.path != second.path
    assert first.iteration == second.iteration == 2


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_run_that_is_stopped_before_its_first_iteration(
    cwd: Path, port: int, has_folder: bool
) -> None:
    Path("never.py").write_text("import threading\nthreading.Event().wait()\n")  # is not loaded
    own = SETTINGS if has_folder else {**SETTINGS, "dataset": "never", "datasets_dir": "."}
    training = mdgan.start(out="run", ranks="0", master_port=port, **own)  # waits for others
    if has_folder:
        wait_until(lambda: Path("run/generation-1.json").exists(), "the run's folder")
    run = training.stop()
    assert (run.state, run.has_begun, run.iteration) == ("stopped", has_folder, 0)
    assert len(run.losses) == len(run.scores) == 0
    assert repr(training) == "<run: stopped before its first logged iteration>"
    assert "run: stopped at iteration 0" in run._repr_html_()
    if not has_folder:
        with pytest.raises(mdgan.BadInput, match="run: has not begun; train it anew"):
            run.resume()
