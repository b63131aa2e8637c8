"""What users ask about a run or a data set: `evaluate`, `sample`, `trace`, `datasets`."""

import sys
from pathlib import Path

import click

from mdgan.cli.help import Command, Commands
from mdgan.cli.options import dataset_names, output_option, run_argument

_raw_option = click.option(
    "--raw", is_flag=True, help="The generator itself, though the run has averaged it (--ema)."
)


@click.command(
    cls=Command,
    examples=(
        "mdgan sample runs/first",
        "mdgan sample runs/first -n 9 --seed 7 -o nine.png",
        "mdgan sample runs/conditional --class 3",
    ),
)
@run_argument
@click.option(
    "-n",
    "num_samples",
    type=click.IntRange(1),
    help="How many.  [default: 64, or 10 of each class]",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, help="Of the noise that the pictures are made of."
)
@click.option(
    "--class",
    "label",
    type=int,
    metavar="N",
    help="Of a conditional generator: this class alone.  [default: all, a row each]",
)
@click.option("--npz", is_flag=True, help="Write the raw array `images`, float32 [n, C, H, W].")
@_raw_option
@output_option("Where to write.  [default: grid.png, or samples.npz with --npz]")
def sample(
    run: Path,
    num_samples: int | None,
    seed: int,
    label: int | None,
    npz: bool,
    raw: bool,
    output: Path | None,
) -> None:
    """Draw pictures from the generator of RUN, the --out folder of a finished or running run."""
    from mdgan.inspect.trained import sample_run

    output = output or Path("samples.npz" if npz else "grid.png")
    iteration, num = sample_run(run, num_samples, seed, output, as_npz=npz, raw=raw, label=label)
    print(f"{output}: {num} samples of the generator after iteration {iteration}")


@click.command(cls=Command, examples=("mdgan evaluate runs/first",))
@run_argument
@click.option(
    "-n", "num_samples", type=click.IntRange(2), default=10_000, help="Samples to generate."
)
@click.option("--seed", type=click.IntRange(0), help="Of the noise.  [default: the run's]")
@click.option(
    "--extractor",
    metavar="NAME|FILE",
    help="Network whose features are scored: classifier, inception, or your own TorchScript file "
    "or FILE.py:MODULE. Either file is a program that runs with your rights.  [default: the run's]",
)
@click.option("--inception-weights", metavar="FILE", help="Weights for --extractor inception.")
@click.option("--data-dir", metavar="DIR", help="Real data to compare with.  [default: the run's]")
@click.option("--held-out", metavar="DIR", help="Real samples for KID, precision and recall.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda", "mps", "auto"]), help="Where to compute."
)
@_raw_option
@click.option("--json", "as_json", is_flag=True, help="Print the record instead of a table.")
def evaluate(
    run: Path, num_samples: int, seed: int | None, raw: bool, as_json: bool, **changes: str | None
) -> None:
    """Score the generator of RUN: FID, KID, precision and recall, classes covered.

    Uses the network and the sums over real features that training left in RUN, so that it needs no
    real data; the scores are added to RUN's metrics.
    """
    import json

    from mdgan.inspect.evaluate import evaluate_run, scores_in_words

    given = {name: value for name, value in changes.items() if value is not None}
    record = evaluate_run(run, num_samples, seed, given, raw=raw)
    print(json.dumps(record, indent=2) if as_json else scores_in_words(record))


@click.command(cls=Command, examples=("mdgan trace runs/first",))
@run_argument
@output_option("Where to write.  [default: RUN/trace.json]")
def trace(run: Path, output: Path | None) -> None:
    """Write what each process and worker did when in RUN, the --out folder of a run.

    The file opens at https://ui.perfetto.dev, which reads it in the browser and sends it nowhere.
    """
    from mdgan.inspect.chrome_trace import write_chrome_trace

    output = output or run / "trace.json"
    num_spans, damage = write_chrome_trace(run, output)
    for line in damage:
        print(f"mdgan: warning: {line}", file=sys.stderr)
    print(f"{output}: {num_spans:,} spans; open it at https://ui.perfetto.dev")


_DATASETS_DIR = click.option(
    "--datasets-dir", metavar="DIR", help="Folder with your own dataset files, looked at first."
)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    examples=("mdgan datasets", "mdgan datasets --datasets-dir my_datasets"),
)
@_DATASETS_DIR
@click.pass_context
def datasets(context: click.Context, datasets_dir: str | None) -> None:
    """List the dataset files found, with shape and size of both models."""
    if context.invoked_subcommand is None:
        from mdgan.inspect.datasets import list_datasets

        print(list_datasets(datasets_dir))


@datasets.command(examples=("mdgan datasets show mnist --partition dirichlet:0.5 --workers 10",))
@click.argument("name", shell_complete=dataset_names)
@_DATASETS_DIR
@click.option("--data-dir", metavar="DIR", help="Folder that holds the data.  [default: data/NAME]")
@click.option("--partition", default="iid", metavar="SCHEME", help="How to divide.")
@click.option("--workers", type=click.IntRange(1), default=4, help="Number of workers N.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Of the scheme.")
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
