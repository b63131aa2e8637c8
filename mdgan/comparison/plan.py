"""Lists the trainings of a comparison, and checks every configuration before one starts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput
from mdgan.launch.beginning import is_running
from mdgan.launch.checked import prepare
from mdgan.launch.faults import FAULTS, read_planned
from mdgan.launch.given import Given, combined, known_settings
from mdgan.records.run_directory import RunDirectory
from mdgan.report.numbers.subject import NO_MATTER
from mdgan.settings.config_file import ConfigFile, read_config_file
from mdgan.settings.machine import num_cores
from mdgan.spelling import count, flag
from mdgan.storage.checkpoints import Checkpoints

NEW, GOES_ON, AGAIN, DONE = "starts", "goes on", "starts again", "finished before"
"""The standing of a training. AGAIN: it stopped before its first checkpoint."""

_RUN = "{run}"  # in a `dp_ledger`: the name of each training's folder


@dataclass(frozen=True)
class Configuration:
    """A configuration of a comparison."""

    name: str
    settings: Mapping[str, Any]  # as `--config` takes them
    resolved: Mapping[str, Any]  # all settings, with defaults
    cores: int
    warnings: tuple[str, ...]
    faults: str = ""


@dataclass(frozen=True)
class Training:
    """One configuration with one seed."""

    configuration: Configuration
    seed: int
    folder: Path
    standing: str = NEW

    @property
    def label(self) -> str:
        """The training's name for people."""
        return f"{self.configuration.name}, seed {self.seed}"

    @property
    def own_settings(self) -> dict[str, Any]:
        """The settings that differ from those of the configuration's other seeds."""
        path = self.configuration.settings.get("dp_ledger")
        ledger = {} if path is None else {"dp_ledger": path.replace(_RUN, self.folder.name)}
        return {"seed": self.seed, **ledger}

    @property
    def log(self) -> Path:
        """The file of the training's output, beside its folder, which must be empty at first."""
        return self.folder.with_name(f"{self.folder.name}.log")


def read_files(paths: Sequence[Path], *, paper_scale: bool = False) -> dict[Path, ConfigFile]:
    """Reads `--config` files, and those in folders.

    Raises:
        BadInput: a file cannot be used, or two share a name.
    """
    files = [file for path in paths for file in _files_in(path)]
    for path in files:
        same = [other for other in files if other.stem == path.stem]
        if len(same) > 1:
            both = f"{same[0]} and {same[1]}"
            raise BadInput(both, f"both are called {path.stem}", "rename one")
    known = known_settings()
    return {path: read_config_file(path, known, paper_scale=paper_scale) for path in files}


def check_configurations(
    files: Mapping[Path, ConfigFile], flags: Mapping[str, Any], seed: int
) -> list[Configuration]:
    """Checks configurations without writing anything.

    Args:
        flags: settings that override every file's; None for a flag that the user left out.

    Raises:
        BadInput: a setting cannot be used, or data differ.
    """
    configurations: list[Configuration] = []
    for path, (of_file, faults) in files.items():
        read_planned({FAULTS: faults})
        settings = combined([flags, of_file])
        settings = {name: x for name, x in settings.items() if name not in ("seed", "out")}
        try:
            configurations.append(_configuration(path.stem, settings, seed, faults=faults))
        except BadInput as error:
            raise BadInput(path, error.marked) from error
        for name in ("dataset", "data_dir"):
            first, this = configurations[0].resolved[name], configurations[-1].resolved[name]
            if first != this:
                why = f"{flag(name)} differs ({first}, {this})"
                way_out = "only runs on the same data can be compared"
                raise BadInput(f"{next(iter(files))} and {path}", why, way_out)
    return configurations


def list_trainings(
    configurations: Sequence[Configuration], seeds: Sequence[int], out: Path, *, resume: bool
) -> list[Training]:
    """Every configuration with every seed, all configurations with the first seed first.

    Raises:
        BadInput: the folder holds other files, or runs that cannot go on.
    """
    if not resume and out.exists() and (not out.is_dir() or any(out.iterdir())):
        way_out = f"add {flag('resume', True)} to go on with a comparison, or name a new folder"
        raise BadInput(flag("out", out), "has files in it", way_out)
    trainings = []
    for seed in seeds:
        for configuration in configurations:
            folder = out / f"{configuration.name}-seed{seed}"
            training = Training(configuration, seed, folder)
            standing = _standing(folder, {**configuration.resolved, **training.own_settings})
            trainings.append(replace(training, standing=standing))
    return trainings


