"""Options that several commands share, completion in shells, and the environment of torch."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from mdgan.cli.help import KeysOption, RareOption, SettingOption, full_help
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.faults import FAULTS
from mdgan.launch.given import known_settings
from mdgan.launch.settings import LaunchSettings, without_other_guards
from mdgan.records.run_directory import RunDirectory
from mdgan.settings.config_file import read_config_file
from mdgan.settings.declare import Setting
from mdgan.settings.machine import cores_taken, num_cores
from mdgan.spelling import flag
from mdgan.storage.private_folders import make_private_folder, private_cache

_Command = TypeVar("_Command", bound=Callable[..., Any])


def prepare_environment(*, many_processes: bool | None, compiles: bool = False) -> None:
    """Sets variables that torch and OpenMP read when they are loaded, unless the user has set them.

    How threads wait for one another changes no result.

    Args:
        many_processes: whether several processes may share this machine's cores; None if this one
            computes nothing, and the processes that it starts decide for themselves.
        compiles: whether the user wants compiled models.
    """
    if many_processes:
        _wait_passively()
    # A process that has asked the driver for GPUs cannot fork. We report what torch would warn of.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    compile_privately(is_wanted=compiles)


def compile_privately(*, is_wanted: bool = False) -> None:
    """Moves the folder of torch's compiled programs to one that other users cannot write to.

    By default torch uses a folder in `$TMPDIR` with a predictable name, and unpickles files in it.
    If no folder is private, torch finds none, or BadInput if the user wants compiled models.
    """
    # This cache of torch would stay in $TMPDIR, so it is switched off.
    os.environ.setdefault("TORCHINDUCTOR_ENABLE_CACHING_MODULE", "0")
    unset_variables = [name for name in _CACHE_FOLDERS if name not in os.environ]
    if not unset_variables:
        return
    folder = private_cache("compiled")
    if folder is None:
        try:
            temporary = make_private_folder()
        except BadInput:
            if is_wanted:
                raise
            folder = Path(os.devnull)
        else:
            if (context := click.get_current_context(silent=True)) is not None:
                context.call_on_close(temporary.cleanup)
            folder = Path(temporary.name)
    for name in unset_variables:
        os.environ[name] = str(folder / _CACHE_FOLDERS[name])


_CACHE_FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "torch", "TRITON_CACHE_DIR": "triton"}
"""Variables that name the folders of compiled programs, and our folder for each."""


def prepare_for_load(settings: LaunchSettings) -> str | None:
    """Lets the threads of a single process wait passively if other programs use its cores.

    The number of threads stays, since it decides the last bits of the result. The caller must not
    have loaded torch yet.

    Returns:
        A warning for the user; None if nothing was changed.
    """
    alone = settings.threads == 1 or num_cores() == 1
    if alone or settings.device != "cpu" or not _WAIT_POLICIES.isdisjoint(os.environ):
        return None
    busy = cores_taken()
    if busy < _CROWDED:
        return None
    _wait_passively()
    free = max(1, num_cores() - max(1, round(busy)))
    return (
        f"other programs keep {busy:.1f} of {num_cores()} cores busy, so threads wait passively; "
        f"{flag('threads', free)} is usually faster then, with other last bits"
    )


_CROWDED = 0.5  # fewer cores that others keep busy hardly slow training
_WAIT_POLICIES = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}  # with them users say how threads wait


def _wait_passively() -> None:
    # Threads that spin while they wait take cores from those that they wait for.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def complete_runs(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes paths of runs, up to one folder deeper; the shell completes others."""
    start = Path(incomplete or ".")
    folder = start if not incomplete or incomplete.endswith("/") else start.parent
    configs = [*folder.glob("*/config.json"), *folder.glob("*/*/config.json")]
    paths = sorted(str(path.parent) for path in configs)
    runs = [CompletionItem(path) for path in paths if path.startswith(incomplete)]
    return runs or [CompletionItem(incomplete, type="dir")]


PATH = click.Path(path_type=Path)
run_argument = click.argument("run", type=PATH, shell_complete=complete_runs)
"""The argument RUN: the folder of one run."""


def _completer(known: Callable[[dict[str, Any]], Iterable[str]]) -> Callable[..., list[str]]:
    def complete(context: click.Context, _option: click.Parameter, incomplete: str) -> list[str]:
        with contextlib.suppress(BadInput):
            return sorted(name for name in known(context.params) if name.startswith(incomplete))
        return []

    return complete


