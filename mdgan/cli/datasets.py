"""`mdgan datasets`: lists dataset files, and draws how samples would be divided."""

from pathlib import Path

import click

from mdgan.cli.options import output_option

_DATASETS_DIR = click.option(
    "--datasets-dir", metavar="DIR", help="Folder with your own dataset files, looked at first."
)


@click.group(invoke_without_command=True)
@_DATASETS_DIR
@click.pass_context
def datasets(context: click.Context, datasets_dir: str | None) -> None:
    """List the dataset files found, with shape and size of both models."""
    if context.invoked_subcommand is None:
        from mdgan.inspect.datasets import list_datasets

        print(list_datasets(datasets_dir))


@datasets.command()
@click.argument("name")
@_DATASETS_DIR
@click.option("--data-dir", metavar="DIR", help="Folder that holds the data.  [default: data/NAME]")
@click.option(
    "--partition", default="iid", show_default=True, metavar="SCHEME", help="How to divide."
)
@click.option(
    "--workers", type=click.IntRange(1), default=4, show_default=True, help="Number of workers N."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the scheme.")
@output_option("Picture to write, .png or .svg.  [default: NAME-partition.png]")
def show(
    name: str,
    datasets_dir: str | None,
    data_dir: str | None,
    partition: str,
    workers: int,
    seed: int,
    output: Path | None,
) -> None:
    """Draw which worker would hold how many samples of each class of data set NAME."""
    from mdgan.inspect.datasets import draw_partition

    output = output or Path(f"{name}-partition.png")
    draw_partition(name, datasets_dir, data_dir, partition, workers, seed, output)
    print(f"{output}: {name} divided {partition} over {workers} workers")