def in_words(trainings: Sequence[Training], out: Path, at_once: int) -> Iterator[str]:
    """The lines of `mdgan compare --dry-run`: one for each training, and where results go."""
    for one in trainings:
        settings = one.configuration.resolved
        what = f"{settings['algorithm']} on {settings['dataset']}, b = {settings['batch_size']}"
        yield f"{one.label}: {what}, {count(settings['iterations'], 'iteration')}, {one.standing}"
    yield f"{len(trainings)} training(s), {at_once} at once, into {out}; mdgan plan says how long"


def jobs_at_once(configurations: Sequence[Configuration]) -> int:
    """How many trainings the cores of this machine can run side by side; at least 1."""
    return max(1, num_cores() // max(one.cores for one in configurations))


def _files_in(path: Path) -> list[Path]:
    """The file itself, or the configurations in a folder, by name."""
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.json"))
    if not files:
        raise BadInput(path, "no configuration (*.json) in this folder")
    return files


def _configuration(name: str, settings: dict[str, Any], seed: int, faults: str) -> Configuration:
    prepared = prepare(Given([{**settings, "seed": seed}]))
    resolved = prepared.config
    alone = not prepared.algorithm.has_hosts or prepared.launch.transport == "memory"
    if not (alone or prepared.ranks.complete):
        raise BadInput(flag("ranks", settings.get("ranks")), "every rank runs here", "leave it out")
    if resolved["master_port"]:
        why = "several runs cannot share it"
        raise BadInput(flag("master_port", resolved["master_port"]), why, "leave it out")
    num_computing = 1 if alone else len(prepared.ranks.hosts)
    threads = resolved["threads"]
    # Trainings with --cores that ran side by side would share these cores, and use no others.
    takes_all = threads == "auto" or bool(prepared.launch.core_sets)
    cores = num_cores() if takes_all else int(threads) * num_computing
    warnings = [f"{name}: {line}" for line in prepared.warnings]
    if prepared.settings.privacy.keeps_ledger and _RUN not in (settings.get("dp_ledger") or ""):
        warnings.append(
            "all trainings spend of one account, which refuses those that it cannot afford; if the "
            f"data are not secret, give each its own with {flag('dp_ledger')} 'DIR/{_RUN}'"
        )
    interval, iterations = resolved["eval_interval"], resolved["iterations"]
    if not 0 < interval <= iterations:
        warnings.append(
            f"{name}: {flag('eval_interval', interval)} with {flag('iterations', iterations)}: "
            "is not scored"
        )
    return Configuration(
        name, settings, resolved, cores=cores, warnings=tuple(warnings), faults=faults
    )


def _standing(folder: Path, resolved: Mapping[str, Any]) -> str:
    """The standing of the training whose run lies in a folder."""
    if not folder.exists():
        return NEW
    run = RunDirectory.open(folder)
    status, config = run.read_status(), run.read_config()
    for name, value in resolved.items():
        if name in config and config[name] != value and name not in NO_MATTER:
            why = f"was trained with {name} {config[name]}, now it is {value}"
            raise BadInput(folder, why, f"name another {flag('out')}")
    if config.get("seed") != resolved["seed"]:
        raise BadInput(folder, f"was trained with {flag('seed', config.get('seed'))}")
    if status.get("state") == "finished":
        return DONE
    if is_running(run):
        raise BadInput(folder, f"still running (process {status['process']})", "stop it first")
    return GOES_ON if iterations_saved(folder) else AGAIN


def iterations_saved(folder: Path) -> int:
    """The iteration of a run's newest checkpoint; 0 if the run has none to go on from."""
    return max(Checkpoints(RunDirectory.open(folder).checkpoints, keep=1).committed(), default=0)
