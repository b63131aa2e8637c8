"""Checks a bundle offline, for a reader who trusts only an authority.

The reader's mdgan makes the files of the bundle again from its generator and its evidence. A file
passes only if every bit is equal, since even last digits could carry secrets that a server knows.
"""

import hashlib
import math
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from mdgan.errors import BadInput, printable, reason_of
from mdgan.records.release_policy import decide, default_text, policy_text, rules_in
from mdgan.records.rows import json_object
from mdgan.records.values import said
from mdgan.release import signing
from mdgan.release.contents import POLICY_FILE, PROGRAM_FILE, described, made_files
from mdgan.release.evidence import EVIDENCE_FILE, FORM, RunEvidence, kind_in_policies, versions
from mdgan.release.signing import Check, Signatures, Trust
from mdgan.release.source import GENERATOR_FILE, Source, source_of_bundle
from mdgan.storage.budget import check_decoded
from mdgan.storage.foreign_file import read_whole

__all__ = ["Check", "Trust", "verify_bundle"]

_LISTS = {signing.MANIFEST_FILE, signing.SIGNATURE_FILE}
_NOT_MADE = {*_LISTS, signing.REVOKED_FILE, EVIDENCE_FILE, POLICY_FILE}
_VALUE_BYTES = 16
"""Memory for each value of samples that are made again, with their written form."""


def verify_bundle(bundle: Path, trust: Trust) -> list[Check]:
    """Checks everything in a bundle that a reader can check; each finding is one line.

    Raises:
        BadInput: a file that the reader names cannot be read, or the bundle is signed and no
            authority is named.
    """
    if not bundle.is_dir():
        raise BadInput(bundle, "is no folder", "name the bundle of `mdgan release`")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a library's words about odd certificates
        return list(_findings(bundle, trust))


def _findings(bundle: Path, trust: Trust) -> Iterator[Check]:
    files = list(_files(bundle))
    yield from files
    if not all(check.holds for check in files):
        return
    try:
        evidence = signing.read_document(bundle / EVIDENCE_FILE, RunEvidence)
        made = datetime.fromisoformat(evidence.made).astimezone(UTC).replace(microsecond=0)
        if evidence.form != FORM:
            raise ValueError(f"form {evidence.form}")
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        why = _of_another_form(bundle) or f"makes no sense ({reason_of(error)})"
        yield Check(False, f"{EVIDENCE_FILE}: {why}")
        return
    if misfit := evidence.misfit():
        yield Check(False, f"{EVIDENCE_FILE}: mdgan writes no such {misfit}")
    signatures = Signatures(bundle, trust, evidence, made=made)
    yield from signatures.check()
    yield from signatures.check_privacy()
    if signatures.is_of_server:
        try:
            yield from _remade(bundle, trust, evidence)
        except ValueError as error:
            yield Check(False, f"no more files are made again: {reason_of(error)}")
    yield from _policy(bundle, trust, evidence, signatures=signatures)


def _of_another_form(bundle: Path) -> str:
    """Says which version of mdgan can check a bundle of another form; empty if unknown."""
    try:
        evidence = json_object(read_whole(bundle / EVIDENCE_FILE))
    except (OSError, ValueError):
        return ""
    if evidence.get("form") == FORM or not isinstance(evidence.get("versions"), dict):
        return ""
    version = printable(str(evidence["versions"].get("mdgan")), 40)
    return (
        f"is of another form than this mdgan checks; check it with mdgan {version}, which made it, "
        "or release the run again with this one"
    )


def _files(bundle: Path) -> Iterator[Check]:
    """Checks that the bundle has exactly the files of its manifest, with equal digests."""
    try:
        manifest = signing.read_document(bundle / signing.MANIFEST_FILE, signing.BundleManifest)
    except (OSError, ValueError) as error:
        yield Check(False, f"{signing.MANIFEST_FILE}: cannot be read ({reason_of(error)})")
        return
    present = {path.name for path in bundle.iterdir()} - _LISTS
    for name in sorted(present - manifest.files.keys()):
        yield Check(False, f"{printable(name, 99)}: is not in the manifest")
    damaged = 0
    for name, digest in sorted(manifest.files.items()):
        try:
            if (bundle / name).is_symlink():
                raise OSError(0, "it is a link")
            if signing.digest_of_file(bundle / name) == digest:
                continue
            why = "is not as the manifest says"
        except OSError as error:
            why = f"cannot be read ({error.strerror})"
        damaged += 1
        yield Check(False, f"{name}: {why}")
    if not damaged:
        yield Check(True, f"files: {len(manifest.files)}, each as the manifest says")


