"""Checks a bundle offline, for a reader who trusts an authority alone."""

import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file

from mdgan.credentials.identity import check_signed
from mdgan.credentials.pem import certificates_in, pem_of, read_file
from mdgan.credentials.permit import Permit, permit_of
from mdgan.credentials.revocations import read_list
from mdgan.errors import BadInput, printable, reason_of
from mdgan.gan.model_state import digest_of
from mdgan.privacy.attestation import Attestation
from mdgan.records.release_policy import decide, policy_text
from mdgan.records.values import said, said_list
from mdgan.release.bundle import GENERATOR_FILE, POLICY_FILE
from mdgan.release.evidence import EVIDENCE_FILE, RunEvidence
from mdgan.release.signing import (
    MANIFEST_FILE,
    REVOKED_FILE,
    SIGNATURE_FILE,
    BundleManifest,
    Signature,
    digest_of_file,
    read_document,
    signed_bytes,
)

_SLACK = 1e-6
"""ε is written with some digits."""


class Check(NamedTuple):
    """One line; `holds` is false if the bundle must not be trusted for it."""

    holds: bool
    line: str


@dataclass(frozen=True)
class Trust:
    """Whom the reader believes, as files.

    Attributes:
        authority: certificates of the authority.
        revoked: its list of revoked certificates, newer than the one in the bundle.
        policy: the reader's own; None for that in the bundle.
    """

    authority: Path | None = None
    revoked: Path | None = None
    policy: Path | None = None


def verify_bundle(bundle: Path, trust: Trust) -> list[Check]:
    """Checks all that can be checked; each finding is one line.

    Raises:
        BadInput: a file that the reader names cannot be read, or the bundle is signed and no
            authority is named.
    """
    if not bundle.is_dir():
        raise BadInput(f"{bundle}: is no folder; name the bundle of `mdgan release`")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd certificates, in the words of a library
        return _findings(bundle, trust)


def _findings(bundle: Path, trust: Trust) -> list[Check]:
    found = list(_files(bundle))
    if not all(each.holds for each in found):
        return found
    try:
        evidence = read_document(bundle / EVIDENCE_FILE, RunEvidence)
        made = datetime.fromisoformat(evidence.made).astimezone(UTC).replace(microsecond=0)
    except (OSError, ValueError) as error:
        return [
            *found,
            Check(False, f"{EVIDENCE_FILE}: makes no sense ({reason_of(error)})"),
        ]
    return [*found, *_Opened(bundle, trust, evidence, made).findings()]


def _files(bundle: Path) -> Iterator[Check]:
    """Whether every file is there, alone, and as the manifest says."""
    try:
        manifest = read_document(bundle / MANIFEST_FILE, BundleManifest)
    except (OSError, ValueError) as error:
        yield Check(False, f"{MANIFEST_FILE}: cannot be read ({reason_of(error)})")
        return
    there = {path.name for path in bundle.iterdir()} - {MANIFEST_FILE, SIGNATURE_FILE}
    for name in sorted(there - manifest.files.keys()):
        yield Check(False, f"{printable(name, 99)}: is not in the manifest")
    damaged = 0
    for name, digest in sorted(manifest.files.items()):
        try:
            if digest_of_file(bundle / name) == digest:
                continue
            why = "is not as the manifest says"
        except OSError as error:
            why = f"cannot be read ({error.strerror})"
        damaged += 1
        yield Check(False, f"{name}: {why}")
    if not damaged:
        yield Check(True, f"files: {len(manifest.files)}, each as the manifest says")


