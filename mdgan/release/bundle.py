"""Decides by a policy whether a run may be released, and writes its bundle (`mdgan release`)."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from mdgan import spelling
from mdgan.audit.run import audit_run
from mdgan.audit.target import NotHeldOut
from mdgan.errors import BadInput, reason_of, writing
from mdgan.inspect.trained import TrainedRun, load_trained
from mdgan.launch.settings import LaunchSettings, LinkSettings, read_identity, without_other_guards
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.release_figures import figures_of, measured
from mdgan.records.release_policy import RuleVerdict, decide, policy_text
from mdgan.records.run_directory import RunDirectory
from mdgan.release.contents import POLICY_FILE, described, made_files
from mdgan.release.evidence import EVIDENCE_FILE, RunEvidence, evidence_of
from mdgan.release.signing import REVOKED_FILE, document, seal
from mdgan.release.source import source_of_run
from mdgan.settings.machine import path_of
from mdgan.storage.whole_file import write_whole

_AUDITED_SAMPLES = 10_000
_UNAUDITED = "the generator was not audited"


@dataclass(frozen=True)
class Wanted:
    """What the user wants in a bundle."""

    num_samples: int = 10_000  # synthetic samples; 0 for none
    has_generator: bool = True  # whether the bundle has the generator
    policy: Path | None = None  # a file of rules; None for the default
    purpose: str = ""  # what the samples are for, in a sentence
    # Folders with real data, for the audit; see `audit_run`.
    changes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Released:
    """The result of `release_run`; `path` is None if a rule is not met, or in a dry run."""

    evidence: RunEvidence
    verdicts: Sequence[RuleVerdict]
    notes: Sequence[str]
    path: Path | None = None
    verify: str = ""  # the command that checks the bundle

    @property
    def is_fit(self) -> bool:
        """Whether every rule is met."""
        return all(verdict.met for verdict in self.verdicts)


def links_of(run: Path, credentials: str | None, revoked: str | None) -> LinkSettings:
    """The links of a run's server, with files that the user names instead of the run's own."""
    files = {"credentials": credentials, "revoked": revoked}
    changes = {name: value for name, value in files.items() if value is not None}
    settings = without_other_guards(changes, RunDirectory.open(run).read_config())
    return LaunchSettings.read({**settings, **changes}).links


def release_run(
    path: Path, output: Path, wanted: Wanted, links: LinkSettings, *, dry_run: bool = False
) -> Released:
    """Decides whether a run may be released, and writes the bundle if it may.

    Args:
        output: a folder that does not exist yet.
        links: names the server's certificate and the list of revoked ones.

    Raises:
        BadInput: the run is not over, the policy cannot be read, or the folder cannot be written.
    """
    if output.exists():
        raise BadInput(spelling.output(output), "is there already", "name a new folder")
    if not (wanted.num_samples or wanted.has_generator):
        why = "without the generator nothing is left to release"
        raise BadInput(spelling.flag("samples", 0), why)
    policy = policy_text(wanted.policy)
    own = read_identity(links)
    identity = None if own is None else own()
    trained = load_trained(path)
    remarks = _audit(path, trained, wanted.changes)
    recorded = RecordedRun.read(path)
    notes = [_UNAUDITED] if remarks else []
    if identity is None:
        notes.append("the run has no certificates, so no host signs the bundle")
    evidence = evidence_of(
        trained, recorded, wanted.num_samples, purpose=wanted.purpose, notes=notes
    )
    figures = evidence.figures
    rules = evidence.rules(policy, str(wanted.policy or "the default policy"))
    if home := {n: figure for n, figure in measured(recorded).items() if n not in figures}:
        remarks.append(f"{', '.join(sorted(home))}: looked at here, and not told in the bundle")
        figures = {**home, **figures}
    verdicts = decide(rules, figures)
    remarks += [note for note in notes if note != _UNAUDITED]
    released = Released(evidence, verdicts, remarks)
    if dry_run or not released.is_fit:
        return released
    files, missing = _contents(trained, evidence, wanted, policy=policy)
    if links.revoked is not None and identity is not None:
        files[REVOKED_FILE] = path_of(links.revoked).read_bytes()
    _write(output, {**files, **seal(files, identity)})
    is_signed = identity is not None or any(each.signature for each in evidence.attestations)
    has_word_of_hosts = wanted.has_generator and figures["signed_by"]
    flags = " --authority FILE" * is_signed + " --unsigned" * (not has_word_of_hosts)
    verify = f"mdgan verify {output}{flags}"
    return Released(evidence, verdicts, [*remarks, *missing], path=output, verify=verify)


def _audit(path: Path, trained: TrainedRun, changes: Mapping[str, str]) -> list[str]:
    """Attacks the generator, unless an audit exists; returns a line if it cannot be attacked."""
    recorded = RecordedRun.read(path)
    if recorded.under_way:
        raise BadInput(path, "is not over", "release it when training has ended")
    known = recorded.audit
    is_of_now = known is not None and known.iteration == trained.iteration and known.compared
    # Audits of older versions lack the share of copies.
    if is_of_now and not changes and "copied_share" in figures_of(recorded, ()):
        return []
    try:
        audit_run(path, _AUDITED_SAMPLES, None, steps=0, changes=changes)
    except NotHeldOut:  # an audit with such samples would mislead
        raise
    except BadInput as error:
        return [f"not audited: {reason_of(error)}"]
    return []


def _contents(
    trained: TrainedRun, evidence: RunEvidence, wanted: Wanted, policy: str
) -> tuple[dict[str, bytes], list[str]]:
    source = source_of_run(trained, evidence)
    files, missing = made_files(source, has_generator=wanted.has_generator)
    evidence = msgspec.structs.replace(evidence, notes=[*evidence.notes, *missing])
    files |= described(replace(source, evidence=evidence), policy, files)
    files[POLICY_FILE], files[EVIDENCE_FILE] = policy.encode(), document(evidence)
    return files, missing


def _write(output: Path, files: Mapping[str, bytes]) -> None:
    """Writes all files or none: the folder gets its name when it is complete."""
    with writing(spelling.output(output)):
        output.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
        try:
            for name, data in files.items():
                write_whole(draft / name, data)
            draft.chmod(0o755)
            draft.rename(output)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
