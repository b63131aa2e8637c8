"""`mdgan job` writes a study as a job of NVFlare; `mdgan approve` records a site's consent."""

from pathlib import Path

import click

from mdgan.cli.help import Command, Commands
from mdgan.cli.options import PATH, output_option

_study = click.argument("study", metavar="STUDY.json", type=PATH)


@click.group(cls=Commands, examples=("mdgan job nvflare study.json -o job",))
def job() -> None:
    """Write a run as a job of an engine that carries studies of many sites."""


@job.command(cls=Command, examples=("mdgan job nvflare study.json -o job",))
@_study
@output_option("The folder to write.  [default: STUDY-job]")
def nvflare(study: Path, output: Path | None) -> None:
    """Write the folder that `nvflare job submit` takes, and print the hash that sites approve.

    STUDY.json is a file as for `mdgan train --config`, without settings of machines, which have
    their own files. If you submit the same folder again, a stopped run goes on.
    """
    from mdgan.nvflare.study import Study

    parsed = Study.read(study)
    output = output or study.with_name(f"{study.stem}-job")
    parsed.write_job(output, study.stem)
    print(f"{output}: `nvflare job submit -j {output}` runs it\n{parsed.digest}")


@click.command(cls=Command, examples=("mdgan approve study.json --site mdgan.json",))
@_study
@click.option(
    "--site", type=PATH, metavar="FILE", help="The file of this site, to record the consent in."
)
def approve(study: Path, site: Path | None) -> None:
    """Show what STUDY.json asks of a site; with --site, let that site take part from now on."""
    from mdgan.launch.site_file import SiteFile
    from mdgan.nvflare.study import Study

    parsed = Study.read(study)
    print("\n".join(parsed.in_words()))
    if site is not None:
        SiteFile.read(site).approve(parsed.digest)
        print(f"{site}: this site takes part in it")