dataset_names = _completer(registry.declared_settings()["dataset"].kind.known or (lambda _: ()))
"""Completes names of dataset files, including those in --datasets-dir."""


def number_or_auto(text: str) -> int | str:
    """Reads a whole number, or the word auto."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is neither a whole number nor auto") from error


_CONFIG = click.Option(
    ["--config"],
    type=PATH,
    metavar="FILE.json",
    help="Settings from a file, by the names of the flags; flags win. Any run's "
    "config.json is one. Faults that strike a new run may stand there as in MDGAN_FAULTS.",
)


def output_option(help: str) -> Callable[[_Command], _Command]:
    """Adds `-o FILE`. The command gets it as `output`, or None."""
    return click.option("-o", "output", type=PATH, metavar="FILE", help=help)


def number(
    *names: str, least: int, most: int | None = None, **more: Any
) -> Callable[[_Command], _Command]:
    """Adds a flag that takes a whole number from `least` to `most`."""
    return click.option(*names, type=click.IntRange(least, most), **more)


def seconds(name: str, *, least: float, **more: Any) -> Callable[[_Command], _Command]:
    """Adds a flag that takes a time in seconds."""
    return click.option(name, type=click.FloatRange(least), metavar="SECONDS", **more)


def settings_options(
    leave_out: Collection[str] = (), *, shared: bool = True, config: bool = True
) -> Callable[[_Command], _Command]:
    """Adds an option for every setting.

    Args:
        shared: whether to offer the settings that must be equal on every rank.
        config: whether to offer --config as well.
    """

    def decorate(command: _Command) -> _Command:
        declared = [*registry.declared_settings().values(), *LaunchSettings.declared().values()]
        offered = [i for i in declared if i.name not in leave_out and (shared or not i.shared)]
        options: list[click.Option] = [_option(i) for i in offered if i.has_flag]
        options.append(KeysOption([i for i in offered if not i.has_flag]))
        if shared:
            scale = (RareOption if config else click.Option)(["--paper-scale"], is_flag=True)
            scale.help = 'Take what files say under "paper_scale": days of training, not minutes.'
            options += [_CONFIG, scale] if config else [scale]
        params = command.__dict__.setdefault("__click_params__", [])
        params.extend(reversed(options))  # as decorators do
        return command

    return decorate


def read_layers(
    config: Path | None, flags: dict[str, Any], resume: Path | None = None
) -> list[dict[str, Any]]:
    """Reads the user's settings in layers: flags, then the file, then the run to resume.

    If the file plans faults and the run is new, this sets MDGAN_FAULTS for this process and those
    that it starts.
    """
    paper_scale = flags.pop("paper_scale", False)
    file, faults = read_config_file(config, known_settings(), paper_scale=paper_scale)
    has_begun = resume is not None or (Path(flags.get("out") or "") / "run.json").is_file()
    if faults and not has_begun:
        os.environ.setdefault(FAULTS, faults)
    layers = [flags, file]
    if resume is not None:
        if flags.get("out") is not None:
            why = f"the run goes on in its folder {resume}"
            raise BadInput(flag("out", flags["out"]), why)
        layers.append(RunDirectory.open(resume).read_config())
    return [flags, *(without_other_guards(flags, layer) for layer in layers[1:])]


class AlgorithmName(click.Choice[str]):
    """Takes the name of an algorithm, also as its paper writes it."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Converts a name to mdgan's, and refuses one that no algorithm has."""
        return super().convert(registry.own_name(value), param, ctx)


def _option(item: Setting) -> SettingOption:
    kind = item.kind
    metavar = "NAME" if item.name == "algorithm" else item.metavar
    choices = registry.names() if item.name == "algorithm" else kind.choices
    types: dict[type, Any] = {int: click.INT, float: click.FLOAT, str: click.STRING}
    read: Any = types.get(kind.type)
    if item.name == "algorithm":
        read = AlgorithmName(choices)
    elif choices:
        read = click.Choice(choices)
    elif kind.word == "auto":
        read = number_or_auto
    complete: Callable[..., Any] | None = None
    if kind.known is not None:
        complete = _completer(kind.known)
    elif metavar in ("DIR", "FILE"):
        complete = click.Path(file_okay=metavar == "FILE").shell_complete
    return SettingOption(
        item,
        type=read,
        is_flag=kind.type is bool,
        multiple=kind.several,
        callback=(lambda _context, _option, values: ",".join(values) or None)
        if kind.several
        else None,
        default=None,
        metavar=metavar,
        help=full_help(item),
        shell_complete=complete,
    )
