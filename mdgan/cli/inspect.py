"""Commands that show, score, draw or check a run or a data set, and train nothing."""

import json
import logging
from pathlib import Path
from typing import Any

import click

from mdgan.cli import options
from mdgan.cli.help import Command, Commands
from mdgan.families import registry
from mdgan.privacy.settings import PrivacySettings
from mdgan.spelling import count

_raw_option = click.option(
    "--raw", is_flag=True, help="Use the generator itself, though the run has averaged it (--ema)."
)


@click.command(
    cls=Command,
    examples=(
        "mdgan sample runs/first",
        "mdgan sample runs/first -n 9 --seed 7 -o nine.png",
        "mdgan sample runs/conditional --class 3",
    ),
)
@options.run_argument
@options.number(
    "-n", "num_samples", least=1, help="How many samples.  [default: 64, or 10 of each class]"
)
@options.number("--seed", least=0, default=0, help="Seed of the noise that samples are made from.")
@click.option(
    "--class",
    "label",
    metavar="N|NAME",
    help="Draw this class alone, from a conditional generator.  [default: all, a row each]",
)
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Keep only such rows of a table, also with <= or >=; may be repeated.  [default: all]",
)
@_raw_option
@options.output_option(
    "Where to write: pictures as .png or .npz (array `images`, float32 [n, C, H, W]), rows as "
    ".csv, .parquet or .npz.  [default: samples with the first of these endings]"
)
def sample(
    run: Path, num_samples: int | None, seed: int, output: Path | None, **which: Any
) -> None:
    """Draw samples from the generator of RUN, the --out folder of a finished or running run."""
    options.compile_privately()
    from mdgan.inspect.sampling import sample_run

    written, iteration, num = sample_run(run, num_samples, seed=seed, output=output, **which)
    print(f"{written}: {count(num, 'sample')} of the generator after iteration {iteration}")


