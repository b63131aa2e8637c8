"""Whether the files of a bundle are what its generator and its evidence give: all are made again.

Where only the last digits differ, as another processor rounds them, a file holds.
"""

import io
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdgan.errors import BadInput, printable
from mdgan.records.release_policy import policy_text
from mdgan.release.contents import POLICY_FILE, described, made_files
from mdgan.release.evidence import EVIDENCE_FILE, RunEvidence, versions
from mdgan.release.exported import PROGRAM_FILE
from mdgan.release.signed import Check, Trust
from mdgan.release.signing import MANIFEST_FILE, REVOKED_FILE, SIGNATURE_FILE
from mdgan.release.source import GENERATOR_FILE, Source, source_of_bundle
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.reading import read_rows

_NOT_MADE = {MANIFEST_FILE, SIGNATURE_FILE, REVOKED_FILE, EVIDENCE_FILE, POLICY_FILE}
_CLOSE = 1e-5
_FEW = 0.01
"""Of all values, this share may have another last digit."""


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
        if source.kind.name != self.evidence.kind:
            yield Check(False, f"evidence: says {self.evidence.kind}, made are {source.kind.name}")
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
        if name.startswith("samples.") and _is_close(source, name, theirs, made[name]):
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


def _is_close(source: Source, name: str, theirs: bytes, ours: bytes) -> bool:
    """Whether two files of samples differ in the last digits alone."""
    try:
        if name.endswith(".png"):
            return _pictures_are_close(theirs, ours)
        if name.endswith(".npz"):
            return _arrays_are_close(theirs, ours)
        if isinstance(source.kind, TableKind):
            return _rows_are_close(source.kind, Path(name).suffix, theirs, ours)
    except Exception:  # files of strangers may be anything, and so is what libraries raise
        return False
    return False


def _arrays_are_close(theirs: bytes, ours: bytes) -> bool:
    parts = []
    limit = 2 * sum(each.file_size for each in zipfile.ZipFile(io.BytesIO(ours)).infolist())
    for data in (theirs, ours):
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            if sum(each.file_size for each in file.infolist()) > limit:
                return False
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            parts.append({name: arrays[name] for name in arrays.files})
    a, b = parts
    return a.keys() == b.keys() and all(
        x.dtype == (y := b[name]).dtype
        and x.shape == y.shape
        and (_floats_are_close(x, y) if x.dtype.kind == "f" else np.array_equal(x, y))
        for name, x in a.items()
    )


def _floats_are_close(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Samples are in [−1, 1]."""
    return bool(np.all(np.abs(a - b) <= _CLOSE))


def _pictures_are_close(theirs: bytes, ours: bytes) -> bool:
    from PIL import Image

    with Image.open(io.BytesIO(theirs), formats=["PNG"]) as a, Image.open(io.BytesIO(ours)) as b:
        if (a.size, a.mode) != (b.size, b.mode) or set(a.info) - set(b.info):
            return False
        apart = np.abs(np.asarray(a, dtype=np.int64) - np.asarray(b, dtype=np.int64))
    return bool(apart.max() <= 1 and np.count_nonzero(apart) <= _FEW * apart.size)


def _rows_are_close(kind: TableKind, ending: str, theirs: bytes, ours: bytes) -> bool:
    """Categories must be equal; numbers as their bounds are wide, or up to a last digit."""
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for data in (theirs, ours):
            path = Path(folder, f"rows{ending}")
            path.write_bytes(data)
            parts.append(read_rows(path, kind.schema).values)
    a, b = parts
    if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
        return False
    for place, column in enumerate(kind.schema.columns):
        apart = np.nan_to_num(np.abs(a[:, place] - b[:, place]))
        low, high = getattr(column, "bounds", (0.0, 0.0))
        unit = 10.0 ** -getattr(column, "decimals", 0) if high > low else 0.0
        far = apart > _CLOSE * (high - low)
        if (apart > _CLOSE * (high - low) + 1.01 * unit).any() or far.mean() > _FEW:
            return False
    return True
