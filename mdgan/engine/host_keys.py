"""Keys that hosts have for each other, which the server passes on and cannot exchange for its own.

Each time a host joins a server it makes an X25519 key (RFC 7748). Where there are certificates, it
signs the public half with the key of its certificate, together with its ranks and the run. Another
host believes it if the certificate leads to the authority that it trusts itself and is that of a
worker with these ranks. Two hosts agree on a secret by it, and from that HKDF (RFC 5869) and HMAC
derive a key for each use. A certificate that names no role, such as that in a file which all
machines share, does not tell hosts from the server: with it, a server that lies can pass for hosts.
Without certificates, on one machine of one user, keys are not signed.
"""

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any

import msgspec
import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from torch import Tensor

from mdgan.credentials.identity import Identity, OwnIdentity, check_signed, sign
from mdgan.credentials.permit import permit_of
from mdgan.messages import Message
from mdgan.privacy.random_stream import derived
from mdgan.transport.frames import Frame, WireError, decode, encode

_log = logging.getLogger(__name__)

SEALED = "sealed"
"""The name of the only tensor of a message that one host has encrypted for another one."""
_NONCE_BYTES = 12
_MOST_HEAD_BYTES = 1 << 22
"""Of the JSON in a sealed message: as values it takes many times its size."""
_PRIME = 2**255 - 19
"""Of X25519. It reads larger numbers as well, so that one key would have several names."""


class NotMasked(RuntimeError):
    """The server asks for what would tell it what one host has answered."""


class SignedKey(msgspec.Struct, frozen=True):
    """What a host tells of its key."""

    workers: Annotated[list[int], msgspec.Meta(min_length=1)]
    key: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]  # the public half, in hexadecimal
    chain: str = ""  # PEM of its certificate and those between that and the authority; or empty
    signature: str = ""  # in hexadecimal, over `statement`; or empty
    # With how many hosts it takes part in a sum, or more; not signed, as it is the server alone
    # that heeds it.
    least: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)] = 0

    def statement(self, run: bytes) -> bytes:
        """What the signature is over."""
        said = [run.hex(), self.workers, self.key]
        return b"mdgan: the key of a host: " + json.dumps(said).encode()


def run_digest(welcome: Mapping[str, Any], identity: Mapping[str, Any]) -> bytes:
    """What tells a run, and the server of it that hosts have joined, from others."""
    said = [*map(welcome.get, ("run", "run_id", "generation")), identity]
    return sha256(json.dumps(said, sort_keys=True).encode()).digest()


def num_sharers(keys: Iterable[SignedKey], *, certified: bool) -> int:
    """How many different certificates, or keys without these, share noise."""
    return len({permit_of(k.chain.encode()).fingerprint if certified else k.key for k in keys})


def check_key(signed: SignedKey, run: bytes, trusts: Identity | None) -> str:
    """Checks that a key is that of a host of a run, as far as certificates tell.

    Returns:
        The fingerprint of the certificate; empty if it need not be another one for each host.

    Raises:
        ValueError: in one line.
    """
    key = bytes.fromhex(signed.key)
    if int.from_bytes(key, "little") >= _PRIME:
        raise ValueError("it is written otherwise than hosts write it")
    # A key of a low order is known to all: the exchange refuses it.
    X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(key))
    if trusts is None:
        return ""
    signature = bytes.fromhex(signed.signature)
    statement = signed.statement(run)
    permit = check_signed(trusts.authorities, statement, signed.chain.encode(), signature=signature)
    if (refusal := permit.refusal("worker", signed.workers)) is not None:
        raise ValueError(refusal)
    if permit.role is not None:
        return permit.fingerprint
    if permit_of(trusts.certificate).role is not None:
        raise ValueError(f"its certificate ({permit.name}) names no role, as that of a worker does")
    return ""


