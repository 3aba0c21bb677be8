"""A server's TLS certificate and key, and how a client of this machine recognizes that server.

A renewed certificate is used from the next connection on, without a restart.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Final, NoReturn

from gateway.config.connectors.security import ServerTlsConfig
from infra.clienttls import BadTlsFilesError

_LOG = logging.getLogger(__name__)
_PEM_BYTES_MOST: Final = 1 << 20
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_Stamp = tuple[tuple[int, int, int], ...]


def server_context(tls: ServerTlsConfig) -> ssl.SSLContext:
    """Return the TLS context of a server. Reads the files now, and again at the first connection after they changed.

    Files that do not belong together are logged, and the earlier ones stay in use: a renewal may have written only one
    of them yet.

    Raises:
        BadTlsFilesError: the files cannot be used.
    """
    renewing = _Renewing(tls)
    # It is called in each handshake, also if the client names no server.
    renewing.context.sni_callback = renewing.choose
    return renewing.context


class _Renewing:
    """Loads a certificate again when its files have changed; ``context`` has the newest one that could be used."""

    def __init__(self, tls: ServerTlsConfig) -> None:
        self._tls = tls
        # Before they are loaded: if they change meanwhile, they are loaded again.
        self._stamp = self._look()
        self.context = _loaded(tls)

    def choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
        """Give a new connection the newest certificate."""
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self.context = _loaded(self._tls)
                _LOG.info("%s has changed: new connections use it", self._tls.certificate)
            except BadTlsFilesError as error:
                _LOG.warning("the earlier certificate stays in use: %s", error)
        connection.context = self.context

    def _look(self) -> _Stamp | None:
        """Return what changes with the content of the files; None if one is missing."""
        try:
            found = [path.stat() for path in (self._tls.certificate, self._tls.key)]
        except OSError:
            return None
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)


def _loaded(tls: ServerTlsConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def ask() -> NoReturn:
        # Otherwise OpenSSL would ask for it on the terminal, and the gateway would wait.
        raise BadTlsFilesError(f"{tls.key} is encrypted with a password: name a key without one")

    try:
        context.load_cert_chain(tls.certificate, tls.key, password=ask)
    except OSError as error:
        raise BadTlsFilesError(
            f"{tls.certificate} and {tls.key} are not a certificate with its key in PEM ({error.strerror or error}): "
            "name the right files"
        ) from error
    return context


def pinned_context(certificate: Path) -> ssl.SSLContext:
    """Return the TLS context of a client that accepts one certificate only: the first one in a PEM file.

    The client does not compare names: it may reach the server at an address that the certificate does not name.

    Raises:
        BadTlsFilesError: the file has no certificate.
    """
    try:
        with certificate.open(encoding="ascii") as file:
            text = file.read(_PEM_BYTES_MOST)
        begin = text.index(_BEGIN)
        first = text[begin : text.index(_END, begin) + len(_END)]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        # The certificate itself is trusted, whoever signed it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=first)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadTlsFilesError(f"{certificate} has no certificate in PEM ({why}): name the right file") from error
    return context
