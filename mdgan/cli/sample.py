"""`mdgan sample`: draws pictures from a run's generator."""

from pathlib import Path

import click

from mdgan.cli.options import output_option


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "-n", "num_samples", type=click.IntRange(1), default=64, show_default=True, help="How many."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Of the noise that the pictures are made of.",
)
@click.option("--npz", is_flag=True, help="Write the raw array `images`, float32 [n, C, H, W].")
@output_option("Where to write.  [default: grid.png, or samples.npz with --npz]")
def sample(run: Path, num_samples: int, seed: int, npz: bool, output: Path | None) -> None:
    """Draw pictures from the generator of RUN, the --out folder of a finished or running run."""
    from mdgan.inspect.sample import sample_run

    output = output or Path("samples.npz" if npz else "grid.png")
    iteration = sample_run(run, num_samples, seed, output, as_npz=npz)
    print(f"{output}: {num_samples} samples of the generator after iteration {iteration}")
