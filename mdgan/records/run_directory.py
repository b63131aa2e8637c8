"""The folder of a run: writes and reads its files. Each file appears in one step, complete."""

import json
from collections.abc import Iterable, Mapping
from errno import ENOSPC
from math import inf
from os import SEEK_END, strerror
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from msgspec import Meta

from mdgan.errors import BadInput, writing
from mdgan.records.rows import Count, Kind, Seconds, json_object, typed
from mdgan.spelling import flag
from mdgan.storage.foreign_file import lines_of, read_whole
from mdgan.storage.whole_file import whole_file, write_whole
from mdgan.version import __version__

# Commands that only look at a run start quickly, without torch.
if TYPE_CHECKING:
    from torch import Tensor

_CONFIG_FILE = "config.json"
_STATUS_FILE = "run.json"
GENERATOR_FILE = "generator.safetensors"
AVERAGE_FILE = "generator-average.safetensors"
NEIGHBOURS_FILE = "neighbours.png"
FIGURES_FILE = "figures.json"
TOLD_PAIRS = "told pairs"  # an event: how near pairs of generated columns are to the sites' sums
EXTRACTOR_FILE = "extractor.safetensors"
"""The network whose features give the scores, so that others can compute the same scores."""
REAL_FILE = "real.safetensors"  # the sums over the features of all real samples
ENCODING_FILE = "encoding.safetensors"  # for tables: the counts of all sites together
ENDED = ("finished", "stopped", "failed")  # the states of a run that is over
_LONGEST_NUMBER = 10

_Text = Annotated[str, Meta(pattern=r"\A[^\0]*\Z")]


class Status(TypedDict, total=False):
    """The fields of `run.json`.

    Attributes:
        run_id, run_key: by them hosts tell the run's folder from those of other runs.
    """

    version: _Text
    dataset_file: _Text  # its path, from the run's folder if it lies there
    dataset_sha256: _Text
    paper_scale: _Text  # the file of settings whose `paper_scale` the user chose, if any
    machine: _Text
    process: Annotated[int, Meta(ge=0, lt=1 << 31)]
    process_began: float  # when the server's process began, in seconds since the system's start
    listens: _Text  # address and port for hosts of other machines; empty if there are none
    socket: _Text  # the server's socket for hosts of this machine; empty if it has none
    run_id: _Text
    run_key: _Text
    system: dict[str, str]
    other_defaults: dict[str, Any]  # setting → its default, for settings with another value
    unit: _Text  # in which the run counts: `iteration` or `round`
    state: _Text  # `starting`, `running`, `finished`, `stopped` or `failed`
    iteration: Count
    seconds: Seconds


