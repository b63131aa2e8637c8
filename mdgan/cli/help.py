"""Writes `--help`: examples, flags in groups, and commands in the order of use."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.given import known_settings
from mdgan.launch.settings import LaunchSettings
from mdgan.settings import retired
from mdgan.settings.declare import GROUPS, Setting, Settings, suggest
from mdgan.spelling import flag, key

_EXTRA_ARGUMENT = re.compile(r"Got unexpected extra arguments? \((\S+).*\)")
"""The message of click if the command line has a word without a flag."""
_NARROW = 60
"""Columns of a narrow terminal, where the column of flags must be narrow as well."""
_MOST_FLAGS = 40
"""A command with more flags of settings shows the usual ones, and all with `--help-all`."""
_MOST_BRIEF, _LEAST_BRIEF, _MOST_DEFAULT = 96, 20, 20
"""Characters of the help of a flag, at most and at least, and of its default, if shortened."""


class SettingOption(click.Option):
    """The flag of a setting, with its declaration as `item`."""

    def __init__(self, item: Setting, **more: Any) -> None:
        super().__init__([str(flag(item.name)), item.name], **more)
        self.item = item


class RareOption(click.Option):
    """A flag that is no setting, and that `--help` hides if the command has `--help-all`."""


class KeysOption(click.Option):
    """`--set`, which takes settings that have no flag."""

    def __init__(self, items: Sequence[Setting]) -> None:
        super().__init__(
            ["--set"],
            multiple=True,
            expose_value=False,
            metavar="KEY=VALUE",
            callback=self._read,
            help="A setting without a flag of its own, as in files; --help-all lists them.",
        )
        self.items = {item.name: item for item in items}

    def _read(self, context: click.Context, _option: click.Parameter, texts: Sequence[str]) -> None:
        for text in texts:
            name, _, value = text.partition("=")
            name = name.replace("-", "_")
            if name not in self.items:
                known = known_settings()
                if name in known and known[name].has_flag:
                    raise BadInput(f"--set {text}", f"write {flag(name, value)}")
                if suggestions := _flags_called(flag(name), known.values()):
                    raise BadInput(f"--set {text}", f"is called {' or '.join(suggestions)} here")
                raise BadInput(f"--set {text}", f"unknown key {name!r}{suggest(name, self.items)}")
            context.params[name] = _value(self.items[name], value)


def _value(item: Setting, text: str) -> Any:
    kind = item.kind
    if kind.type is bool and text in ("true", "false", ""):
        return text != "false"
    try:
        return text if text == kind.word or kind.type is bool else kind.type(text)
    except ValueError as error:
        raise BadInput(key(item.name, text), f"must be {kind.type_in_words}") from error


class Command(click.Command):
    """A command whose help has examples, and the flags of settings in groups."""

    def __init__(self, *declared: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*declared, **more)
        # Command lines; the list of all commands shows the first.
        self.examples = examples
        if sum(isinstance(option, SettingOption) for option in self.params) > _MOST_FLAGS:
            self.params.append(_HELP_ALL)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes what the command does, and the examples."""
        super().format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the flags group by group, and last those that are no settings."""
        shows_all = _HELP_ALL not in self.params or "shows_all" in ctx.meta
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        others: list[tuple[str, str]] = []
        keys: list[Setting] = []
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if isinstance(option, KeysOption):
                keys += option.items.values()
            if record is None:
                continue
            if isinstance(option, SettingOption):
                if shows_all:
                    groups[option.item.group].append(record)
                elif option.item.is_usual:
                    groups[option.item.group].append((record[0], _brief_help(option.item)))
            elif shows_all or not isinstance(option, RareOption):
                others.append(record)
        named = [(GROUPS[name], records) for name, records in groups.items() if records]
        width = 30 if shows_all and formatter.width > _NARROW else 22
        for heading, records in (*named, ("Other options" if named else "Options", others)):
            with formatter.section(heading):
                formatter.write_dl(records, col_max=width)
        if "shows_all" in ctx.meta:
            with formatter.section("Keys of files and of --set"):
                formatter.write_dl([(item.name, full_help(item)) for item in keys], col_max=width)
            with formatter.section("What cannot be combined"):
                formatter.write_dl(_exclusions(), col_max=width)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the flags; an unknown one is refused with what to write instead."""
        arguments = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            wanted = error.option_name
            if advice := _replacement_of(wanted, arguments):
                raise BadInput(advice) from error
            is_passed_on = any(option.name == "train_flags" for option in self.params)
            if is_passed_on and wanted.removeprefix("--").replace("-", "_") in known_settings():
                way_out = f"write those behind --, as in `mdgan {self.name} -- {wanted} …`"
                raise BadInput(wanted, "is a flag of mdgan train", way_out) from error
            options = (p for p in self.get_params(ctx) if isinstance(p, SettingOption))
            suggestions = _flags_called(wanted, (option.item for option in options))
            if not suggestions:
                raise
            asks = f"No such option {wanted!r}. Did you mean {' or '.join(suggestions)}?"
            raise click.NoSuchOption(wanted, asks, ctx=ctx) from error
        except click.UsageError as error:
            if (unexpected := _EXTRA_ARGUMENT.fullmatch(error.message)) is None or not any(
                isinstance(p, SettingOption) and p.item.name == "dataset" for p in self.params
            ):
                raise
            is_path = "/" in unexpected[1] or Path(unexpected[1]).exists()
            flags = f"{flag('dataset', 'folder' if is_path else unexpected[1])}"
            flags += f" {flag('data_dir', unexpected[1])}" if is_path else ""
            raise BadInput(unexpected[1], "data are named by flags", f"write {flags}") from error


