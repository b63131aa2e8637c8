"""Writes and checks the signatures of a bundle: the server's over its files, hosts' over the run.

The server's is `signature.json`, over `manifest.json`; hosts' are attestations in the evidence.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from mdgan.credentials.identity import Identity, check_signed, sign
from mdgan.credentials.pem import certificates_in, pem_of, read_file
from mdgan.credentials.permit import Permit
from mdgan.credentials.revocations import is_plain, read_list
from mdgan.errors import BadInput, printable, reason_of
from mdgan.privacy.attestation import Attestation
from mdgan.records.release_figures import of_signatures
from mdgan.records.values import said, said_list
from mdgan.release.evidence import RunEvidence
from mdgan.storage.foreign_file import open_regular, read_whole

MANIFEST_FILE, SIGNATURE_FILE = "manifest.json", "signature.json"
REVOKED_FILE = "revoked.pem"
_Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")]
_MOST_FILE_BYTES = 1 << 36
_SLACK = 1e-9
_WORD = "the server's word"

Document = TypeVar("Document", bound=Struct)


class BundleManifest(Struct, frozen=True):
    """SHA-256 of each file but the manifest and its signature."""

    files: dict[_Name, _Digest]


class Signature(Struct, frozen=True):
    """The server's signature over the manifest; both empty if a run had no certificates."""

    chain: Annotated[str, Meta(max_length=1 << 16)] = ""
    signature: Annotated[str, Meta(max_length=1 << 12, pattern=r"\A([0-9a-f]{2})*\Z")] = ""


def document(content: Struct) -> bytes:
    """The bytes of a JSON file; equal content always gives equal bytes."""
    text = json.dumps(msgspec.to_builtins(content, str_keys=True), indent=1, sort_keys=True)
    return text.encode() + b"\n"


def read_document(path: Path, kind: type[Document]) -> Document:
    """Reads a file of `document`; raises ValueError or OSError if it is anything else."""
    data = read_whole(path)
    try:
        content = msgspec.json.decode(data, type=kind)
        if document(content) != data:
            raise ValueError("it is not written as mdgan writes it")
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return content


def signed_bytes(manifest: bytes) -> bytes:
    """The bytes that the server's signature covers."""
    return b"mdgan: a bundle: " + hashlib.sha256(manifest).hexdigest().encode()


def seal(files: Mapping[str, bytes], own: Identity | None) -> dict[str, bytes]:
    """The manifest of some files, and the signature over it."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifest = document(BundleManifest(digests))
    signature = Signature()
    if own is not None:
        signed = sign(own, signed_bytes(manifest)).hex()
        signature = Signature(own.certificate.decode(), signed)
    return {MANIFEST_FILE: manifest, SIGNATURE_FILE: document(signature)}


def digest_of_file(path: Path) -> str:
    """SHA-256 of a regular file; raises OSError."""
    with open_regular(path, _MOST_FILE_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Check(NamedTuple):
    """One finding in a line; if it does not hold, readers must not trust the bundle."""

    holds: bool
    line: str


@dataclass(frozen=True)
class Trust:
    """The files that a reader trusts, and whether the server's word is enough."""

    authority: Path | None = None  # certificates of the authority
    # Its list of revoked certificates, newer than the one in the bundle.
    revoked: Path | None = None
    policy: Path | None = None  # the reader's rules; None for mdgan's
    # A folder of dataset files that the reader has from another source.
    datasets_dir: str | None = None
    # Whether the reader accepts a generator that only the server vouches for.
    unsigned: bool = False

    def takes_word(self, line: str) -> Check:
        """A finding that rests on the server's word: it holds if the reader accepts that."""
        return Check(self.unsigned, line + ("" if self.unsigned else "; --unsigned accepts that"))