@click.command(cls=Command, examples=("mdgan evaluate runs/first",))
@options.run_argument
@options.number("-n", "num_samples", least=2, default=10_000, help="Samples to generate.")
@options.number("--seed", least=0, help="Seed of the noise.  [default: the run's]")
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

    Needs no real data, since training keeps a network and sums of real features in RUN. Adds the
    scores to RUN's metrics.
    """
    options.compile_privately()
    from mdgan.inspect.evaluate import evaluate_run, scores_in_words

    changed = {name: value for name, value in changes.items() if value is not None}
    record = evaluate_run(run, num_samples, seed, changes=changed, raw=raw)
    print(json.dumps(record, indent=2) if as_json else scores_in_words(record))


@click.command(cls=Command, examples=("mdgan trace runs/first",))
@options.run_argument
@options.output_option("Where to write.  [default: RUN/trace.json]")
def trace(run: Path, output: Path | None) -> None:
    """Write the timeline of all processes and workers of RUN, the --out folder of a run.

    Open the file at https://ui.perfetto.dev, which reads it in the browser and sends it nowhere.
    """
    from mdgan.inspect.chrome_trace import write_chrome_trace

    output = output or run / "trace.json"
    num_spans, damage = write_chrome_trace(run, output)
    for line in damage:
        _log.warning("warning: %s", line)
    line = f"{output}: {num_spans:,} spans; open it at https://ui.perfetto.dev"
    _log.info("%s", line, extra={"shown": "result"})


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
    """List all dataset files, with the shape of samples and the sizes of both models."""
    if context.invoked_subcommand is None:
        from mdgan.inspect.datasets import list_datasets

        print(list_datasets(datasets_dir))


@datasets.command(examples=("mdgan datasets show mnist --partition dirichlet:0.5 --workers 10",))
@click.argument("name", shell_complete=options.dataset_names)
@_DATASETS_DIR
@click.option("--data-dir", metavar="DIR", help="Folder that holds the data.  [default: data/NAME]")
@click.option("--partition", default="iid", metavar="SCHEME", help="How to divide the data.")
@options.number("--workers", least=1, default=4, help="Number of workers N.")
@options.number("--seed", least=0, default=0, help="Seed of the scheme.")
@options.output_option("Picture to write, .png or .svg.  [default: NAME-partition.png]")
def show(name: str, partition: str, workers: int, output: Path | None, **source: Any) -> None:
    """Draw which worker would hold how many samples of each class of NAME, and some samples.

    The picture shows samples as the networks see them, with a row for each class.
    """
    options.compile_privately()
    from mdgan.inspect.datasets import draw_partition

    output = output or Path(f"{name}-partition.png")
    draw_partition(name, scheme=partition, num_workers=workers, output=output, **source)
    print(f"{output}: {name} divided {partition} over {count(workers, 'worker')}")


_log = logging.getLogger(__name__)


@click.command(
    cls=Command,
    examples=(
        "mdgan report runs/first",
        "mdgan report runs/first runs/second -o both.html",
        "mdgan report runs/first --serve 0",
    ),
)
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN...",
    type=options.PATH,
    shell_complete=options.complete_runs,
)
@options.output_option("Where to write.  [default: RUN/report.html; report.html for several runs]")
@click.option(
    "--figures",
    metavar="DIR|all[:DIR]",
    help="Also write into this folder what a paper needs: each figure as PDF and its numbers as "
    "CSV. all: each view of it, and PNG and SVG, too, into all:DIR or figures/ beside the page.",
)
@click.option(
    "--live", is_flag=True, help="Write the page again and again until the runs are over."
)
@options.seconds(
    "--every",
    least=1.0,
    default=30.0,
    help="Least time between two pages of --live; browsers read the page again as often.",
)
@options.number(
    "--serve",
    least=0,
    most=65535,
    metavar="PORT",
    help="As --live, and serve the page on this machine alone, at http://127.0.0.1:PORT/; 0 takes "
    "a free port.",
)
def report(
    runs: tuple[Path, ...],
    output: Path | None,
    figures: str | None,
    live: bool,
    every: float,
    serve: int | None,
) -> None:
    """Write a page with all figures of each RUN, the --out folder of a finished or running run.

    A folder with runs in it stands for all of them. One page compares several runs. The page is one
    file that any browser opens. Ctrl-C ends --live and --serve; both end by themselves when the
    runs are over, --serve once browsers have had time to read the last page.
    """
    subject = str(runs[0]) if len(runs) == 1 else f"{len(runs)} runs"
    _log.info("writing the report of %s …", subject, extra={"shown": "live"})
    from mdgan.report.build import write_report

    beside = output.parent if output else runs[0] if len(runs) == 1 else Path()
    folder, all_files = _figures_folder(figures, beside)
    if live or serve is not None:
        from mdgan.report.live import keep_writing

        keep_writing(
            runs,
            lambda: write_report(runs, output, folder, all_files=all_files, refresh_seconds=every),
            every,
            serve,
        )
        return
    written = write_report(runs, output, folder, all_files=all_files)
    for line in written.damage:
        _log.warning("%s", line)
    kinds = "PNG, SVG and PDF, all views" if all_files else "PDF"
    also = "" if folder is None else f"\n{folder}: charts as {kinds}, numbers as CSV"
    line = f"{written.path}: {written.num_figures} figures{also}"
    _log.info("%s", line, extra={"shown": "result"})


def _figures_folder(figures: str | None, beside: Path) -> tuple[Path | None, bool]:
    """Reads `--figures`: the folder, and whether to write every view; `beside` has the page."""
    if figures is None:
        return None, False
    word, _, folder = figures.partition(":")
    if word == "all":
        return Path(folder) if folder else beside / "figures", True
    return Path(figures), False


@click.command(cls=Command, examples=("mdgan watch runs/first", "mdgan watch runs/first --once"))
@options.run_argument
@options.seconds("--interval", least=0.1, default=1.0, help="Time between two looks at the folder.")
@click.option("--once", is_flag=True, help="Show the run as it is now, and return.")
def watch(run: Path, interval: float, once: bool) -> None:
    """Watch RUN, the --out folder of a run, here or on another machine; Ctrl-C ends watching.

    Shows how far the run is, its losses and FID, and what each worker does. If the output is no
    terminal, each change is printed as plain text.
    """
    from mdgan.observe.live_view import follow

    follow(run, interval, registry.shown(), once=once)


@click.command(cls=Command, examples=("mdgan audit runs/first",))
@options.run_argument
@options.number(
    "-n", "num_samples", least=100, default=10_000, help="Samples to draw from the generator."
)
@options.number(
    "--steps",
    least=0,
    default=400,
    help="Steps of the search for images that explain a single answer; 0 skips it.",
)
@options.number("--seed", least=0, help="Seed of all draws.  [default: the run's]")
@click.option("--data-dir", metavar="DIR", help="The workers' data.  [default: the run's]")
@click.option("--map", metavar="FILE", help="Map from the tables there to the schema.")
@click.option("--held-out", metavar="DIR", help="Real samples that no worker trained on.")
@click.option("--json", "as_json", is_flag=True, help="Print the record instead of tables.")
def audit(
    run: Path, num_samples: int, steps: int, seed: int | None, as_json: bool, **changes: str | None
) -> None:
    """Attack RUN, the --out folder of a finished run, as an insider could, and report the leaks.

    Do the discriminators in RUN's newest checkpoint, or the generator, reveal which samples they
    were trained on? Does the generator copy samples? What does a single update or feedback reveal
    of its batch? How large is epsilon at least, in a run with --audit-canaries? Needs, on this
    machine, the samples that workers trained on and some that they did not. Writes audit.json,
    pictures, and a section of the report into RUN.
    """
    options.prepare_environment(many_processes=True)
    from msgspec import json, to_builtins

    from mdgan.audit.run import audit_run
    from mdgan.audit.words import audit_in_words

    changed = {name: value for name, value in changes.items() if value is not None}
    findings = audit_run(run, num_samples, seed, steps=steps, changes=changed)
    record = json.format(json.encode(to_builtins(findings)), indent=2).decode()
    print(record if as_json else audit_in_words(findings))


@click.command(cls=Command, examples=("mdgan ledger",))
@click.option("--dp-ledger", metavar="DIR", help="Its folder.  [default: that of this user]")
def ledger(dp_ledger: str | None) -> None:
    """Show the privacy account of this machine: what samples have spent, and what is left."""
    from mdgan.inspect.accounts import account_in_words
    from mdgan.privacy.planning import ledger_folder

    settings = PrivacySettings(dp_noise=1.0, dp_delta=1e-5, dp_ledger=dp_ledger)  # for its folder
    print(account_in_words(ledger_folder(settings)))


@click.group(cls=Commands, examples=("mdgan log verify runs/first",))
def log() -> None:
    """Check the audit log of a run, which lists hosts that joined, left or were refused."""


@log.command(examples=("mdgan log verify runs/first",))
@options.run_argument
def verify(run: Path) -> int:
    """Say whether the audit log of RUN is whole: each line holds the hash of the line before.

    Exit status 0 if it is, 1 if a line does not follow from those before. A person who can write to
    RUN can forge the whole log, so compare the last hash with one that you noted elsewhere.
    """
    from mdgan.records import audit_log

    check = audit_log.verify(run)
    path = run / audit_log.AUDIT_LOG_FILE
    entries = count(check.entries, "entry", "entries")
    line = f"{path}: whole, {entries}, the last with SHA-256 {check.sha256}"
    if check.trouble:
        line = f"{path}: breaks at line {check.entries + 1}, after {entries}: {check.trouble}"
    _log.info("%s", line, extra={"shown": "result"})
    return 1 if check.trouble else 0