class HostKeys:
    """The keys of one host, with these ranks, for the others, while it is linked with one server.

    Its number is `host`, the first rank. Without certificates there is no identity. Of the hosts in
    `refused` the server has told a key that is none.
    """

    def __init__(self, workers: Sequence[int], identity: OwnIdentity | None = None) -> None:
        self.host = workers[0]
        self._workers = list(workers)
        self._identity = identity

    def make_key(self, run: bytes) -> dict[str, Any]:
        """The host joins a server, with a new key; returns what others must know of it, as JSON."""
        self._run, self._private = run, X25519PrivateKey.generate()
        own = SignedKey(self._workers, self._private.public_key().public_bytes_raw().hex())
        fingerprint = ""
        if (identity := self._own()) is not None:
            signature = sign(identity, own.statement(run)).hex()
            permit = permit_of(identity.certificate)
            chain = identity.certificate.decode()
            own = SignedKey(own.workers, own.key, chain, signature=signature)
            fingerprint = permit.fingerprint if permit.role is not None else ""
        self.refused: set[int] = set()
        self._known = {self.host: own}
        self._fingerprints = {self.host: fingerprint}
        self._pairs: dict[int, bytes] = {}
        given: dict[str, Any] = msgspec.to_builtins(own)
        return given

    def learn(self, told: object) -> None:
        """The server tells other hosts' keys; `refused` are those that are none, as far as we know.

        Raises:
            NotMasked: they are malformed, or one is said to be this host's.
        """
        try:
            given = msgspec.convert(told, list[SignedKey])
        except msgspec.ValidationError as error:
            raise NotMasked(f"it sends malformed keys ({error})") from error
        for signed in given:
            host = signed.workers[0]
            if host == self.host:
                raise NotMasked("it sends a key in this host's name")
            self._known.pop(host, None)
            self._pairs.pop(host, None)
            try:
                self._fingerprints[host] = check_key(signed, self._run, self._own())
            except ValueError as error:
                _log.warning("the key that the server tells of host %d is refused: %s", host, error)
                self.refused.add(host)
                continue
            self._known[host] = signed
            self.refused.discard(host)

    def _own(self) -> Identity | None:
        return None if self._identity is None else self._identity()

    def knows(self, host: int) -> bool:
        """Whether the server has told the key of a host."""
        return host in self._known

    def signed(self, hosts: Iterable[int]) -> dict[int, SignedKey]:
        """What some hosts have told, of those whose keys are known."""
        return {host: self._known[host] for host in hosts if host in self._known}

    def num_sharers(self, told: Iterable[SignedKey]) -> int:
        """How many certificates, or keys where there are none, share noise."""
        return num_sharers(told, certified=self._identity is not None)

    def keys_of(self, hosts: Iterable[int]) -> list[str]:
        """The public keys of some hosts.

        Raises:
            NotMasked: the server has not told one, or two of them are of the same host.
        """
        hosts = list(hosts)
        if unknown := [host for host in hosts if host not in self._known]:
            raise NotMasked(f"it has told no key of host {unknown[0]}")
        keys = [self._known[host].key for host in hosts]
        owners = [self._fingerprints[host] or self._known[host].key for host in hosts]
        if len(set(owners)) < len(hosts) or len(set(keys)) < len(hosts):
            raise NotMasked("it names a host twice, or two with the same key or certificate")
        return keys

    def derived(self, other: int, use: bytes) -> bytes:
        """A secret of this host and another one, 32 bytes, the same at both."""
        return derived(self._pair(other), use)

    def seal(self, other: int, context: bytes, data: bytes) -> bytes:
        """Encrypts for another host, so that what is changed on the way is refused."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher(other, self.host).encrypt(nonce, data, context)

    def unseal(self, other: int, context: bytes, sealed: bytes) -> bytes:
        """What another host has sealed for this one, in the same context.

        Raises:
            ValueError: it has not.
        """
        nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher(other, other).decrypt(nonce, text, context)
        except (InvalidTag, ValueError) as error:
            raise ValueError(f"host {other} has not sealed this for host {self.host}") from error

    def seal_message(self, other: int, message: Message) -> Tensor:
        """A message, encrypted for a host that knows its kind and iteration; uint8, in one row."""
        context = _about(message.kind, message.iteration, self.host, taker=other)
        sealed = bytearray(self.seal(other, context, encode(message).body))
        return torch.frombuffer(sealed, dtype=torch.uint8)

    def unseal_message(self, other: int, kind: str, iteration: int, sealed: Tensor) -> Message:
        """What another host has encrypted by `seal_message`.

        Raises:
            ValueError: it has not, or not for this host, or what it has encrypted is no message.
        """
        try:
            context = _about(kind, iteration, other, taker=self.host)
            body = self.unseal(other, context, sealed.numpy().tobytes())
            if int.from_bytes(body[:8], "little") > _MOST_HEAD_BYTES:
                raise ValueError(f"host {other} gives more names than any model has")
            return decode(Frame(kind, iteration, body))
        except (WireError, NotMasked) as error:
            raise ValueError(f"what host {other} gives cannot be read ({error})") from error

    def _pair(self, other: int) -> bytes:
        """What this host and another one have agreed on, 32 bytes."""
        if other not in self._pairs:
            own, theirs = self.keys_of([self.host, other])
            public = X25519PublicKey.from_public_bytes(bytes.fromhex(theirs))
            agreed = self._private.exchange(public)
            about = b"mdgan hosts " + self._run + "".join(sorted((own, theirs))).encode()
            self._pairs[other] = HKDF(SHA256(), length=32, salt=None, info=about).derive(agreed)
        return self._pairs[other]

    def _cipher(self, other: int, sender: int) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(self.derived(other, b"sealed by %d" % sender))


def _about(kind: str, iteration: int, giver: int, taker: int) -> bytes:
    return f"{kind} of {iteration} from {giver} to {taker}".encode()
