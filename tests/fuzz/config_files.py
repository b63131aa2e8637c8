"""Feeds arbitrary bytes to the readers of settings and records."""

import json
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from mdgan.cli import main
from mdgan.cli.options import read_layers
from mdgan.errors import BadInput
from mdgan.inspect.chrome_trace import chrome_trace
from mdgan.inspect.evaluate import evaluate_run
from mdgan.launch.beginning import continuation
from mdgan.launch.checked import prepare
from mdgan.launch.given import Given
from mdgan.observe.live_view import follow
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.run_directory import RunDirectory
from mdgan.report.build import write_report

RUN_FILES = ("config.json", "run.json", "metrics.jsonl")
_MOST_MEMORY_KIB = 300 * 1024


@contextmanager
def refused_in_one_line() -> Iterator[None]:
    """What is wrong with a file is told in one line, and reading it takes little memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refusal = "nothing is wrong"
    try:
        yield
    except BadInput as error:
        refusal = str(error)
    assert len(refusal.splitlines()) == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + _MOST_MEMORY_KIB


def read_any_config(data: bytes) -> None:
    """Plans a run with these bytes as its `--config` file."""
    with TemporaryDirectory() as folder, chdir(folder), refused_in_one_line():
        path = Path("settings.json")
        path.write_bytes(data)
        layers = read_layers(path, {})
        Given([{"algorithm": "mdgan"}, *layers]).named()
        prepare(Given(layers))


def read_any_settings(settings: Mapping[str, Any]) -> None:
    """Plans a run with these settings in its `--config` file."""
    read_any_config(json.dumps(settings).encode())


@cache
def trained_run() -> Path:
    """A small finished run, trained once."""
    folder = Path(mkdtemp(prefix="mdgan-fuzz-"))
    flags = ["--transport", "memory", "--iterations", "4", "--world-size", "3", "--batch-size", "8"]
    flags += ["--checkpoint-interval", "2", "--swap-interval", "2", "--sample-interval", "0"]
    flags += ["--threads", "1", "--log-interval", "1", "--out", str(folder / "run")]
    with suppress(SystemExit), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        main(["train", *flags])
    assert (folder / "run" / "checkpoints").is_dir()
    return folder / "run"


@contextmanager
def damaged_run(files: Mapping[str, bytes]) -> Iterator[Path]:
    """A copy of the small run with other contents in some of its files."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        shutil.copytree(trained_run(), path)
        for name, data in files.items():
            (path / name).write_bytes(data)
        yield path


def report_on(files: Mapping[str, bytes]) -> None:
    """Reports on a run with other contents in some files."""
    with damaged_run(files) as path, refused_in_one_line():
        shutil.rmtree(path / "trace")  # half of the figures, and most of the time
        write_report([path])


def read_records(files: Mapping[str, bytes]) -> None:
    """Looks in every other way at a run with other contents in some files."""
    with damaged_run(files) as path, refused_in_one_line(), redirect_stdout(StringIO()):
        follow(path, 1.0, once=True)
        chrome_trace(RecordedRun.read(path))


def evaluate_on(files: Mapping[str, bytes]) -> None:
    """Scores a run with other contents in some files."""
    with (
        damaged_run(files) as path,
        chdir(path.parent),
        redirect_stderr(StringIO()),
        refused_in_one_line(),
    ):
        evaluate_run(path, 2, None, {})


def resume_on(files: Mapping[str, bytes]) -> None:
    """Goes on with a run with other contents in some files, up to where it would train."""
    with damaged_run(files) as path, chdir(path.parent), refused_in_one_line():
        layers = read_layers(None, {"iterations": 9}, path)
        Given([{"algorithm": "mdgan"}, *layers]).named()
        prepared = prepare(Given(layers, continues=path))
        run = RunDirectory.open(path)
        run.cut_after(continuation(run, prepared.config).manifest.iteration)


_USES: tuple[Callable[[Mapping[str, bytes]], None], ...] = (read_records, evaluate_on, resume_on)


def use_any_run(data: bytes) -> None:
    """Uses a run in one of three ways, with these bytes in one of its files."""
    choice, rest = data[:1], data[1:]
    use, file = divmod(choice[0] if choice else 0, len(RUN_FILES))
    _USES[use % len(_USES)]({RUN_FILES[file]: rest})
