"""`mdgan schema`: drafts, merges, shows and checks the schema of a consortium's tables."""

import logging
from pathlib import Path

import click

from mdgan.cli.help import Commands
from mdgan.cli.options import PATH, output_option
from mdgan.errors import BadInput, printable
from mdgan.storage.whole_file import write_output

_log = logging.getLogger(__name__)


class _SchemaCommands(Commands):
    """Lets `mdgan schema FILE` stand for `mdgan schema draft FILE`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command; an existing file that is no command stands for `draft FILE`."""
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
    """Draft, merge and check the schema of tables, on which all sites agree before they train.

    One site drafts it from its own rows, which stay where they are; all others check theirs.
    """


@schema.command(examples=("mdgan schema draft site-1.csv -o study.json",))
@_file
@output_option("Where to write.  [default: study.json]")
@click.option("--no-header", is_flag=True, help="The first line has values, and no names.")
def draft(file: Path, output: Path | None, no_header: bool) -> None:
    """Draft a schema from FILE, a CSV or Parquet file or a folder of them.

    Lists the columns that it leaves out, since they look like names, keys or free text, and what
    the draft reveals of single rows. Read and correct it before you give it to others.
    """
    _log.info("reading %s …", file, extra={"shown": "doing"})
    from mdgan.inspect.rule_drafts import rules_in_words, with_rules
    from mdgan.inspect.schema_draft import draft_schema
    from mdgan.samples.table.schema import schema_text

    output = output or Path("study.json")
    _check_new(output)
    drafted = draft_schema(file, no_header=no_header)
    ruled = with_rules(file, drafted.schema)
    _write_new(output, schema_text(ruled))
    print(f"{output}: {len(ruled.columns)} columns, from {drafted.num_rows:,} rows")
    for heading, lines in (
        ('not read, by "ignore"; add by hand what you need of them:', drafted.left_out),
        ("look at these before others see the schema:", drafted.warnings),
        ("rules that all rows keep; take out those of chance:", rules_in_words(ruled)),
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
@click.option("--map", "map_file", type=PATH, metavar="MAP", help="The map of the FILEs.")
@click.pass_context
def check(
    context: click.Context,
    schema_file: Path,
    files: tuple[Path, ...],
    target: str | None,
    map_file: Path | None,
) -> None:
    """List the rows of each FILE that do not fit SCHEMA, by column; exit status 1 if there are any.

    A FILE may also be a folder of files. With --map, shows values before and after the map.
    """
    from mdgan.inspect.schemas import check_rows, misfits_in_words

    fits = True
    for file in files:
        _log.info("reading %s …", file, extra={"shown": "doing"})
        misfits = check_rows(schema_file, file, target, map_file)
        fits &= not misfits.by_column
        _log.info("%s", misfits_in_words(file, misfits), extra={"shown": "result"})
    context.exit(0 if fits else 1)


@schema.command(examples=("mdgan schema show study.json",))
@_schema_file
@click.option("--all", "show_all", is_flag=True, help="Show all, even beyond a screen.")
def show(schema_file: Path, show_all: bool) -> None:
    """Show the columns of SCHEMA, and its hash, which must be the same at all sites."""
    from mdgan.inspect.schemas import schema_in_words

    print(schema_in_words(schema_file, show_all=show_all))


@schema.command(examples=("mdgan schema merge a.json b.json -o study.json",))
@click.argument("files", metavar="SCHEMA...", nargs=-1, required=True, type=PATH)
@output_option("Where to write.  [default: study.json]")
def merge(files: tuple[Path, ...], output: Path | None) -> None:
    """Merge the schemas that several sites have drafted, and list their differences."""
    from mdgan.inspect.schema_merge import merge_schemas
    from mdgan.samples.table.schema import schema_text

    merged, remarks = merge_schemas(files)
    written = _write_new(output or Path("study.json"), schema_text(merged))
    print(
        "\n".join([f"{written}: {len(merged.columns)} columns", *(f"  {line}" for line in remarks)])
    )


@schema.command("map", examples=("mdgan schema map study.json site-2.csv -o site-map.json",))
@_schema_file
@_file
@output_option("Where to write.  [default: site-map.json]")
def draft_map(schema_file: Path, file: Path, output: Path | None) -> None:
    """Draft a map from the names, spellings and units of FILE to those of SCHEMA.

    It puts doubtful entries under "unsure"; move each of them to "columns", or remove it.
    The map stays at the site: pass it by --map to mdgan train, mdgan join and mdgan schema check.
    """
    _log.info("reading %s …", file, extra={"shown": "doing"})
    from mdgan.inspect.map_draft import draft_map as draft_site_map
    from mdgan.samples.table.site_map import map_text

    site_map = draft_site_map(schema_file, file)
    written = _write_new(output or Path("site-map.json"), map_text(site_map))
    print(f"{written}: {len(site_map.columns)} columns are mapped, {len(site_map.unsure)} unsure")
    for name, column in site_map.unsure.items():
        print(f"  {printable(name, 40)}: {printable(column.why, 500)}")


def _check_new(output: Path) -> None:
    if output.exists():
        raise BadInput(f"-o {output}", "is there already", "remove it, or name another file")


def _write_new(output: Path, text: str) -> Path:
    _check_new(output)
    write_output(output, text.encode())
    return output
