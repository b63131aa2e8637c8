"""Keys by which hosts encrypt for each other; the server passes them on but cannot forge them.

Each time a host joins a server it makes an X25519 key (RFC 7748). Where there are certificates, the
host signs the public half, its ranks and the run with the key of its certificate. Another host
accepts the key if the certificate leads to the authority that it trusts and is for a worker with
these ranks. From both keys the two hosts compute a secret; HKDF (RFC 5869) and HMAC derive a key
for each use from it. A certificate that names no role, such as one in a file that all machines
share, does not distinguish hosts from the server: then a lying server can pass for a host. Without
certificates, on one machine of one user, keys are not signed.
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
"""Most bytes of JSON in a sealed message; decoded, JSON takes many times its size in memory."""
_PRIME = 2**255 - 19
"""The prime of X25519. Larger numbers are refused, else one key could be written in two ways."""


class NotMasked(RuntimeError):
    """The server asks for something that would reveal what a single host has answered."""


class SignedKey(msgspec.Struct, frozen=True):
    """A host's public key, as other hosts receive it."""

    workers: Annotated[list[int], msgspec.Meta(min_length=1)]
    key: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]  # the public half, in hexadecimal
    chain: str = ""  # PEM of the certificate and of those up to the authority; or empty
    signature: str = ""  # in hexadecimal, over `statement`; or empty
    # The fewest hosts whose sum this host takes part in; not signed, as only the server heeds it.
    least: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)] = 0

    def statement(self, run: bytes) -> bytes:
        """The bytes that the host signs."""
        terms = [run.hex(), self.workers, self.key]
        return b"mdgan: the key of a host: " + json.dumps(terms).encode()


def run_digest(welcome: Mapping[str, Any], identity: Mapping[str, Any]) -> bytes:
    """A digest that identifies a run and the generation of the server that hosts have joined."""
    terms = [*map(welcome.get, ("run", "run_id", "generation")), identity]
    return sha256(json.dumps(terms, sort_keys=True).encode()).digest()


def num_sharers(keys: Iterable[SignedKey], *, certified: bool) -> int:
    """How many hosts share noise: different certificates, or keys if there are no certificates."""
    return len({permit_of(k.chain.encode()).fingerprint if certified else k.key for k in keys})


