"""Makes authorities and certificates: ECDSA on P-256 with SHA-256, X.509 version 3 (RFC 5280)."""

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mdgan.credentials.permit import names_for

CLOCKS_DIFFER = timedelta(minutes=5)
"""A certificate is valid from this long before it is made, since machines' clocks differ."""

_BOTH_ENDS = x509.ExtendedKeyUsage(
    [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
)


@dataclass(frozen=True)
class Authority:
    """The certificate and the key that sign all other certificates of a run."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def issue(
        self,
        name: str,
        role: str | None,
        ranks: Collection[int],
        valid_for: timedelta,
        clock: datetime,
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """Makes a certificate, valid as a client's and as a server's, and its key.

        Args:
            role: one of `ROLES`; None: any.
            valid_for: counted from `clock`; cut to the end of the authority's own certificate.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        end = min(clock + valid_for, self.certificate.not_valid_after_utc)
        builder = (
            _builder(name, self.certificate.subject, key, clock=clock, end=end)
            .add_extension(x509.BasicConstraints(False, None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(_BOTH_ENDS, critical=False)
            .add_extension(names_for(role, ranks), critical=False)
            .add_extension(self._key_identifier(), critical=False)
        )
        return builder.sign(self.key, hashes.SHA256()), key

    def revoke(
        self, before: Iterable[x509.RevokedCertificate], clock: datetime, *serials: int
    ) -> x509.CertificateRevocationList:
        """Signs a list of revoked certificates: those of the list `before`, and `serials`.

        The list is valid as long as the authority, since servers read it again when it changes.
        """
        entry = x509.RevokedCertificateBuilder(revocation_date=clock)
        entries = [*before, *(entry.serial_number(serial).build() for serial in serials)]
        builder = x509.CertificateRevocationListBuilder(revoked_certificates=entries)
        builder = builder.issuer_name(self.certificate.subject).last_update(clock)
        builder = builder.next_update(self.certificate.not_valid_after_utc)
        builder = builder.add_extension(x509.CRLNumber(len(entries)), critical=False)
        builder = builder.add_extension(self._key_identifier(), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def _key_identifier(self) -> x509.AuthorityKeyIdentifier:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())


def make_authority(valid_for: timedelta, clock: datetime) -> Authority:
    """Makes an authority that signs itself, and may sign certificates but no authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"mdgan authority {secrets.token_hex(4)}"  # tells authorities apart in messages
    builder = _builder(name, None, key, clock=clock, end=clock + valid_for)
    builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
    builder = builder.add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
    return Authority(builder.sign(key, hashes.SHA256()), key)


def _builder(
    name: str,
    issuer: x509.Name | None,
    key: ec.EllipticCurvePrivateKey,
    clock: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    """Begins a certificate with the parts that all have; issuer None: it signs itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(clock - CLOCKS_DIFFER)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(**allowed: bool) -> x509.KeyUsage:
    none_allowed = dict.fromkeys(
        (
            *("digital_signature", "key_cert_sign", "crl_sign", "content_commitment"),
            *("key_encipherment", "data_encipherment", "key_agreement"),
            *("encipher_only", "decipher_only"),
        ),
        False,
    )
    return x509.KeyUsage(**{**none_allowed, **allowed})
