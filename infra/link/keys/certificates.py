"""X.509 without files or sockets: the gateway's own authority, its client certificate, the hosts' certificates.

Keys are EC P-256. A certificate's extended key usage says which end of a link it is for, so that a host's certificate
cannot pose as a gateway to another host.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from enum import Enum

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
_CLOCK_SKEW = dt.timedelta(days=1)
_HOST_NAME = re.compile(r"(?=.{1,63}\Z)[a-z]([a-z0-9-]*[a-z0-9])?(\.[a-z]([a-z0-9-]*[a-z0-9])?)*")


class TrustError(Exception):
    """The other end could not prove its identity, or our own keys or certificates are missing or damaged."""


class Purpose(Enum):
    """Which end of a link a certificate is for."""

    GATEWAY = ExtendedKeyUsageOID.CLIENT_AUTH
    HOST = ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(frozen=True)
class Credential:
    """A certificate and the key that belongs to it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> bytes:
        """Return the certificate alone."""
        return self.certificate.public_bytes(Encoding.PEM)

    def to_pem(self) -> bytes:
        """Return key and certificate as one PEM text, so that one file holds both or neither."""
        key_pem = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key_pem + self.certificate_pem

    @classmethod
    def from_pem(cls, pem: bytes, where: str) -> Credential:
        """Read what ``to_pem`` wrote.

        Raises:
            TrustError: ``where`` holds something else, or a key that does not fit the certificate.
        """
        try:
            key = load_pem_private_key(pem, password=None)
            certificate = x509.load_pem_x509_certificate(pem)
        except ValueError as error:
            raise TrustError(f"{where} holds no key with its certificate: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not same_key(key.public_key(), certificate):
            raise TrustError(f"{where}: the key does not belong to the certificate")
        return cls(key, certificate)


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key."""
    return ec.generate_private_key(ec.SECP256R1())


def checked_host_name(name: str) -> str:
    """Return ``name`` if it is a valid DNS name for a certificate: a-z, 0-9, hyphens, dots; at most 63 characters.

    Raises:
        TrustError: it is not.
    """
    if not _HOST_NAME.fullmatch(name):
        raise TrustError(f"{name!r} cannot name a host: use a-z, 0-9, '-' and '.', begin with a letter, at most 63")
    return name


def new_authority(now: dt.datetime) -> Credential:
    """Return a new self-signed authority that may sign end certificates only."""
    key = new_key()
    name = _name("Spillway gateway authority")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(name, name, key.public_key(), now, now + dt.timedelta(days=AUTHORITY_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    return Credential(key, builder.sign(key, hashes.SHA256()))


def self_signed(host_name: str, now: dt.datetime) -> Credential:
    """Return the certificate that a host presents before its key is signed."""
    key = new_key()
    name = _name(checked_host_name(host_name))
    builder = _builder(name, name, key.public_key(), now, now + dt.timedelta(days=AUTHORITY_DAYS))
    return Credential(key, builder.sign(key, hashes.SHA256()))


def issue(
    authority: Credential,
    public_key: ec.EllipticCurvePublicKey,
    name: str,
    purpose: Purpose,
    now: dt.datetime,
    serial: int | None = None,
) -> x509.Certificate:
    """Return a certificate, valid as long as the authority itself; ``name`` is its only subject alternative name."""
    issuer = authority.certificate
    builder = _builder(
        _name(name),
        issuer.subject,
        public_key,
        now,
        issuer.not_valid_after_utc,
        issuer_key=authority.key.public_key(),
        serial=serial,
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose.value]), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def request_signature(key: ec.EllipticCurvePrivateKey, host_name: str) -> bytes:
    """Return a signing request (PEM) for ``key``."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(host_name))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def requested_key(csr_pem: bytes) -> ec.EllipticCurvePublicKey:
    """Return the key of a signing request; everything else in it is ignored.

    Raises:
        TrustError: it is not a request, its own signature is wrong, or the key is not EC P-256.
    """
    try:
        request = x509.load_pem_x509_csr(csr_pem)
        key = request.public_key()
        valid = request.is_signature_valid
    except (ValueError, InvalidSignature, TypeError) as error:
        raise TrustError(f"the signing request cannot be read: {error}") from error
    if not valid:
        raise TrustError("the signing request is not signed by its own key")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise TrustError("the signing request holds no EC P-256 key")
    return key


def check_issued(certificate: x509.Certificate, ca: x509.Certificate, name: str, purpose: Purpose) -> None:
    """Check that ``ca`` issued the certificate for ``name`` and ``purpose``.

    Raises:
        TrustError: it was not.
    """
    try:
        certificate.verify_directly_issued_by(ca)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
        raise TrustError(f"the certificate of {name} was not issued by this gateway's authority") from error
    if names.get_values_for_type(x509.DNSName) != [name]:
        raise TrustError(f"the certificate is for {names.get_values_for_type(x509.DNSName)}, not for {name}")
    if purpose.value not in usage:
        raise TrustError(f"the certificate of {name} is not for a {purpose.name.lower()}")


def is_issued(certificate: x509.Certificate, ca: x509.Certificate, name: str, purpose: Purpose) -> bool:
    """Return whether ``ca`` issued the certificate for ``name`` and ``purpose``."""
    try:
        check_issued(certificate, ca, name, purpose)
    except TrustError:
        return False
    return True


def same_key(public_key: ec.EllipticCurvePublicKey, certificate: x509.Certificate) -> bool:
    """Return whether the certificate is for this key."""
    spki = PublicFormat.SubjectPublicKeyInfo
    mine = public_key.public_bytes(Encoding.DER, spki)
    return certificate.public_key().public_bytes(Encoding.DER, spki) == mine


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: dt.datetime,
    until: dt.datetime,
    *,
    issuer_key: ec.EllipticCurvePublicKey | None = None,
    serial: int | None = None,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key or public_key), critical=False)
    )
