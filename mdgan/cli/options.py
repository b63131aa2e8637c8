"""What commands share: an option for every setting, the folder of a run, the environment."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from mdgan.cli.help import KeysOption, RareOption, SettingOption, about
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

Command = TypeVar("Command", bound=Callable[..., Any])


def prepare_environment(*, many_processes: bool | None, compiles: bool = False) -> None:
    """Sets what torch and OpenMP read when they are loaded; what the user has set stays.

    How threads wait for one another changes no result.

    Args:
        many_processes: whether several processes may share this machine's cores; None if this one
            computes nothing, and those that it starts decide for themselves.
        compiles: whether the user wants compiled models.
    """
    if many_processes:
        _wait_passively()
    # A process that has asked the driver for GPUs cannot fork. We report what torch would warn of.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    compile_privately(is_wanted=compiles)


def compile_privately(*, is_wanted: bool = False) -> None:
    """Keeps other users from putting programs where torch looks for what it has compiled.

    By default that is a folder in `$TMPDIR` whose name all users can tell, with pickles in it.
    Where no folder is private, a user who wants compiled models is refused, and torch finds none.
    """
    # One more such cache of torch's always lies there, if it is used.
    os.environ.setdefault("TORCHINDUCTOR_ENABLE_CACHING_MODULE", "0")
    unset = [name for name in _COMPILED if name not in os.environ]
    if not unset:
        return
    folder = private_cache("compiled")
    if folder is None:
        try:
            made = make_private_folder()
        except BadInput:
            if is_wanted:
                raise
            folder = Path(os.devnull)
        else:
            if (context := click.get_current_context(silent=True)) is not None:
                context.call_on_close(made.cleanup)
            folder = Path(made.name)
    for name in unset:
        os.environ[name] = str(folder / _COMPILED[name])


_COMPILED = {"TORCHINDUCTOR_CACHE_DIR": "torch", "TRITON_CACHE_DIR": "triton"}
"""Variables that say where compiled programs lie, and our folder for each."""


def prepare_for_load(settings: LaunchSettings) -> str | None:
    """Lets the threads of this one process wait passively if other programs use its cores.

    The number of threads stays, since it decides the last bits of the result. Must come before
    torch is loaded.

    Returns:
        What the user should know; None if nothing was changed.
    """
    alone = settings.threads == 1 or num_cores() == 1
    if alone or settings.device != "cpu" or not _WAITING.isdisjoint(os.environ):
        return None
    taken = cores_taken()
    if taken < _CROWDED:
        return None
    _wait_passively()
    free = max(1, num_cores() - max(1, round(taken)))
    return (
        f"other programs keep {taken:.1f} of {num_cores()} cores busy, so threads wait passively; "
        f"{flag('threads', free)} is usually faster then, with other last bits"
    )


_CROWDED = 0.5  # cores that others keep busy before it shows in the speed
_WAITING = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}  # variables with which users say how threads wait


def _wait_passively() -> None:
    # Threads that spin while they wait take cores from those that they wait for.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def complete_runs(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The runs whose path begins so, one folder deeper too; without any, the shell's folders."""
    start = Path(incomplete or ".")
    within = start if not incomplete or incomplete.endswith("/") else start.parent
    found = [*within.glob("*/config.json"), *within.glob("*/*/config.json")]
    paths = sorted(str(path.parent) for path in found)
    runs = [CompletionItem(path) for path in paths if path.startswith(incomplete)]
    return runs or [CompletionItem(incomplete, type="dir")]


PATH = click.Path(path_type=Path)
run_argument = click.argument("run", type=PATH, shell_complete=complete_runs)
"""The folder of one run."""


def _completes(known: Callable[[dict[str, Any]], Iterable[str]]) -> Callable[..., list[str]]:
    def complete(context: click.Context, _option: click.Parameter, incomplete: str) -> list[str]:
        with contextlib.suppress(BadInput):
            return sorted(name for name in known(context.params) if name.startswith(incomplete))
        return []

    return complete


dataset_names = _completes(registry.declared_settings()["dataset"].kind.known or (lambda _: ()))
"""Completes the names of dataset files, those in --datasets-dir included."""


def number_or_auto(text: str) -> int | str:
    """A whole number, or the word auto."""
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


def output_option(help: str) -> Callable[[Command], Command]:
    """Adds `-o FILE`, which the command gets as `output`; None if the user does not give it."""
    return click.option("-o", "output", type=PATH, metavar="FILE", help=help)


def number(
    *names: str, least: int, most: int | None = None, **more: Any
) -> Callable[[Command], Command]:
    """Adds the flag of a whole number."""
    return click.option(*names, type=click.IntRange(least, most), **more)


def seconds(name: str, *, least: float, **more: Any) -> Callable[[Command], Command]:
    """Adds the flag of a time."""
    return click.option(name, type=click.FloatRange(least), metavar="SECONDS", **more)


def settings_options(
    leave_out: Collection[str] = (), *, shared: bool = True, config: bool = True
) -> Callable[[Command], Command]:
    """Adds an option for every setting, and `--config` if one file may hold them all.

    Args:
        shared: whether to offer the settings that must be equal on every rank.
    """

    def decorate(command: Command) -> Command:
        items = [*registry.declared_settings().values(), *LaunchSettings.declared().values()]
        offered = [i for i in items if i.name not in leave_out and (shared or not i.shared)]
        options: list[click.Option] = [_option(item) for item in offered if item.has_flag]
        options.append(KeysOption([item for item in offered if not item.has_flag]))
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
    """The settings that the user gave: flags, then the file, then the run to go on with.

    Faults that the file plans strike a new run, in this process and those it starts, as if
    MDGAN_FAULTS said so.
    """
    scaled = flags.pop("paper_scale", False)
    file, faults = read_config_file(config, known_settings(), paper_scale=scaled)
    begun = resume is not None or (Path(flags.get("out") or "") / "run.json").is_file()
    if faults and not begun:
        os.environ.setdefault(FAULTS, faults)
    layers = [flags, file]
    if resume is not None:
        if flags.get("out") is not None:
            why = f"the run goes on in its folder {resume}"
            raise BadInput(flag("out", flags["out"]), why)
        layers.append(RunDirectory.open(resume).read_config())
    return [flags, *(without_other_guards(flags, layer) for layer in layers[1:])]


class AlgorithmName(click.Choice[str]):
    """The name of an algorithm, also as its paper writes it."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Reads a name from the command line, and refuses one that no algorithm has."""
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
        complete = _completes(kind.known)
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
        help=about(item),
        shell_complete=complete,
    )
