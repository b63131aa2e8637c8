"""`mdgan schema`: the data dictionary of a consortium's tables."""

import logging
from pathlib import Path

import click

from mdgan.cli.help import Commands
from mdgan.cli.options import PATH, output_option
from mdgan.errors import BadInput

_log = logging.getLogger(__name__)


class _SchemaCommands(Commands):
    """`mdgan schema FILE` is short for `mdgan schema draft FILE`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command; the name of a file is none."""
        if args[0] not in self.commands and Path(args[0]).exists():
            args = ["draft", *args]
        return super().resolve_command(ctx, args)


_file = click.argument("file", type=PATH)
_schema_file = click.argument("schema_file", metavar="SCHEMA", type=PATH)


@click.group(
    cls=_SchemaCommands,
    examples=(
        "mdgan schema draft site-1.csv -o study.json",
        "mdgan schema check study.json site-2.csv",
    ),
)
def schema() -> None:
    """Draft, check and show the schema of tables, on which all sites agree before they train.

    One site drafts it from its own rows, which stay where they are; all others check theirs.
    """


@schema.command(examples=("mdgan schema draft site-1.csv -o study.json",))
@_file
@output_option("Where to write.  [default: study.json]")
def draft(file: Path, output: Path | None) -> None:
    """Draft a schema from FILE, a CSV or Parquet file or a folder of them.

    Says which columns it leaves out, since they look like names, keys or free text, and what the
    draft tells of single rows. Read and correct it before you give it to others.
    """
    _log.info("reading %s …", file, extra={"shown": "doing"})
    from mdgan.inspect.schema_draft import draft as draft_schema
    from mdgan.samples.table.schema import schema_text
    from mdgan.storage.whole_file import write_output

    output = output or Path("study.json")
    if output.exists():
        raise BadInput(f"-o {output}: is there already; remove it, or name another file")
    found = draft_schema(file)
    write_output("-o", output, schema_text(found.schema).encode())
    print(f"{output}: {len(found.schema.columns)} columns, from {found.num_rows:,} rows")
    for heading, lines in (
        ("left out; remove them from the files of all sites, or add them by hand:", found.left_out),
        ("look at these before others see the schema:", found.warnings),
    ):
        if lines:
            print("\n".join([heading, *(f"  {line}" for line in lines)]))


@schema.command(
    examples=(
        "mdgan schema check study.json site-2.csv",
        "mdgan schema check study.json our-rows --target outcome",
    )
)
@_schema_file
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=PATH)
@click.option("--target", metavar="COLUMN", help="A column that no row may lack.")
@click.pass_context
def check(
    context: click.Context, schema_file: Path, files: tuple[Path, ...], target: str | None
) -> None:
    """Tell which rows of each FILE do not fit SCHEMA, by column; exit status 1 if there are any.

    A FILE may be a folder of files, too.
    """
    from mdgan.inspect.schemas import check_rows, misfits_in_words

    fits = True
    for file in files:
        _log.info("reading %s …", file, extra={"shown": "doing"})
        found = check_rows(schema_file, file, target)
        fits &= not found.by_column
        _log.info("%s", misfits_in_words(file, found), extra={"shown": "result"})
    context.exit(0 if fits else 1)


@schema.command(examples=("mdgan schema show study.json",))
@_schema_file
def show(schema_file: Path) -> None:
    """Show the columns of SCHEMA, and its hash, which must be the same at all sites."""
    from mdgan.inspect.schemas import schema_in_words

    print(schema_in_words(schema_file))