class RunDirectory:
    """The folder of one run, which this class writes and reads.

    Beside the files below it holds `trace/<role>.jsonl`, `checkpoints/<iteration>/`,
    `generation-<number>.json` of each server, `audit-log.jsonl`, and perhaps `dataset/<name>.py`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def claim(cls, path: Path) -> "RunDirectory":
        """Makes a new run's folder; BadInput if it is not empty or cannot be written."""
        with writing(flag("out", path)):
            path.mkdir(parents=True, exist_ok=True)
            occupied = any(path.iterdir())
            if not occupied:
                (path / "samples").mkdir()
                (path / "trace").mkdir()
        if occupied:
            what = "another run" if (path / "run.json").exists() else "files"
            raise BadInput(flag("out", path), f"has {what} in it", "name a new folder")
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """Opens a run's folder; BadInput if it holds no run, or one of a newer mdgan."""
        if not (path / "run.json").is_file():
            inner = min(path.glob("*/run.json"), default=None)
            one = f"the {flag('out')} folder of `mdgan train`"
            one = f"one of its runs, such as {inner.parent}" if inner else one
            raise BadInput(path, "not a run", f"give {one}")
        run = cls(path)
        version = str(run.read_status().get("version", ""))
        if _numbers(version) > _numbers(__version__):
            why = f"a run of mdgan {version}, newer than this {__version__}"
            raise BadInput(path, why, "update mdgan")
        return run

    @property
    def checkpoints(self) -> Path:
        """The folder of the run's checkpoints."""
        return self.path / "checkpoints"

    def dataset_file(self, name: str) -> Path:
        """Where the run keeps a copy of its dataset file, if it needs one."""
        return self.kept(f"{name}.py")

    def keep_dataset_file(self, path: Path) -> None:
        """Copies a dataset file into the run's folder, unless the file is that copy."""
        if self.dataset_file(path.stem).resolve() != path.resolve():
            self.keep(path.name, path.read_bytes())

    def kept(self, name: str) -> Path:
        """Where the run keeps a file of its data set, if it keeps one of that name."""
        return self.path / "dataset" / name

    def keep(self, name: str, content: bytes) -> None:
        """Keeps a file of the data set in the run's folder."""
        kept = self.kept(name)
        kept.parent.mkdir(exist_ok=True)
        write_whole(kept, content)

    def cut_after(self, iteration: int) -> None:
        """Removes the records of later iterations, before training repeats these."""
        for path in [self.path / "metrics.jsonl", *(self.path / "trace").glob("*.jsonl")]:
            try:
                if any(_iteration_of(line) > iteration for line in lines_of(path)):
                    with whole_file(path) as file:
                        file.writelines(x for x in lines_of(path) if _iteration_of(x) <= iteration)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise BadInput(path, f"cannot be cut off ({error.strerror})") from error

    def sweep(self) -> None:
        """Removes unfinished files of killed processes."""
        for folder in (self.path, self.path / "samples"):
            for path in folder.glob(".*.tmp"):
                if not path.name.startswith(".generation-"):  # another server may be claiming
                    path.unlink(missing_ok=True)

    def write_config(self, settings: Mapping[str, Any]) -> None:
        """Writes `config.json`."""
        self._write_json(_CONFIG_FILE, settings)

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Writes `run.json`."""
        self._write_json(_STATUS_FILE, status)

    def read_config(self) -> dict[str, Any]:
        """Reads `config.json`; raises BadInput if it is damaged."""
        return self._read_json(_CONFIG_FILE, dict[str, Any])

    def read_status(self) -> Status:
        """Reads `run.json`; raises BadInput if it is damaged."""
        return self._read_json(_STATUS_FILE, Status)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Appends one line to `metrics.jsonl`, in one write."""
        _append(self.path / "metrics.jsonl", json.dumps(record).encode() + b"\n")

    def append_trace(self, role: str, rows: Iterable[Mapping[str, Any]]) -> int:
        """Appends lines to `trace/<role>.jsonl`, in one write; returns their bytes."""
        data = b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)
        _append(self.path / "trace" / f"{role}.jsonl", data)
        return len(data)

    def write_samples(self, iteration: int, png: bytes) -> Path:
        """Writes `samples/<iteration>.png` and returns its path."""
        path = self.path / "samples" / f"{iteration:07d}.png"
        write_whole(path, png)
        return path

    def write_generator(
        self,
        state: "Mapping[str, Tensor]",
        iteration: int,
        average: "Mapping[str, Tensor] | None" = None,
    ) -> None:
        """Writes the generator after an iteration and its `average`; removes an old one if None."""
        if average is not None:
            self.write_tensors(AVERAGE_FILE, average, {"iteration": iteration})
        else:
            (self.path / AVERAGE_FILE).unlink(missing_ok=True)
        self.write_tensors(GENERATOR_FILE, state, {"iteration": iteration})

    def read_generator(self, *, raw: bool = False) -> "tuple[dict[str, Tensor], int]":
        """Reads the newest generator and its iteration: the average, if it exists and not `raw`.

        Raises:
            BadInput: there is no generator yet, or its file is damaged.
        """
        if not (self.path / GENERATOR_FILE).exists():
            raise BadInput(self.path, "has no generator yet", "wait for the first iteration")
        averaged = not raw and (self.path / AVERAGE_FILE).exists()
        state, fields = self.read_tensors(AVERAGE_FILE if averaged else GENERATOR_FILE)
        try:
            return state, typed(fields.get("iteration"), int)
        except ValueError as error:
            raise BadInput(self.path, f"its generator is damaged ({error})") from error

    def write_tensors(
        self, name: str, tensors: "Mapping[str, Tensor]", fields: Mapping[str, Any]
    ) -> None:
        """Writes a safetensors file with JSON values beside the tensors."""
        from mdgan.storage.state_file import write_tensors

        write_tensors(self.path / name, tensors, fields)

    def read_tensors(self, name: str) -> "tuple[dict[str, Tensor], dict[str, Any]]":
        """Reads a file of `write_tensors`; BadInput if it is missing or damaged."""
        from mdgan.storage.state_file import read_tensors

        return read_tensors(self.path / name)

    def read_counts(self, number: int) -> "Tensor":
        """Reads the counts of all sites together, float64 [number]; BadInput if there are none."""
        counts = self.read_tensors(ENCODING_FILE)[0].get("counts")
        if (
            counts is None
            or (tuple(counts.shape), str(counts.dtype)) != ((number,), "torch.float64")
            or not bool(counts.isfinite().all())
        ):
            raise BadInput(self.path / ENCODING_FILE, f"damaged (not {number} counts of a table)")
        return counts

    def contents(self, dataset: str) -> dict[str, bytes | None]:
        """The contents of the files that a new server writes before training; None: no file."""
        kept = str(self.dataset_file(dataset).relative_to(self.path))
        paths = {name: self.path / name for name in (_STATUS_FILE, _CONFIG_FILE, kept)}
        return {n: path.read_bytes() if path.exists() else None for n, path in paths.items()}

    def put_back(self, contents: Mapping[str, bytes | None]) -> None:
        """Restores files to earlier `contents`, as far as they differ now."""
        for name, content in contents.items():
            path = self.path / name
            if content is None:
                path.unlink(missing_ok=True)
            elif not path.exists() or path.read_bytes() != content:
                write_whole(path, content)

    def _read_json(self, name: str, kind: type[Kind]) -> Kind:
        path = self.path / name
        try:
            return typed(json_object(read_whole(path)), kind)
        except FileNotFoundError as error:
            way_out = "copy it from where the run was, or name another run"
            raise BadInput(path, "is missing", way_out) from error
        except OSError as error:
            raise BadInput(path, f"damaged ({error.strerror})") from error
        except ValueError as error:
            raise BadInput(path, f"damaged ({error})") from error

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        write_whole(self.path / name, (json.dumps(content, indent=2) + "\n").encode())


def runs_in(path: Path) -> list[Path]:
    """The folders of runs in a folder, by name; the folder itself if it is a run or has none."""
    if (path / "run.json").is_file() or not path.is_dir():
        return [path]
    return sorted(status.parent for status in path.glob("*/run.json") if status.is_file()) or [path]


def _append(path: Path, data: bytes) -> None:
    """Appends all of some lines or nothing; a half line would spoil the next one, too."""
    with path.open("ab", buffering=0) as file:
        end = file.seek(0, SEEK_END)
        if file.write(data) < len(data):  # the disk has become full
            file.truncate(end)
            raise OSError(ENOSPC, strerror(ENOSPC), str(path))


def _iteration_of(line: bytes) -> float:
    """The iteration that a line is about; infinite if the line is damaged."""
    try:
        return typed(json_object(line).get("iteration"), float)
    except ValueError:
        return inf


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers in the name of a version, for comparison; empty if it is no version."""
    parts = version.split(".")
    is_version = all(part.isdecimal() and len(part) < _LONGEST_NUMBER for part in parts)
    return tuple(map(int, parts)) if is_version else ()