def _remade(bundle: Path, trust: Trust, evidence: RunEvidence) -> Iterator[Check]:
    """Makes the files of a bundle again and compares them, without running code of the bundle.

    Yields:
        A line for each file, or one that says why they cannot be made.
    """
    names = {path.name for path in bundle.iterdir()} - _NOT_MADE
    if GENERATOR_FILE not in names:
        line = "are the server's word, since the bundle has no generator to make them again"
        yield trust.takes_word(f"samples and cards: {line}")
        return
    try:
        source = source_of_bundle(bundle, evidence, trust.datasets_dir)
    except BadInput as error:
        yield Check(False, f"{GENERATOR_FILE}: {error}")
        return
    if (kind := kind_in_policies(source.dataset.kind)) != evidence.kind:
        yield Check(False, f"evidence: says {evidence.kind}, and these are {kind}")
        return
    values = evidence.num_samples * math.prod(source.dataset.shape)
    stored = sum((bundle / name).stat().st_size for name in names)
    check_decoded(_VALUE_BYTES * values, stored, what=f"{evidence.num_samples:,} samples")
    ours, missing = made_files(source)
    theirs = {name: read_whole(bundle / name, None) for name in sorted(names & ours.keys())}
    ours |= described(source, policy_text(bundle / POLICY_FILE), theirs)
    for name in sorted(names):
        yield _compared(source, bundle / name, ours.get(name))
    for name in sorted({GENERATOR_FILE, *source.dataset.keeps} - names):
        yield Check(False, f"{name}: is missing")
    for line in missing:
        if line.split()[1].rstrip(":") in names:
            yield Check(False, f"made again here: {line}")


def _compared(source: Source, theirs: Path, ours: bytes | None) -> Check:
    shown = printable(theirs.name, 99)
    if ours is None:
        return Check(False, f"{shown}: is none that mdgan makes here of this generator")
    if hashlib.sha256(ours).hexdigest() == signing.digest_of_file(theirs):
        return Check(True, f"{shown}: made again, every bit is the same")
    others = _other_versions(theirs.name, source.evidence.versions)
    return Check(False, f"{shown}: made again, it is another one{others}")


def _other_versions(name: str, theirs: Mapping[str, str]) -> str:
    """Names the versions that made the bundle, if they decide the file and differ from here."""
    ours = versions()
    decide = ["torch", "mdgan"] if name == PROGRAM_FILE else ["mdgan"]
    if name.startswith("samples."):
        decide = ["torch", "mdgan", "processor"]
    differing = [
        f"{name} {printable(theirs.get(name, 'of no version'), 40)} (here {ours[name]})"
        for name in decide
        if theirs.get(name) != ours[name]
    ]
    return (
        f"; it was made with {' and '.join(differing)}: make it again with that"
        if differing
        else ""
    )


def _policy(
    bundle: Path, trust: Trust, evidence: RunEvidence, signatures: Signatures
) -> Iterator[Check]:
    """The verdicts of the reader's rules, and the figures that rest on the server's word."""
    figures = {**evidence.measured, **signatures.privacy(), **signatures.figures}
    words = figures.keys() - signatures.by_hosts
    statements = [f"{n} = {said(x)}" for n, x in sorted(evidence.measured.items()) if n in words]
    statements += [f"samples: about {evidence.samples:,}"] if evidence.samples else []
    statements += [f"purpose: {evidence.purpose}"] if evidence.purpose else []
    statements += [f"notes: {'; '.join(evidence.notes)}"] if evidence.notes else []
    yield Check(True, f"the server's word: {', '.join(statements) or 'nothing else'}")
    yield from _servers_policy(bundle, evidence)
    where = str(trust.policy or "the default policy")
    rules = evidence.rules(policy_text(trust.policy), where)
    for rule, verdict in zip(rules, decide(rules, figures), strict=True):
        word = ", the server's word" if {rule.figure, rule.other} & words else ""
        yield Check(verdict.met, f"policy: {verdict.why}{word}")


def _servers_policy(bundle: Path, evidence: RunEvidence) -> Iterator[Check]:
    """The policy that the server released by decides nothing here; a reader may look at it."""
    try:
        text = policy_text(bundle / POLICY_FILE)
        if text != default_text():
            sections = [
                rules_in(text, POLICY_FILE, evidence.kind, has_dp=dp) for dp in (False, True)
            ]
            rules = {rule.text for section in sections for rule in section}
            yield Check(True, f"{POLICY_FILE}: is not mdgan's own, and has {len(rules)} rule(s)")
    except BadInput as error:
        yield Check(False, f"{POLICY_FILE}: {error}")
