"""What a host signs as it leaves a run: what the server says of it, and what its own account says.

The host cannot see how the generator was made. It knows the terms that it took part under, what all
sites have counted, and what its own samples have spent: it signs if the server says the same, with
the key of its certificate. What it signs names one generator. A host that was there until the end
signs no statement that names none; one that left before may.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from math import ceil, floor, log10
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mdgan.credentials.identity import Identity, check_signed, sign
from mdgan.credentials.permit import Permit

_MOST_TEXT = 1 << 15
_Text = Annotated[str, Meta(max_length=_MOST_TEXT)]
_Hex = Annotated[str, Meta(max_length=1 << 12, pattern=r"\A([0-9a-f]{2})*\Z")]
_Worker = Annotated[int, Meta(gt=0, lt=1 << 31)]
_Epsilon = Annotated[float, Meta(ge=0, lt=1e12)]
_UNREAD = "what the server says of the run cannot be read"
_OF_DATA = "data_sha256"
"""The term that follows from every bit of all samples: who knows all but one could try it."""


class Statement(msgspec.Struct, frozen=True):
    """What the server says of a run."""

    run: str  # the random name of the run
    terms: dict[str, Any]  # what was equal on all ranks: version, data set, settings
    iteration: int
    # The digest of the run's generator; empty where a host leaves before the end.
    generator: str = ""
    # The digest of what all sites have counted (`published_digest`); empty for nothing.
    learnt: str = ""

    def text(self) -> str:
        """As it is sent, stored and signed: without the digest of all data."""
        terms = {name: term for name, term in self.terms.items() if name != _OF_DATA}
        return json.dumps({**msgspec.to_builtins(self), "terms": terms}, sort_keys=True)


class Attestation(msgspec.Struct, frozen=True, kw_only=True):
    """What a host answers."""

    workers: Annotated[list[_Worker], Meta(min_length=1, max_length=1 << 12)]
    statement: _Text  # the text that it signs, as the server sent it; see `Statement`
    # By worker, ε that its samples have spent, by the account on their own machine, rounded up to
    # three digits.
    epsilon: dict[_Worker, _Epsilon] = {}
    # The same for a sample that may be another one instead of none.
    replaced: dict[_Worker, _Epsilon] = {}
    chain: _Text = ""  # PEM of its certificate and those between that and the authority
    signature: _Hex = ""  # in hexadecimal; empty if it has not signed, and `refusal` says why
    refusal: Annotated[str, Meta(max_length=500)] = ""

    def __post_init__(self) -> None:
        """Raises ValueError if it speaks of what others have spent."""
        if not {*self.epsilon, *self.replaced} <= set(self.workers):
            raise ValueError("it speaks of workers of others")

    def signed_bytes(self) -> bytes:
        """What the signature is over."""
        account = [sorted(each.items()) for each in (self.epsilon, self.replaced)]
        said = [self.statement, self.workers, account]
        return b"mdgan: a host leaves a run: " + json.dumps(said).encode()

    def said(self) -> Statement:
        """The statement; raises ValueError if it is none."""
        return msgspec.json.decode(self.statement, type=Statement)

    def check(self, authorities: bytes, clock: datetime) -> Permit:
        """Checks that a worker's host has signed this with a certificate of an authority.

        Args:
            authorities: PEM of those that are trusted.
            clock: when the certificate must have been valid.

        Raises:
            ValueError: in one line, why it does not count.
        """
        chain, signature = self.chain.encode(), bytes.fromhex(self.signature)
        permit = check_signed(authorities, self.signed_bytes(), chain, signature, clock)
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
    """Signs what the server says, if this host knows the same; else says why not.

    Args:
        known: what the host knows itself; `iteration` and `generator` do not count.
        account: `epsilon` and `replaced`, by worker, as `Spending.told` gives them.
        leaves_early: whether the host knows by its own account that it leaves before the end. Only
            then it signs what names no generator.
    """
    if refusal := _why_not(text, known, may_be_blank=leaves_early):
        return Attestation(workers=workers, statement=text[:_MOST_TEXT], refusal=refusal[:500])
    spent = {
        name: {int(worker): rounded_up(each) for worker, each in account[name].items()}
        for name in ("epsilon", "replaced")
    }
    unsaid = Attestation(workers=workers, statement=text, chain=own.certificate.decode())
    draft = msgspec.structs.replace(unsaid, **spent)
    return msgspec.structs.replace(draft, signature=sign(own, draft.signed_bytes()).hex())


def rounded_up(epsilon: float) -> float:
    """ε with three digits, and no less: more digits would tell how many samples there are."""
    if epsilon <= 0:
        return 0.0
    digits = 2 - floor(log10(epsilon))
    return round(ceil(round(epsilon * 10.0**digits, 6)) * 10.0**-digits, max(0, digits))


def _why_not(text: str, known: Statement, *, may_be_blank: bool) -> str:
    try:
        said = msgspec.json.decode(text, type=Statement)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _UNREAD
    if said.run != known.run:
        return f"the server names another run, {said.run:.40}"
    if not said.generator and not may_be_blank:
        return "the server names no generator, and this host was there until the end"
    if said.learnt != known.learnt:
        return "the server names other counts than those that this host has learnt"
    ours = json.loads(known.text())["terms"]
    for name in sorted(ours.keys() | said.terms.keys()):
        if said.terms.get(name) != ours.get(name):
            theirs = f"{said.terms.get(name)!r:.60}"
            return f"the server says {name} = {theirs}, this host has {ours.get(name)!r:.60}"
    return ""
