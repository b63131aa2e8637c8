"""Both ends of a new connection prove that they know the same secret, before anything else moves.

Each draws 32 random bytes and sends them; each then proves that it knows the key by an HMAC-SHA256
over its own role, the version of the protocol and both draws. The connecting end proves first.
A recorded proof is worth nothing with another draw, and neither end's proof passes for the other's.
With an empty key only the protocol and its version are checked.
"""

import hashlib
import hmac
import secrets
import socket
import struct

from mdgan.transport.until import Until

VERSION = 2
"""The version of the frames, and of which messages may come in which order."""
NONCE_BYTES = 32
PROOF_BYTES = 32
_MAGIC = b"mdgan\n"
_GREETING = struct.Struct(f"<6sH{NONCE_BYTES}s")
GREETING_BYTES = _GREETING.size
VERDICT_BYTES = 1 + PROOF_BYTES
_CLIENT = b"mdgan: who connects"
_SERVER = b"mdgan: who listens"


class HandshakeFailed(RuntimeError):
    """The other end closed, or did not answer in time."""


class NotMdgan(HandshakeFailed):
    """The other end speaks something else."""


class OtherVersion(HandshakeFailed):
    """The other end speaks another version of the protocol."""


class WrongToken(HandshakeFailed):
    """The other end does not know the key, or says that this end does not."""


def greeting(nonce: bytes, version: int = VERSION) -> bytes:
    """The first bytes that either end sends."""
    return _GREETING.pack(_MAGIC, version, nonce)


def read_greeting(data: bytes) -> bytes:
    """The draw in a greeting of GREETING_BYTES bytes.

    Raises:
        NotMdgan, OtherVersion: it speaks another protocol.
    """
    magic, version, nonce = _GREETING.unpack(data)
    if magic != _MAGIC:
        raise NotMdgan("it does not speak mdgan's protocol")
    if version != VERSION:
        raise OtherVersion(
            f"it speaks version {version} of mdgan's protocol, this is version {VERSION}; use the "
            "same version of mdgan everywhere"
        )
    return bytes(nonce)


def client_proof(key: bytes, client_nonce: bytes, server_nonce: bytes) -> bytes:
    """What the connecting end sends to prove that it knows the key."""
    return _proof(key, _CLIENT, client_nonce, server_nonce)


def server_proof(key: bytes, client_nonce: bytes, server_nonce: bytes) -> bytes:
    """What the listening end sends to prove that it knows the key."""
    return _proof(key, _SERVER, client_nonce, server_nonce)


def _proof(key: bytes, role: bytes, client_nonce: bytes, server_nonce: bytes) -> bytes:
    # All parts but the role have a fixed size, and no role is the beginning of the other.
    said = role + struct.pack("<H", VERSION) + client_nonce + server_nonce
    # HMAC fills short keys up with zeros, so that two keys could be one.
    return hmac.digest(hashlib.sha256(key).digest(), said, "sha256")


def as_client(connection: socket.socket, key: bytes, until: Until) -> None:
    """The connecting end.

    Raises:
        HandshakeFailed: with the reason in one line.
        Interrupted: asked to stop.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    _send(connection, greeting(nonce), until)
    theirs = read_greeting(_read(connection, GREETING_BYTES, until))
    _send(connection, client_proof(key, nonce, theirs), until)
    verdict = _read(connection, VERDICT_BYTES, until)
    if verdict[:1] != b"\x01":
        raise WrongToken("its join token is another one" if key else "it wants a join token")
    if not hmac.compare_digest(verdict[1:], server_proof(key, nonce, theirs)):
        raise WrongToken("it does not know the join token")


def as_server(connection: socket.socket, key: bytes, until: Until) -> None:
    """The listening end.

    Raises:
        HandshakeFailed: with the reason in one line.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    try:
        theirs = read_greeting(_read(connection, GREETING_BYTES, until))
    except OtherVersion:
        _send(connection, greeting(nonce), until)
        raise
    _send(connection, greeting(nonce), until)
    proof = _read(connection, PROOF_BYTES, until)
    if not hmac.compare_digest(proof, client_proof(key, theirs, nonce)):
        _send(connection, bytes(VERDICT_BYTES), until)
        raise WrongToken("its join token is wrong or missing")
    _send(connection, b"\x01" + server_proof(key, theirs, nonce), until)


def _send(connection: socket.socket, data: bytes, until: Until) -> None:
    """A few bytes, which fit the buffer of any new connection."""
    try:
        connection.settimeout(until.slice())
        connection.sendall(data)
    except OSError as error:
        raise HandshakeFailed("it closed the connection") from error


def _read(connection: socket.socket, num_bytes: int, until: Until) -> bytes:
    data = b""
    while len(data) < num_bytes:
        try:
            connection.settimeout(until.slice())
        except TimeoutError as error:
            raise HandshakeFailed(str(error)) from error
        try:
            piece = connection.recv(num_bytes - len(data))
        except TimeoutError:
            continue  # a slice is over, perhaps not the time
        except OSError as error:
            raise HandshakeFailed("it closed the connection") from error
        if not piece:
            raise HandshakeFailed("it closed the connection")
        data += piece
    return data
