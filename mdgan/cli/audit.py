"""`mdgan audit`: attacks a finished run as an insider could."""

from pathlib import Path

import click

from mdgan.cli.help import Command
from mdgan.cli.options import prepare_environment, run_argument


@click.command(cls=Command, examples=("mdgan audit runs/first",))
@run_argument
@click.option(
    "-n",
    "num_samples",
    type=click.IntRange(100),
    default=10_000,
    help="Samples to draw from the generator.",
)
@click.option(
    "--steps",
    type=click.IntRange(0),
    default=400,
    help="Of the search for images that explain a single answer; 0 leaves that out.",
)
@click.option("--seed", type=click.IntRange(0), help="Of all draws.  [default: the run's]")
@click.option("--data-dir", metavar="DIR", help="What workers trained on.  [default: the run's]")
@click.option("--held-out", metavar="DIR", help="Real samples that no worker trained on.")
@click.option("--json", "as_json", is_flag=True, help="Print the record instead of tables.")
def audit(
    run: Path, num_samples: int, steps: int, seed: int | None, as_json: bool, **changes: str | None
) -> None:
    """Attack RUN, the --out folder of a finished run, as an insider could, and say how far it led.

    Who was trained on, by the discriminators in RUN's newest checkpoint and by the generator? Does
    the generator copy? What does a single update or feedback tell of its batch? And of a run with
    --audit-canaries, how large is its epsilon at least? Needs, on this machine, the samples that
    workers trained on and some that they did not. RUN gets audit.json, pictures, and a section in
    its report.
    """
    prepare_environment(many_processes=True)
    from msgspec import json, to_builtins

    from mdgan.audit.run import audit_run
    from mdgan.audit.words import audit_in_words

    given = {name: value for name, value in changes.items() if value is not None}
    found = audit_run(run, num_samples, seed, steps, given)
    record = json.format(json.encode(to_builtins(found)), indent=2).decode()
    print(record if as_json else audit_in_words(found))
