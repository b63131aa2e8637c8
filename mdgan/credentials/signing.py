"""Signs a statement with the key of a certificate, and checks what others have signed."""

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from mdgan.credentials.identity import Identity, verify_chain
from mdgan.credentials.pem import UNREADABLE
from mdgan.credentials.permit import Permit, permit_in
from mdgan.errors import BadInput, reason_of

_PADDING = padding.PSS(padding.MGF1(SHA256()), padding.PSS.DIGEST_LENGTH)


def sign(identity: Identity, statement: bytes) -> bytes:
    """Signs with the own key: ECDSA with SHA-256, Ed25519, or RSA-PSS."""
    key = load_pem_private_key(identity.key, None)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(statement, ec.ECDSA(SHA256()))
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(statement)
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(statement, _PADDING, SHA256())
    raise BadInput(
        f"--key: {type(key).__name__} cannot sign what hosts tell each other; give a certificate "
        "with a key for ECDSA, Ed25519 or RSA"
    )


def check_signed(trusts: Identity, statement: bytes, chain: bytes, signature: bytes) -> Permit:
    """Checks that the owner of a certificate has signed a statement.

    Args:
        trusts: names the authorities that one of the certificates must lead to.
        chain: PEM, the signer's certificate first, then those between it and the authority.
        signature: as `sign` gives it.

    Raises:
        ValueError: in one line: the certificate is none that counts, or has not signed that.
    """
    try:
        own, *between = x509.load_pem_x509_certificates(chain)
        verify_chain([own, *between], x509.load_pem_x509_certificates(trusts.authorities))
        key, permit = own.public_key(), permit_in(own)
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, statement, ec.ECDSA(SHA256()))
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, statement)
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, statement, _PADDING, SHA256())
        else:
            raise ValueError("its key is neither ECDSA nor Ed25519 nor RSA")
    except InvalidSignature as error:
        raise ValueError("the signature is not that of its certificate") from error
    except (x509.verification.VerificationError, *UNREADABLE) as error:
        raise ValueError(f"its certificate does not count ({reason_of(error)})") from error
    return permit
