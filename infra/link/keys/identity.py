"""A host's key and certificate: self-signed at first, signed by the gateway after enrolment.

Renewal: the host gets the certificate of another authority and presents a new key that this authority signed. Until a
gateway proves itself with the new authority, the host trusts the old one, too: the gateway may be killed before it has
reached all its hosts.
"""

from __future__ import annotations

import datetime as dt
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from infra.link.keys.certificates import (
    Credential,
    Purpose,
    TrustError,
    check_issued,
    is_issued,
    new_key,
    request_signature,
    same_key,
    self_signed,
)
from infra.link.keys.secret_files import write_private
from infra.link.keys.trust import GATEWAY_NAME, UserData


@dataclass(frozen=True)
class Renewal:
    """A new key that waits for its certificate, and the authority that will sign it."""

    key: ec.EllipticCurvePrivateKey
    ca: x509.Certificate
    csr_pem: bytes


class HostIdentity:
    """A host's key and certificate: self-signed until the gateway has signed it.

    Use ``open``.

    Attributes:
        enrolled: True once a certificate of the gateway is in use: the token is spent.
        context: accepts only the gateway; get it anew for each connection, as it changes with the certificates.
    """

    def __init__(
        self,
        credential: Credential,
        ca_pem: str,
        host_name: str,
        saved_in: Path | None,
        trusted: tuple[x509.Certificate, ...] = (),
    ) -> None:
        self._credential = credential
        self._user_data_ca = _load_ca(ca_pem, "in the user data")
        self._trusted = trusted or (self._user_data_ca,)
        self._host_name = host_name
        self._saved_in = saved_in
        self.enrolled = is_issued(credential.certificate, self._trusted[0], host_name, Purpose.HOST)
        self.context = self._new_context()

    @classmethod
    def open(cls, user_data: UserData, directory: Path | None = None) -> HostIdentity:
        """Load the identity saved in ``directory``, or begin with a new key.

        A saved identity with another name or authority is ignored: this is then a new host. Without a directory the
        host enrols each time it starts.

        Raises:
            TrustError: the saved file is damaged, or the user data's CA cannot be read.
        """
        saved_in = None
        if directory is not None:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            saved_in = directory / "host.pem"
            if saved_in.exists():
                pem = saved_in.read_bytes()
                credential = Credential.from_pem(pem, str(saved_in))
                _, *trusted, user_data_ca = x509.load_pem_x509_certificates(pem)
                saved = cls(credential, user_data.ca_pem, user_data.host, saved_in, tuple(trusted))
                if saved.enrolled and user_data_ca == saved._user_data_ca:
                    return saved
        return cls(self_signed(user_data.host, dt.datetime.now(dt.UTC)), user_data.ca_pem, user_data.host, saved_in)

    @property
    def certificate_der(self) -> bytes:
        """The certificate in use."""
        return self._credential.certificate.public_bytes(Encoding.DER)

    def csr(self) -> bytes:
        """Return a request (PEM) to sign this host's key."""
        return request_signature(self._credential.key, self._host_name)

    def install(self, certificate_pem: bytes) -> None:
        """Use a signed certificate from the next handshake on, and save it if there is a folder.

        Raises:
            TrustError: it is not for this key and name, or not from the gateway's authority; nothing changes then.
        """
        self._use(Renewal(self._credential.key, self._trusted[0], b""), certificate_pem)

    def renewal(self, ca_pem: bytes) -> Renewal:
        """Return a new key for an authority that an authenticated gateway named.

        Raises:
            TrustError: the authority's certificate cannot be read.
        """
        key = new_key()
        ca = _load_ca(ca_pem.decode(errors="replace"), "that is to follow")
        return Renewal(key, ca, request_signature(key, self._host_name))

    def renew(self, renewal: Renewal, certificate_pem: bytes) -> None:
        """Present the new key from the next handshake on, and trust its authority in addition to the previous one.

        Raises:
            TrustError: the certificate is not for that key and name, or not from that authority; nothing changes then.
        """
        self._use(renewal, certificate_pem)

    def met(self, gateway_der: bytes) -> None:
        """Trust only the newest authority once a gateway has proved itself with it."""
        if len(self._trusted) == 1:
            return
        shown = x509.load_der_x509_certificate(gateway_der)
        if is_issued(shown, self._trusted[0], GATEWAY_NAME, Purpose.GATEWAY):
            self._trusted = self._trusted[:1]
            self._save()
            self.context = self._new_context()

    def _use(self, renewal: Renewal, certificate_pem: bytes) -> None:
        try:
            certificate = x509.load_pem_x509_certificate(certificate_pem)
        except ValueError as error:
            raise TrustError(f"the granted certificate cannot be read: {error}") from error
        check_issued(certificate, renewal.ca, self._host_name, Purpose.HOST)
        if not same_key(renewal.key.public_key(), certificate):
            raise TrustError("the granted certificate is for another key")
        # After several interrupted renewals, trust only the authority before the first one and the newest.
        before = [ca for ca in self._trusted[-1:] if ca != renewal.ca]
        self._credential = Credential(renewal.key, certificate)
        self._trusted = (renewal.ca, *before)
        self._save()
        self.context = self._new_context()
        self.enrolled = True

    def _save(self) -> None:
        if self._saved_in is not None:
            trusted = b"".join(ca.public_bytes(Encoding.PEM) for ca in (*self._trusted, self._user_data_ca))
            write_private(self._saved_in, self._credential.to_pem() + trusted)

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        for ca in self._trusted:
            context.load_verify_locations(cadata=ca.public_bytes(Encoding.PEM).decode())
        context.num_tickets = 0  # a resumed session would keep the old certificate
        # ssl reads certificates from files only; this one is readable by its owner only, and is deleted at once
        with tempfile.NamedTemporaryFile() as file:
            file.write(self._credential.to_pem())
            file.flush()
            context.load_cert_chain(file.name)
        return context


def _load_ca(ca_pem: str, which: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(ca_pem.encode())
    except ValueError as error:
        raise TrustError(f"the authority's certificate {which} cannot be read: {error}") from error
