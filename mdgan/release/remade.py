"""Whether the files of a bundle are what its generator and its evidence give: all are made again.

A file holds only if every bit is the same: last digits could carry what a server knows.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from mdgan.errors import BadInput, printable
from mdgan.records.release_policy import policy_text
from mdgan.release.contents import POLICY_FILE, described, made_files
from mdgan.release.evidence import EVIDENCE_FILE, RunEvidence, kind_in_policies, versions
from mdgan.release.exported import PROGRAM_FILE
from mdgan.release.signed import Check, Trust
from mdgan.release.signing import MANIFEST_FILE, REVOKED_FILE, SIGNATURE_FILE, digest_of_file
from mdgan.release.source import GENERATOR_FILE, Source, source_of_bundle
from mdgan.storage.budget import check_decoded
from mdgan.storage.foreign_file import read_whole

_NOT_MADE = {MANIFEST_FILE, SIGNATURE_FILE, REVOKED_FILE, EVIDENCE_FILE, POLICY_FILE}
_VALUE_BYTES = 16
"""Of samples that are made again: as the generator gives them, and as they are written."""


def remade(bundle: Path, trust: Trust, evidence: RunEvidence) -> Iterator[Check]:
    """Makes the files of a bundle again and compares; nothing in the bundle is run.

    Yields:
        A line for each file, or one for what keeps all of them from being made.
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
    given = {name: read_whole(bundle / name, None) for name in sorted(names & ours.keys())}
    ours |= described(source, policy_text(bundle / POLICY_FILE), given)
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
    if hashlib.sha256(ours).hexdigest() == digest_of_file(theirs):
        return Check(True, f"{shown}: made again, every bit is the same")
    others = _other_versions(theirs.name, source.evidence.versions)
    return Check(False, f"{shown}: made again, it is another one{others}")


def _other_versions(name: str, there: Mapping[str, str]) -> str:
    """With what to make it again, if the bundle was made with something else."""
    here = versions()
    decide = ["torch", "mdgan"] if name == PROGRAM_FILE else ["mdgan"]
    if name.startswith("samples."):
        decide = ["torch", "mdgan", "processor"]
    differing = [
        f"{each} {printable(there.get(each, 'of no version'), 40)} (here {here[each]})"
        for each in decide
        if there.get(each) != here[each]
    ]
    return (
        f"; it was made with {' and '.join(differing)}: make it again with that"
        if differing
        else ""
    )