def check_key(signed: SignedKey, run: bytes, trusts: Identity | None) -> str:
    """Checks that a key belongs to a host of a run, as far as certificates prove it.

    Returns:
        The fingerprint of the certificate; empty if several hosts may have the same certificate.

    Raises:
        ValueError: the key does not; the text is one line.
    """
    key = bytes.fromhex(signed.key)
    if int.from_bytes(key, "little") >= _PRIME:
        raise ValueError("it is written otherwise than hosts write it")
    # With a key of low order any machine could compute the secret: the exchange refuses it.
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
    """One host's own key, and the keys of other hosts that the server has passed on to it.

    The host's number is its first rank. Without certificates it has no identity. `refused` are the
    hosts whose keys, as the server passed them on, this host does not accept.
    """

    def __init__(self, workers: Sequence[int], identity: OwnIdentity | None = None) -> None:
        self.host = workers[0]
        self._workers = list(workers)
        self._identity = identity

    def make_key(self, run: bytes) -> dict[str, Any]:
        """Makes a new key for a server that the host joins; returns its `SignedKey` as JSON."""
        self._run, self._private = run, X25519PrivateKey.generate()
        signed = SignedKey(self._workers, self._private.public_key().public_bytes_raw().hex())
        fingerprint = ""
        if (identity := self._own_identity()) is not None:
            signature = sign(identity, signed.statement(run)).hex()
            permit = permit_of(identity.certificate)
            chain = identity.certificate.decode()
            signed = SignedKey(signed.workers, signed.key, chain, signature=signature)
            fingerprint = permit.fingerprint if permit.role is not None else ""
        self.refused: set[int] = set()
        self._signed_keys = {self.host: signed}
        self._fingerprints = {self.host: fingerprint}
        self._pairs: dict[int, bytes] = {}
        as_json: dict[str, Any] = msgspec.to_builtins(signed)
        return as_json

    def learn(self, raw_keys: object) -> None:
        """Takes in other hosts' keys from the server; puts hosts with unproven keys in `refused`.

        Raises:
            NotMasked: the keys are malformed, or one of them is in this host's name.
        """
        try:
            signed_keys = msgspec.convert(raw_keys, list[SignedKey])
        except msgspec.ValidationError as error:
            raise NotMasked(f"it sends malformed keys ({error})") from error
        for signed in signed_keys:
            host = signed.workers[0]
            if host == self.host:
                raise NotMasked("it sends a key in this host's name")
            self._signed_keys.pop(host, None)
            self._pairs.pop(host, None)
            try:
                self._fingerprints[host] = check_key(signed, self._run, self._own_identity())
            except ValueError as error:
                _log.warning("the key that the server tells of host %d is refused: %s", host, error)
                self.refused.add(host)
                continue
            self._signed_keys[host] = signed
            self.refused.discard(host)

    def _own_identity(self) -> Identity | None:
        return None if self._identity is None else self._identity()

    def knows(self, host: int) -> bool:
        """Whether this host has accepted a key of another host, or made its own."""
        return host in self._signed_keys

    def signed(self, hosts: Iterable[int]) -> dict[int, SignedKey]:
        """The signed keys of some hosts, without hosts whose keys are not known."""
        return {host: self._signed_keys[host] for host in hosts if host in self._signed_keys}

    def num_sharers(self, keys: Iterable[SignedKey]) -> int:
        """As the function `num_sharers`, for hosts of this host's run."""
        return num_sharers(keys, certified=self._identity is not None)

    def keys_of(self, hosts: Iterable[int]) -> list[str]:
        """The public keys of some hosts.

        Raises:
            NotMasked: the server has not sent one of them, or two belong to the same host.
        """
        hosts = list(hosts)
        if unknown := [host for host in hosts if host not in self._signed_keys]:
            raise NotMasked(f"it has told no key of host {unknown[0]}")
        keys = [self._signed_keys[host].key for host in hosts]
        owners = [self._fingerprints[host] or self._signed_keys[host].key for host in hosts]
        if len(set(owners)) < len(hosts) or len(set(keys)) < len(hosts):
            raise NotMasked("it names a host twice, or two with the same key or certificate")
        return keys

    def derived(self, other: int, use: bytes) -> bytes:
        """The key for one use that this host and another one share, 32 bytes."""
        return derived(self._pair(other), use)

    def seal(self, other: int, context: bytes, data: bytes) -> bytes:
        """Encrypts data for another host, which refuses them if they were changed on the way."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher(other, self.host).encrypt(nonce, data, context)

    def unseal(self, other: int, context: bytes, sealed: bytes) -> bytes:
        """Decrypts what another host has sealed for this one in the same context.

        Raises:
            ValueError: that host has not sealed it for this one, or not in this context.
        """
        nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher(other, other).decrypt(nonce, text, context)
        except (InvalidTag, ValueError) as error:
            raise ValueError(f"host {other} has not sealed this for host {self.host}") from error

    def seal_message(self, other: int, message: Message) -> Tensor:
        """Encrypts a message for a host that knows its kind and iteration; uint8, one dimension."""
        context = _about(message.kind, message.iteration, self.host, taker=other)
        sealed = bytearray(self.seal(other, context, encode(message).body))
        return torch.frombuffer(sealed, dtype=torch.uint8)

    def unseal_message(self, other: int, kind: str, iteration: int, sealed: Tensor) -> Message:
        """Decrypts a message that another host has encrypted by `seal_message`.

        Raises:
            ValueError: that host has not encrypted it for this one, or it is no message.
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
        """The secret that this host and another one compute from their keys, 32 bytes."""
        if other not in self._pairs:
            own_key, other_key = self.keys_of([self.host, other])
            public = X25519PublicKey.from_public_bytes(bytes.fromhex(other_key))
            agreed = self._private.exchange(public)
            about = b"mdgan hosts " + self._run + "".join(sorted((own_key, other_key))).encode()
            self._pairs[other] = HKDF(SHA256(), length=32, salt=None, info=about).derive(agreed)
        return self._pairs[other]

    def _cipher(self, other: int, sender: int) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(self.derived(other, b"sealed by %d" % sender))


def _about(kind: str, iteration: int, giver: int, taker: int) -> bytes:
    return f"{kind} of {iteration} from {giver} to {taker}".encode()
