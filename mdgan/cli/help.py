"""How `--help` looks: flags in groups, examples, and commands in the order of use."""

from collections.abc import Sequence
from typing import Any

import click

from mdgan.settings.declare import GROUPS

_MOST_INDENTED = 60
"""Columns of a terminal on which long flags push what is said of them to the right."""


class SettingOption(click.Option):
    """The flag of a setting.

    Args:
        group: where `--help` lists it, one of `GROUPS`.
        other_names: that users of other programs may type.
        declared: what click knows of.
    """

    def __init__(
        self, *declared: Any, group: str, other_names: Sequence[str] = (), **more: Any
    ) -> None:
        super().__init__(*declared, **more)
        self.group = group
        self.other_names = other_names


class Command(click.Command):
    """A command with examples in its help, and with the flags of settings in groups.

    Args:
        examples: command lines, the most usual first; the list of all commands shows that one.
        declared: what click knows of.
    """

    def __init__(self, *declared: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*declared, **more)
        self.examples = examples

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes what the command does, and the examples."""
        super().format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the flags group by group; last come those that are no settings."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        others: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                group = groups[parameter.group] if isinstance(parameter, SettingOption) else others
                group.append(record)
        named = [(GROUPS[name], records) for name, records in groups.items() if records]
        for heading, records in (*named, ("Other options" if named else "Options", others)):
            with formatter.section(heading):
                formatter.write_dl(records, col_max=30 if formatter.width > _MOST_INDENTED else 22)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the flags; for one that does not exist it suggests what may have been meant."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            meant = [
                option.opts[0]
                for option in self.get_params(ctx)
                if isinstance(option, SettingOption) and error.option_name in option.other_names
            ]
            if not meant:
                raise
            asks = f"No such option {error.option_name!r}. Did you mean {' or '.join(meant)}?"
            raise click.NoSuchOption(error.option_name, asks, ctx=ctx) from error


class Commands(Command, click.Group):
    """Commands in the order in which they were added, each with an example."""

    command_class = Command

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the flags, then the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes what each command does, and its first example below."""
        with formatter.section("Commands, in the order of use"):
            width = max(map(len, self.commands))
            for name in self.list_commands(ctx):
                command = self.commands[name]
                whole_sentence = command.get_short_help_str(1000)
                formatter.write_dl([(f"{name:{width}}", whole_sentence)])
                if isinstance(command, Command) and command.examples:
                    formatter.write(f"  {'':{width}}  $ {command.examples[0]}\n")