@dataclass(frozen=True)
class _Opened:
    """A bundle whose files are as its manifest says.

    Attributes:
        made: when it was made, by its own account; certificates must have been valid then.
    """

    bundle: Path
    trust: Trust
    evidence: RunEvidence
    made: datetime

    def findings(self) -> Iterator[Check]:
        yield from self._generator()
        yield from self._signatures()
        yield from self._accounts()
        yield from self._policy()

    def _generator(self) -> Iterator[Check]:
        path = self.bundle / GENERATOR_FILE
        if not path.exists():
            return
        try:
            same = digest_of(load_file(path)) == self.evidence.generator
        except (OSError, SafetensorError):
            same = False
        line = "is that of the evidence" if same else "is another one than that of the evidence"
        yield Check(same, f"{GENERATOR_FILE}: {line}")

    def _signatures(self) -> Iterator[Check]:
        try:
            signature = read_document(self.bundle / SIGNATURE_FILE, Signature)
        except (OSError, ValueError) as error:
            yield Check(False, f"{SIGNATURE_FILE}: cannot be read ({reason_of(error)})")
            return
        answers = [answer for answer in self.evidence.attestations if answer.signature]
        if self.trust.authority is None:
            if signature.signature or answers:
                raise BadInput(
                    f"{self.bundle}: is signed; name the certificate of its authority with "
                    "--authority FILE, which you have from elsewhere"
                )
            yield Check(True, "signatures: none, and no --authority is named")
            return
        given = read_file(self.trust.authority, "name the authority's certificate")
        trusted = certificates_in(self.trust.authority, given)
        authorities, revoked = pem_of(*trusted), set[int]()
        if self.trust.revoked is not None:
            revoked |= {each.serial_number for each in read_list(self.trust.revoked, trusted)}
        if (own_list := self.bundle / REVOKED_FILE).exists():
            try:
                revoked |= {each.serial_number for each in read_list(own_list, trusted)}
            except BadInput as error:
                yield Check(False, str(error))
        chain, own = signature.chain.encode(), bytes.fromhex(signature.signature)
        manifest = signed_bytes((self.bundle / MANIFEST_FILE).read_bytes())
        try:
            permit = check_signed(authorities, manifest, chain, own, self.made)
            if pem_of(*certificates_in(self.bundle / SIGNATURE_FILE, chain)) != chain:
                raise ValueError("its certificate is not written as mdgan writes it")
            yield _signed("server", permit, permit.refusal("server", []), revoked)
        except ValueError as error:
            yield Check(False, f"server: has not signed: {reason_of(error)}")
        for answer in self.evidence.attestations:
            yield self._of_host(answer, authorities, revoked)

    def _of_host(self, answer: Attestation, authorities: bytes, revoked: set[int]) -> Check:
        ranks = f"rank(s) {said_list(answer.workers)}"
        if answer.refusal:
            return Check(True, f"{ranks}: did not sign: {printable(answer.refusal, 300)}")
        try:
            permit, said_of = answer.check(authorities, self.made), answer.said()
        except ValueError as error:
            return Check(False, f"{ranks}: has not signed: {reason_of(error)}")
        what = ""
        if said_of.run != self.evidence.run:
            what = "signed another run"
        elif said_of.terms != self.evidence.terms:
            what = "signed other terms"
        elif said_of.generator not in ("", self.evidence.generator):
            what = "signed another generator"
        return _signed(ranks, permit, what or None, revoked)

    def _accounts(self) -> Iterator[Check]:
        """Whether evidence says at least what accounts of hosts say, and nothing else of hosts."""
        evidence, worst = self.evidence, 0.0
        for answer in evidence.attestations:
            for worker, epsilon in answer.epsilon.items():
                worst = max(worst, epsilon)
                told = evidence.epsilon.get(worker)
                if told is None or epsilon > told + _SLACK:
                    line = f"its account says ε = {said(epsilon, 4)}, the evidence {said(told, 4)}"
                    yield Check(False, f"rank {worker}: {line}")
        told = evidence.figures.get("epsilon")
        if max([worst, *evidence.epsilon.values()]) > (told or 0.0) + _SLACK:
            line = f"some worker spent more than ε = {said(told, 4)}"
            yield Check(False, f"{EVIDENCE_FILE}: {line}")
        elif told is not None:
            whose = "as hosts have signed" if worst else "as the server counts"
            yield Check(True, f"accounts: ε = {said(told, 4)} at most, {whose}")

    def _policy(self) -> Iterator[Check]:
        named = self.trust.policy
        where = named or self.bundle / POLICY_FILE
        signed, refused = set[str](), 0
        for answer in self.evidence.attestations:
            refused += bool(answer.refusal)
            with suppress(ValueError):  # which was told above
                signed |= (
                    {permit_of(answer.chain.encode()).fingerprint} if answer.signature else set()
                )
        figures = {
            **self.evidence.figures,
            "signed_by": float(len(signed)),
            "refused_to_sign": float(refused),
        }
        try:
            rules = self.evidence.rules(policy_text(where), str(where))
        except BadInput as error:
            if named is not None:
                raise
            yield Check(False, str(error))
            return
        for verdict in decide(rules, figures):
            yield Check(verdict.met, f"policy: {verdict.why}")


def _signed(whose: str, permit: Permit, why_not: str | None, revoked: set[int]) -> Check:
    by = f"{permit.name}, key {permit.fingerprint[:16]}…"
    if permit.serial in revoked:
        return Check(False, f"{whose}: signed by {by}, whose certificate is revoked")
    if why_not:
        return Check(False, f"{whose}: signed by {by}, but {why_not}")
    return Check(True, f"{whose}: signed by {by}")
