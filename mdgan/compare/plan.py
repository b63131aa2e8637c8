"""Lists what a comparison trains, and checks every configuration before any training starts."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from mdgan.compare.command import plan_of
from mdgan.compare.config_files import read_compared
from mdgan.errors import BadInput
from mdgan.launch.resolve import combined
from mdgan.records.run_directory import RunDirectory
from mdgan.settings.declare import flag
from mdgan.settings.machine import num_cores
from mdgan.storage.checkpoints import Checkpoints

NEW, GOES_ON, AGAIN, DONE = "starts", "goes on", "starts again", "finished before"
"""What has to be done for a training. AGAIN: it stopped before its first checkpoint."""

_NO_MATTER = frozenset({"seed", "master_addr", "master_port", "network_interface", "ranks"})


@dataclass(frozen=True)
class Configuration:
    """One of the configurations that are compared.

    Attributes:
        name: the stem of its file.
        settings: from the file and the flags, as `--config` takes them.
        resolved: every setting, as a run's `config.json` will hold it.
        cores: how many cores a training keeps busy.
        warnings: one line each.
        faults: that are planned, written as in MDGAN_FAULTS.
    """

    name: str
    settings: Mapping[str, Any]
    resolved: Mapping[str, Any]
    cores: int
    warnings: tuple[str, ...]
    faults: str = ""


@dataclass(frozen=True)
class Training:
    """One configuration with one seed.

    Attributes:
        configuration: the settings.
        seed: of everything random.
        folder: of the run.
        standing: what has to be done: one of the words above.
    """

    configuration: Configuration
    seed: int
    folder: Path
    standing: str

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.configuration.name}, seed {self.seed}"

    @property
    def log(self) -> Path:
        """The file for all that it prints, beside its folder, which must be empty at the start."""
        return self.folder.with_name(f"{self.folder.name}.log")


def read_configurations(
    files: Sequence[Path], flags: Mapping[str, Any], seed: int, *, paper_scale: bool = False
) -> list[Configuration]:
    """Reads and checks the files; nothing is written.

    Args:
        files: each as `mdgan train --config` takes it.
        flags: settings that override every file's; None for a flag that was not given.
        seed: one of the seeds, for the check.
        paper_scale: see `read_compared`.

    Raises:
        BadInput: a file or a setting cannot be used, two files have the same name, or their data
            differs.
    """
    found: list[Configuration] = []
    for path in files:
        same = [other for other in files if other.stem == path.stem]
        if len(same) > 1:
            raise BadInput(f"{same[0]} and {same[1]}: both are called {path.stem}; rename one")
    for path in files:
        file = read_compared(path, paper_scale=paper_scale)
        settings = combined([flags, file.settings])
        settings = {name: x for name, x in settings.items() if name not in ("seed", "out")}
        try:
            configuration = _configuration(path.stem, settings, seed)
            found.append(replace(configuration, faults=file.faults))
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from error
        for name in ("dataset", "data_dir"):
            first, this = found[0].resolved[name], found[-1].resolved[name]
            if first != this:
                raise BadInput(
                    f"{files[0]} and {path}: {flag(name)} differs ({first}, {this}); only runs on "
                    "the same data can be compared"
                )
    return found


def list_trainings(
    configurations: Sequence[Configuration], seeds: Sequence[int], out: Path, *, resume: bool
) -> list[Training]:
    """Every configuration with every seed, all configurations with the first seed first.

    Args:
        configurations: checked.
        seeds: each once.
        out: the folder of the comparison.
        resume: whether the folder may hold some of these runs already.

    Raises:
        BadInput: the folder holds something else, or runs that cannot go on.
    """
    if not resume and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(
            f"--out {out}: has files in it; add --resume to go on with a comparison, or name a new "
            "folder"
        )
    trainings = []
    for seed in seeds:
        for configuration in configurations:
            folder = out / f"{configuration.name}-seed{seed}"
            standing = _standing(folder, {**configuration.resolved, "seed": seed})
            trainings.append(Training(configuration, seed, folder, standing))
    return trainings


def jobs_at_once(configurations: Sequence[Configuration]) -> int:
    """How many trainings the cores of this machine can run side by side; at least 1."""
    return max(1, num_cores() // max(each.cores for each in configurations))


def _configuration(name: str, settings: dict[str, Any], seed: int) -> Configuration:
    plan = plan_of({**settings, "seed": seed})
    if not plan.everyone_here:
        raise BadInput(f"--ranks {settings.get('ranks')}: every rank runs here; leave it out")
    if plan.resolved["master_port"]:
        raise BadInput(
            f"--master-port {plan.resolved['master_port']}: several runs cannot share it; leave it "
            "out"
        )
    threads = plan.resolved["threads"]
    cores = num_cores() if threads == "auto" else int(threads) * plan.num_computing
    warnings = [f"{name}: {line}" for line in plan.warnings]
    interval, iterations = plan.resolved["eval_interval"], plan.resolved["iterations"]
    if not 0 < interval <= iterations:
        warnings.append(
            f"{name}: --eval-interval {interval} with --iterations {iterations}: is not scored"
        )
    return Configuration(name, settings, plan.resolved, cores, tuple(warnings))


def _standing(folder: Path, resolved: Mapping[str, Any]) -> str:
    """What has to be done for the training whose run lies in a folder.

    Raises:
        BadInput: the run there is of another training, or still running.
    """
    if not folder.exists():
        return NEW
    run = RunDirectory.open(folder)
    status, config = run.read_status(), run.read_config()
    for name, value in resolved.items():
        if name in config and config[name] != value and name not in _NO_MATTER:
            raise BadInput(
                f"{folder}: was trained with {flag(name)} {config[name]}, now it is {value}; name "
                "another --out"
            )
    if config.get("seed") != resolved["seed"]:
        raise BadInput(f"{folder}: was trained with --seed {config.get('seed')}")
    if status.get("state") == "finished":
        return DONE
    if _is_running(folder, status):
        raise BadInput(f"{folder}: still running (process {status['process']}); stop it first")
    return GOES_ON if has_checkpoint(folder) else AGAIN


def has_checkpoint(folder: Path) -> bool:
    """Whether a run can go on from where it was."""
    return bool(Checkpoints(RunDirectory.open(folder).checkpoints, keep=1).committed())


def _is_running(folder: Path, status: Mapping[str, Any]) -> bool:
    if status.get("state") not in ("starting", "running"):
        return False
    if status.get("machine") != socket.gethostname():
        return False
    try:
        process = psutil.Process(status.get("process", 0))
        # A process that is younger than the file is another one that got the same number.
        young = process.create_time() >= (folder / "run.json").stat().st_mtime
        return bool(process.status() != psutil.STATUS_ZOMBIE) and not young
    except (psutil.Error, ValueError, OverflowError):
        return False
