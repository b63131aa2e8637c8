"""Whether the files of a bundle are what its generator and its evidence give: all are made again.

Where only the last digits differ, as another processor rounds them, a file holds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mdgan.errors import BadInput, printable
from mdgan.records.release_policy import policy_text
from mdgan.release.close import is_close
from mdgan.release.contents import POLICY_FILE, described, made_files
from mdgan.release.evidence import EVIDENCE_FILE, RunEvidence, kind_in_policies, versions
from mdgan.release.exported import PROGRAM_FILE
from mdgan.release.signed import Check, Trust
from mdgan.release.signing import MANIFEST_FILE, REVOKED_FILE, SIGNATURE_FILE
from mdgan.release.source import GENERATOR_FILE, Source, source_of_bundle

_NOT_MADE = {MANIFEST_FILE, SIGNATURE_FILE, REVOKED_FILE, EVIDENCE_FILE, POLICY_FILE}


@dataclass(frozen=True)
class Remaking:
    """Makes the files of a bundle again and compares; nothing in the bundle is run."""

    bundle: Path
    trust: Trust
    evidence: RunEvidence

    def check(self) -> Iterator[Check]:
        """A line for each file, or one for what keeps all of them from being made."""
        names = {path.name for path in self.bundle.iterdir()} - _NOT_MADE
        if GENERATOR_FILE not in names:
            way_out = "" if self.trust.unsigned else "; --unsigned accepts that"
            line = "are the server's word, since the bundle has no generator to make them again"
            yield Check(self.trust.unsigned, f"samples and cards: {line}{way_out}")
            return
        try:
            source = source_of_bundle(self.bundle, self.evidence, self.trust.datasets_dir)
        except BadInput as error:
            yield Check(False, f"{GENERATOR_FILE}: {error}")
            return
        if (kind := kind_in_policies(source.kind)) != self.evidence.kind:
            yield Check(False, f"evidence: says {self.evidence.kind}, and these are {kind}")
            return
        theirs = {name: (self.bundle / name).read_bytes() for name in sorted(names)}
        ours, missing = made_files(source, self.evidence.num_samples)
        given = {name: data for name, data in theirs.items() if name in ours}
        policy = policy_text(self.bundle / POLICY_FILE)
        ours |= described(source, self.evidence, policy, given)
        for name, data in theirs.items():
            yield self._compared(source, name, data, ours)
        for name in sorted({GENERATOR_FILE, *source.keeps} - names):
            yield Check(False, f"{name}: is missing")
        for line in missing:
            if line.split()[1].rstrip(":") in names:
                yield Check(False, f"made again here: {line}")

    def _compared(
        self, source: Source, name: str, theirs: bytes, made: Mapping[str, bytes]
    ) -> Check:
        shown = printable(name, 99)
        if name not in made:
            return Check(False, f"{shown}: is none that mdgan makes here of this generator")
        if made[name] == theirs:
            return Check(True, f"{shown}: made again, every bit is the same")
        if name.startswith("samples.") and is_close(source.kind, name, theirs, made[name]):
            return Check(True, f"{shown}: made again, the same up to rounding in last digits")
        return Check(False, f"{shown}: made again, it is another one{self._others(name)}")

    def _others(self, name: str) -> str:
        """With which versions to make it again, if others made the bundle."""
        here, there = versions(), self.evidence.versions
        decide = ["torch", "mdgan"] if name == PROGRAM_FILE else ["mdgan"]
        differing = [
            f"{each} {printable(there.get(each, 'of no version'), 40)} (here {here[each]})"
            for each in decide
            if there.get(each) != here[each]
        ]
        return f"; it was made with {' and '.join(differing)}: install that" if differing else ""