def _flags_called(wanted: str, items: Iterable[Setting]) -> list[str]:
    """The flags of settings that other programs call `wanted`."""
    return [flag(item.name) for item in items if wanted in item.other_names]


def _replacement_of(flag_text: str, arguments: Sequence[str]) -> str | None:
    """Says what to write instead of a flag that was removed; None if it never existed."""
    value = None
    for text, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        if text.startswith(flag_text + "="):
            value = text.partition("=")[2]
        elif text == flag_text and not following.startswith("--"):
            value = following
    name = flag_text.removeprefix("--").replace("-", "_")
    item = known_settings().get(name)
    if item is not None and not item.has_flag:
        shown = "true" if item.kind.type is bool else value or "VALUE"
        return f"{flag_text}: has no flag of its own; write --set {name}={shown}"
    return retired.answer(name, value)


def _show_all(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        context.meta["shows_all"] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all flags, keys, and what cannot be combined.",
)


def _exclusions() -> list[tuple[str, str]]:
    """Lists which flags need or exclude others: the relation, then the flags that have it."""
    subjects_by_relation: dict[str, dict[str, None]] = {}
    kinds: list[type[Settings]] = [registry.algorithm(name).settings for name in registry.names()]
    kinds.append(LaunchSettings)
    for kind in kinds:
        for row, component in kind.rows():
            what, when = row.columns(component)
            if what.startswith("no "):
                what, when = when, what
            lacks = when.startswith("no ")
            relation = f"needs {when.removeprefix('no ')}" if lacks else f"not with {when}"
            if what and when:
                subjects_by_relation.setdefault(relation, {})[what] = None
    return [(relation, ", ".join(subjects)) for relation, subjects in subjects_by_relation.items()]


def _brief_help(item: Setting) -> str:
    """A setting's help in a line or two: the first sentence, and the default."""
    if item.name == "algorithm":
        return f"What trains: {', '.join(registry.names())}.  [{registry.DEFAULT}]"
    first = re.split(r"(?<=[^.])[.;] ", item.help + " ")[0]
    if len(first) > _MOST_BRIEF:
        clause = first.rpartition(": ")[0]
        first = clause if len(clause) > _LEAST_BRIEF else first[:_MOST_BRIEF].rpartition(", ")[0]
    default = item.default_text or item.default
    shown = default is not None and default is not False and not str(default).startswith("see ")
    is_short = shown and len(str(default)) <= _MOST_DEFAULT
    return f"{first}.  [{default}]" if is_short else f"{first}."


def full_help(item: Setting) -> str:
    """A setting's whole help, with its algorithms, its symbol in the papers, and its default."""
    if item.name == "algorithm":
        descriptions = [f"{name}: {registry.algorithm(name).about}" for name in registry.names()]
        return f"What trains. {'; '.join(descriptions)}.  [default: {registry.DEFAULT}]"
    algorithms = registry.with_setting(item.name)
    notes = [", ".join(algorithms)] if 0 < len(algorithms) < len(registry.names()) else []
    notes += [f"paper: {item.symbol}"] if item.symbol else []
    default = item.default_text or item.default
    if default is not None and default is not False:
        values = {name: registry.algorithm(name).defaults.get(item.name) for name in algorithms}
        exceptions = "".join(f"; {name}: {v}" for name, v in values.items() if v is not None)
        notes.append(f"default: {default}{exceptions}")
    choices = item.kind.choices if item.metavar or not item.has_flag else ()
    one_of = f" One of {', '.join(choices)}." if choices else ""
    return f"{item.help}{one_of}" + (f"  [{'; '.join(notes)}]" if notes else "")


class Commands(Command, click.Group):
    """A group that lists its commands in the order in which they were added, with examples."""

    command_class = Command

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the flags, then what each command does, and its first example below."""
        super().format_options(ctx, formatter)
        with formatter.section("Commands, in the order of use"):
            width = max(map(len, self.commands))
            for name, command in self.commands.items():
                formatter.write_dl([(f"{name:{width}}", command.get_short_help_str(1000))])
                if isinstance(command, Command) and command.examples:
                    formatter.write(f"  {'':{width}}  $ {command.examples[0]}\n")
