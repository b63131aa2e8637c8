"""The statement that a host signs as it leaves a run: the server's words and the host's account.

The host cannot see how the generator was made. It knows the terms of the run, the counts of all
sites, and what its own samples have spent. If the server states the same terms and counts, the host
signs with the key of its certificate. The statement names one generator. Only a host that leaves
before the end signs a statement without a generator.
"""

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from math import ceil, floor, log10
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mdgan.credentials.identity import Identity, check_signed, sign
from mdgan.credentials.pem import certificates_in, now, pem_of
from mdgan.credentials.permit import Permit
from mdgan.errors import printable

_MOST_TEXT = 1 << 15
_Text = Annotated[str, Meta(max_length=_MOST_TEXT)]
_Hex = Annotated[str, Meta(max_length=1 << 12, pattern=r"\A([0-9a-f]{2})*\Z")]
_Worker = Annotated[int, Meta(gt=0, lt=1 << 31)]
_Epsilon = Annotated[float, Meta(ge=0, lt=1e12)]
_UNREAD = "the server's statement about the run cannot be read"
_OF_DATA = "data_sha256"
"""The digest of all samples. With it, an attacker that knows all but one could test guesses."""


class Statement(msgspec.Struct, frozen=True):
    """The server's statement about a run."""

    run: str  # the random name of the run
    terms: dict[str, Any]  # equal on all ranks: version, data set, settings
    iteration: int
    # The digest of the run's generator; empty if a host leaves before the end.
    generator: str = ""
    # The digest of the counts of all sites (`published_digest`); empty if there are none.
    learnt: str = ""

    def text(self) -> str:
        """JSON as it is sent, stored and signed: without the digest of all data."""
        terms = {name: term for name, term in self.terms.items() if name != _OF_DATA}
        return json.dumps({**msgspec.to_builtins(self), "terms": terms}, sort_keys=True)


class Attestation(msgspec.Struct, frozen=True, kw_only=True):
    """A host's answer to the server's statement: signed, or refused."""

    workers: Annotated[list[_Worker], Meta(min_length=1, max_length=1 << 12)]
    statement: _Text  # the text that the host signs, as the server sent it; see `Statement`
    # ε that each worker's samples have spent by the host's account, rounded up to three digits.
    epsilon: dict[_Worker, _Epsilon] = {}
    # The same if a sample may be exchanged for another one, instead of left out.
    replaced: dict[_Worker, _Epsilon] = {}
    chain: _Text = ""  # PEM of the host's certificate and those up to the authority's
    signature: _Hex = ""  # in hexadecimal; empty if the host refused, and `refusal` says why
    refusal: Annotated[str, Meta(max_length=500, pattern=r"\A[^\x00-\x1f\x7f-\x9f]*\Z")] = ""

    def __post_init__(self) -> None:
        """Raises ValueError if it tells what other hosts' workers have spent."""
        if not {*self.epsilon, *self.replaced} <= set(self.workers):
            raise ValueError("it speaks of workers of others")

    def signed_bytes(self) -> bytes:
        """The bytes that the signature covers."""
        account = [sorted(by_worker.items()) for by_worker in (self.epsilon, self.replaced)]
        content = [self.statement, self.workers, account]
        return b"mdgan: a host leaves a run: " + json.dumps(content).encode()

    def said(self) -> Statement:
        """Parses the server's statement; raises ValueError if it cannot be read."""
        return msgspec.json.decode(self.statement, type=Statement)

    def check(self, authorities: bytes, clock: datetime) -> Permit:
        """Checks that a worker's host has signed this with a certificate of an authority.

        Args:
            authorities: PEM of the trusted authorities.
            clock: when the certificate must have been valid.

        Raises:
            ValueError: the signature does not count; the message says why in one line.
        """
        chain, signature = self.chain.encode(), bytes.fromhex(self.signature)
        permit = check_signed(authorities, self.signed_bytes(), chain, signature, clock)
        if self.refusal or pem_of(*certificates_in(Path(), chain)) != chain:
            raise ValueError("it is not written as mdgan writes it")
        if (refusal := permit.refusal("worker", self.workers)) is not None:
            raise ValueError(refusal)
        return permit


def attest(
    own: Identity,
    text: str,
    known: Statement,
    workers: list[int],
    account: Mapping[str, Mapping[str, float]],
    *,
    leaves_early: bool = False,
) -> Attestation:
    """Signs the server's statement if it agrees with what this host knows; else refuses.

    Args:
        known: the host's own view of the run; its `iteration` and `generator` are not compared.
        account: `epsilon` and `replaced`, by worker, as `Spending.told` gives them.
        leaves_early: whether the host leaves before the end by its own account. Only then does it
            sign a statement without a generator.
    """
    if refusal := printable(_why_not(text, known, may_be_blank=leaves_early), 500):
        return Attestation(workers=workers, statement=text[:_MOST_TEXT], refusal=refusal)
    spent = {
        name: {int(worker): rounded_up(epsilon) for worker, epsilon in account[name].items()}
        for name in ("epsilon", "replaced")
    }
    unsigned = Attestation(workers=workers, statement=text, chain=own.certificate.decode())
    draft = msgspec.structs.replace(unsigned, **spent)
    return msgspec.structs.replace(draft, signature=sign(own, draft.signed_bytes()).hex())


def answer_in(
    fields: Mapping[str, Any], asked: str, ranks: Collection[int], authorities: bytes
) -> Attestation:
    """A host's answer; ValueError if not of these ranks, or to something else than was asked."""
    answer = msgspec.convert(dict(fields), Attestation, str_keys=True)
    if answer.statement != asked:
        raise ValueError("it is not about what the server has stated")
    if not set(answer.workers) <= set(ranks):
        raise ValueError("it speaks of workers of others")
    if answer.signature or not answer.refusal:
        answer.check(authorities, now())
    return answer


def rounded_up(epsilon: float) -> float:
    """ε rounded up to three digits: more would tell how many samples there are."""
    if epsilon <= 0:
        return 0.0
    digits = 2 - floor(log10(epsilon))
    return round(ceil(round(epsilon * 10.0**digits, 6)) * 10.0**-digits, max(0, digits))


def _why_not(text: str, known: Statement, *, may_be_blank: bool) -> str:
    try:
        stated = msgspec.json.decode(text, type=Statement)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _UNREAD
    if stated.run != known.run:
        return f"the server names another run, {stated.run:.40}"
    if not stated.generator and not may_be_blank:
        return "the server names no generator, and this host was there until the end"
    if stated.learnt != known.learnt:
        return "the server names other counts than those that this host has learnt"
    ours = json.loads(known.text())["terms"]
    for name in sorted(ours.keys() | stated.terms.keys()):
        if stated.terms.get(name) != ours.get(name):
            theirs = f"{stated.terms.get(name)!r:.60}"
            return f"the server says {name} = {theirs}, this host has {ours.get(name)!r:.60}"
    return ""
