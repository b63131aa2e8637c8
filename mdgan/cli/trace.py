"""`mdgan trace`: writes a run's timeline."""

import sys
from pathlib import Path

import click

from mdgan.cli.options import output_option


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
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
