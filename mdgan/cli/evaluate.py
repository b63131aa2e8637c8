"""`mdgan evaluate`: scores a run's generator."""

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "-n",
    "num_samples",
    type=click.IntRange(2),
    default=10_000,
    show_default=True,
    help="Samples to generate.",
)
@click.option("--seed", type=click.IntRange(0), help="Of the noise.  [default: the run's]")
@click.option(
    "--extractor",
    metavar="NAME|FILE",
    help="Network whose features are scored: classifier, inception, or your own TorchScript file "
    "or FILE.py:MODULE.  [default: the run's]",
)
@click.option("--inception-weights", metavar="FILE", help="Weights for --extractor inception.")
@click.option("--data-dir", metavar="DIR", help="Real data to compare with.  [default: the run's]")
@click.option("--held-out", metavar="DIR", help="Real samples for KID, precision and recall.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda", "mps", "auto"]), help="Where to compute."
)
@click.option("--json", "as_json", is_flag=True, help="Print the record instead of a table.")
def evaluate(
    run: Path, num_samples: int, seed: int | None, as_json: bool, **changes: str | None
) -> None:
    """Score the generator of RUN: FID, KID, precision and recall, classes covered.

    Uses the network and the sums over real features that training left in RUN, so that it needs no
    real data; the scores are added to RUN's metrics.
    """
    import json

    from mdgan.inspect.evaluate import Question, evaluate_run, scores_in_words

    given = {name: value for name, value in changes.items() if value is not None}
    record = evaluate_run(run, Question(num_samples, seed, given))
    print(json.dumps(record, indent=2) if as_json else scores_in_words(record))