@dataclass
class Signatures:
    """The signatures of a bundle."""

    bundle: Path
    trust: Trust
    evidence: RunEvidence
    made: datetime  # when the bundle says it was made; certificates must have been valid then
    # Attestations that count: hosts signed this run, its terms and counts, and no other generator,
    # with keys that are not the server's.
    counting: list[Attestation] = field(default_factory=list)
    # Whether the server has signed the bundle, or the reader has no authority to check that.
    is_of_server: bool = False

    def check(self) -> Iterator[Check]:
        """Checks all signatures; raises BadInput if there are some and no authority is named."""
        try:
            signature = read_document(self.bundle / SIGNATURE_FILE, Signature)
        except (OSError, ValueError) as error:
            yield Check(False, f"{SIGNATURE_FILE}: cannot be read ({reason_of(error)})")
            return
        answers = [answer for answer in self.evidence.attestations if answer.signature]
        if self.trust.authority is None:
            if signature.signature or answers:
                way_out = (
                    "name the certificate of its authority with --authority FILE, which you have"
                )
                raise BadInput(self.bundle, "is signed", f"{way_out} from elsewhere")
            self.is_of_server = True
            yield self._who_names_the_generator()
            return
        pem = read_file(self.trust.authority, "name the authority's certificate")
        trusted = certificates_in(self.trust.authority, pem)
        authorities, revoked = pem_of(*trusted), set[int]()
        if self.trust.revoked is not None:
            revoked |= {entry.serial_number for entry in read_list(self.trust.revoked, trusted)}
        if (bundled := self.bundle / REVOKED_FILE).exists():
            try:
                revoked |= {entry.serial_number for entry in read_list(bundled, trusted)}
                if not is_plain(bundled.read_bytes()):
                    yield Check(False, f"{REVOKED_FILE}: has more in it than a list")
            except BadInput as error:
                yield Check(False, str(error))
        server = ""
        try:
            permit = self._of_server(signature, authorities)
            server, self.is_of_server = permit.fingerprint, True
            yield _signed("server", permit, permit.refusal("server", []), revoked=revoked)
        except ValueError as error:
            yield Check(False, f"server: has not signed: {reason_of(error)}")
        for answer in self.evidence.attestations:
            yield self._of_host(answer, authorities, revoked, server=server)
        ranks = [rank for answer in self.evidence.attestations for rank in answer.workers]
        if len(set(ranks)) < len(ranks):
            yield Check(False, "evidence: some rank(s) have two words in it")
        yield self._who_names_the_generator()

    def _of_server(self, signature: Signature, authorities: bytes) -> Permit:
        """The permit that signed the manifest; raises ValueError if the signature is invalid."""
        chain = signature.chain.encode()
        signed = bytes.fromhex(signature.signature)
        manifest = signed_bytes((self.bundle / MANIFEST_FILE).read_bytes())
        permit = check_signed(authorities, manifest, chain, signature=signed, clock=self.made)
        if pem_of(*certificates_in(self.bundle / SIGNATURE_FILE, chain)) != chain:
            raise ValueError("its certificate is not written as mdgan writes it")
        return permit

    def _of_host(
        self, answer: Attestation, authorities: bytes, revoked: set[int], server: str
    ) -> Check:
        ranks = f"rank(s) {said_list(answer.workers)}"
        if not answer.signature:
            return Check(True, f"{ranks}: did not sign: {printable(answer.refusal, 300)}")
        try:
            permit, said_of = answer.check(authorities, self.made), answer.said()
        except ValueError as error:
            return Check(False, f"{ranks}: has not signed: {reason_of(error)}")
        known = self.evidence
        if permit.fingerprint == server:
            return Check(True, f"{ranks}: signed with the server's own key, which does not count")
        differing = {
            "another run": said_of.run != known.run,
            "other terms": said_of.terms != known.terms,
            "another generator": said_of.generator not in ("", known.generator),
            "another iteration": bool(said_of.generator) and said_of.iteration != known.iteration,
            "other counts of all sites": said_of.learnt != known.learnt,
        }
        why_not = next((f"signed {what}" for what, differs in differing.items() if differs), None)
        check = _signed(ranks, permit, why_not, revoked=revoked)
        if check.holds:
            self.counting.append(answer)
        blank = check.holds and not said_of.generator
        return Check(check.holds, check.line + ", the terms alone" * blank)

    def _who_names_the_generator(self) -> Check:
        if self.figures["signed_by"]:
            return Check(True, "generator: hosts have signed which one it is")
        what = "which one it is, is" if self.counting else "all that this bundle says is"
        return self.trust.takes_word(f"generator: no host has signed it: {what} {_WORD}")

    @property
    def figures(self) -> dict[str, float]:
        """The figures for a policy that follow from signatures."""
        refused = [answer for answer in self.evidence.attestations if not answer.signature]
        return of_signatures([*self.counting, *refused])

    # The ε that was spent.

    def check_privacy(self) -> Iterator[Check]:
        """Checks that the evidence states the ε that hosts have signed."""
        stated, evidence, signed = self.evidence.epsilon, self.evidence, self._accounts()
        if not evidence.has_dp:
            if stated:
                yield Check(False, "evidence: tells an ε, and the terms have no noise")
            yield Check(True, "privacy: the terms have no differential privacy")
            return
        for rank, epsilon in signed.items():
            if abs(epsilon - stated.get(rank, 0.0)) > _SLACK:
                line = f"its account says ε = {said(epsilon)}, "
                yield Check(False, f"rank {rank}: {line}the evidence {said(stated.get(rank))}")
        privacy = self.privacy()
        about = f"ε = {said(privacy.get('epsilon'))} at most, δ = {privacy['delta']:g}"
        if evidence.server_adds_noise:
            why = "with --dp-unit client no host signs an account"
            yield Check(True, f"privacy: {about}: {_WORD} alone, as {why}")
        elif not self.counting:
            yield Check(True, f"privacy: {about}: {_WORD}")
        elif silent := [rank for rank in evidence.accounts if rank not in signed]:
            ranks = f"rank(s) {said_list(silent)}"
            yield Check(False, f"privacy: ε is not known: {ranks} have signed no account")
        else:
            yield Check(True, f"privacy: {about}, as all hosts have signed")

    def _accounts(self) -> dict[int, float]:
        """By rank, the ε that its host has signed; `check` finds ranks with two words."""
        return {rank: epsilon for each in self.counting for rank, epsilon in each.epsilon.items()}

    def privacy(self) -> dict[str, float]:
        """ε and δ as hosts have signed them; if no host can, as the server says."""
        is_word = self.evidence.server_adds_noise or not self.counting
        return self.evidence.privacy(self.evidence.epsilon if is_word else self._accounts())

    @property
    def by_hosts(self) -> set[str]:
        """Names of the figures that do not rest on the server's word."""
        is_signed = self.counting and not self.evidence.server_adds_noise
        return {*self.figures, *(self.privacy() if is_signed else ())}


def _signed(whose: str, permit: Permit, why_not: str | None, revoked: set[int]) -> Check:
    trouble = f", but {why_not}" if why_not else ""
    if permit.serial in revoked:
        trouble = ", whose certificate is revoked"
    by = f"{permit.name}, key {permit.fingerprint[:16]}…"
    return Check(not trouble, f"{whose}: signed by {by}{trouble}")
