"""A host's key and certificate: its own at first, the gateway's signature on it after enrolment."""

from __future__ import annotations

import datetime as dt
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from infra.link.certificates import (
    Credential,
    Purpose,
    TrustError,
    check_issued,
    request_signature,
    same_key,
    self_signed,
)
from infra.link.secret_files import write_private
from infra.link.trust import UserData


class HostIdentity:
    """A host's key and certificate: its own until the gateway has signed it.

    Use ``open``.

    Attributes:
        enrolled: True once a certificate of the gateway is in use: the token is spent.
    """

    def __init__(self, credential: Credential, ca_pem: str, host_name: str, saved_in: Path | None) -> None:
        self._credential = credential
        self._ca = _load_ca(ca_pem)
        self._host_name = host_name
        self._saved_in = saved_in
        self._contexts: list[ssl.SSLContext] = []
        self.enrolled = self._is_issued(credential.certificate)

    @classmethod
    def open(cls, user_data: UserData, directory: Path | None = None) -> HostIdentity:
        """Load the identity saved in ``directory``, or begin with a new key.

        A saved identity of another name or authority is not used: this is a new host then. With no directory the
        host enrols each time it starts.

        Raises:
            TrustError: the saved file is damaged, or the user data's CA cannot be read.
        """
        saved_in = None
        if directory is not None:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            saved_in = directory / "host.pem"
            if saved_in.exists():
                credential = Credential.from_pem(saved_in.read_bytes(), str(saved_in))
                saved = cls(credential, user_data.ca_pem, user_data.host, saved_in)
                if saved.enrolled:
                    return saved
        return cls(self_signed(user_data.host, dt.datetime.now(dt.UTC)), user_data.ca_pem, user_data.host, saved_in)

    @property
    def certificate_der(self) -> bytes:
        """The certificate in use."""
        return self._credential.certificate.public_bytes(Encoding.DER)

    def server_context(self) -> ssl.SSLContext:
        """Return a context that admits only the gateway; a later ``install`` changes it in place."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self._ca.public_bytes(Encoding.PEM).decode())
        context.num_tickets = 0  # a resumed session would go on with the certificate from before enrolment
        _use(context, self._credential)
        self._contexts.append(context)
        return context

    def csr(self) -> bytes:
        """Return a request (PEM) to sign this host's key."""
        return request_signature(self._credential.key, self._host_name)

    def install(self, certificate_pem: bytes) -> None:
        """Use a signed certificate from the next handshake on, and save it if there is a folder.

        Raises:
            TrustError: it is not for this key and name, or not of the gateway's authority; nothing changes then.
        """
        try:
            certificate = x509.load_pem_x509_certificate(certificate_pem)
        except ValueError as error:
            raise TrustError(f"the granted certificate cannot be read: {error}") from error
        check_issued(certificate, self._ca, self._host_name, Purpose.HOST)
        if not same_key(self._credential.key.public_key(), certificate):
            raise TrustError("the granted certificate is for another key")
        signed = Credential(self._credential.key, certificate)
        if self._saved_in is not None:
            write_private(self._saved_in, signed.to_pem())
        for context in self._contexts:
            _use(context, signed)
        self._credential = signed
        self.enrolled = True

    def _is_issued(self, certificate: x509.Certificate) -> bool:
        try:
            check_issued(certificate, self._ca, self._host_name, Purpose.HOST)
        except TrustError:
            return False
        return True


def _load_ca(ca_pem: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(ca_pem.encode())
    except ValueError as error:
        raise TrustError(f"the authority's certificate in the user data cannot be read: {error}") from error


def _use(context: ssl.SSLContext, credential: Credential) -> None:
    # ssl reads certificates from files only; this one is private to its owner and gone at once
    with tempfile.NamedTemporaryFile() as file:
        file.write(credential.to_pem())
        file.flush()
        context.load_cert_chain(file.name)
