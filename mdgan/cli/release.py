"""`mdgan release` writes a bundle of a run; `mdgan verify` checks a bundle of other people."""

import logging
from pathlib import Path
from typing import Any

import click

from mdgan.cli.help import Command
from mdgan.cli.options import PATH, number, output_option, prepare_environment, run_argument
from mdgan.errors import printable

_log = logging.getLogger(__name__)
_MOST_CHARACTERS = 1000


@click.command(
    cls=Command,
    examples=(
        "mdgan release runs/first -o bundle --dry-run",
        "mdgan release runs/first --policy policy.toml",
        "mdgan release runs/first --credentials server.cred",
    ),
)
@run_argument
@output_option("The folder to write.  [default: RUN-bundle]")
@number(
    "--samples",
    least=0,
    default=10_000,
    metavar="N",
    help="Synthetic samples in the bundle; 0 leaves them out.",
)
@click.option("--no-generator", is_flag=True, help="Leave the generator out.")
@click.option("--policy", type=PATH, metavar="FILE", help="Rules to apply.  [default: mdgan's]")
@click.option("--purpose", metavar="TEXT", help="A sentence for the card of the bundle.")
@click.option(
    "--credentials", metavar="FILE", help="What the server signs with.  [default: the run's]"
)
@click.option(
    "--revoked", metavar="FILE", help="The list of revoked certificates.  [default: the run's]"
)
@click.option("--data-dir", metavar="DIR", help="Real data for the audit.  [default: the run's]")
@click.option("--held-out", metavar="DIR", help="Real samples that no worker trained on.")
@click.option("--dry-run", is_flag=True, help="Say what the policy says, and write no bundle.")
def release(
    run: Path,
    output: Path | None,
    samples: int,
    no_generator: bool,
    policy: Path | None,
    purpose: str | None,
    credentials: str | None,
    revoked: str | None,
    dry_run: bool,
    **changes: str | None,
) -> int:
    """Write a bundle of RUN that strangers can check, if a policy allows it.

    The bundle holds the generator and synthetic samples, with facts about them and signatures.
    mdgan puts no real sample into it. Exit status 1, and no bundle, if the run breaks a rule of the
    policy. Runs `mdgan audit` first if RUN has no audit. `mdgan verify` checks a bundle.
    """
    prepare_environment(many_processes=True)
    from mdgan.release.bundle import Wanted, links_of, release_run

    files = {name: value for name, value in changes.items() if value is not None}
    wanted = Wanted(samples, not no_generator, policy=policy, purpose=purpose or "", changes=files)
    output = output or run.with_name(f"{run.name}-bundle")
    links = links_of(run, credentials, revoked)
    released = release_run(run, output, wanted, links=links, dry_run=dry_run)
    for note in released.notes:
        _log.warning("note: %s", note)
    for ranks, signature in released.evidence.signers():
        print(printable(f"{ranks}: {signature}", _MOST_CHARACTERS))
    for verdict in released.verdicts:
        print(f"{'ok' if verdict.met else 'NO':3}{verdict.why}")
    if released.path is not None:
        print(f"{released.path}: written; `{released.verify}` checks it")
    elif not released.is_fit:
        print(f"{run}: is not released: the policy is not met")
    return 0 if released.is_fit else 1


@click.command(cls=Command, examples=("mdgan verify bundle --authority ca.pem",))
@click.argument("bundle", type=PATH, metavar="BUNDLE")
@click.option(
    "--authority", type=PATH, metavar="FILE", help="The certificate of the authority you trust."
)
@click.option(
    "--revoked", type=PATH, metavar="FILE", help="A newer list of its revoked certificates."
)
@click.option("--policy", type=PATH, metavar="FILE", help="Your own rules.  [default: mdgan's]")
@click.option(
    "--datasets-dir", metavar="DIR", help="Dataset files that you have, and trust, from elsewhere."
)
@click.option(
    "--unsigned", is_flag=True, help="Trust the server if no host has signed which generator it is."
)
def verify(bundle: Path, **trust: Any) -> int:
    """Check BUNDLE, a folder of `mdgan release`, without any network.

    Checks every signature, revocations, and what hosts have signed about privacy. Makes every other
    file again from the generator, and compares. Applies your policy. Prints a line for each check,
    and runs nothing of the bundle. Exit status 1 if a check fails.
    """
    prepare_environment(many_processes=True)
    from mdgan.release.verify import Trust, verify_bundle

    findings = verify_bundle(bundle, Trust(**trust))
    for finding in findings:
        print(f"{'ok' if finding.holds else 'NO':3}{printable(finding.line, _MOST_CHARACTERS)}")
    return 0 if all(finding.holds for finding in findings) else 1
