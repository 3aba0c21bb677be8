"""A client's TLS certificate and trusted authorities, from the files that the config names."""

from __future__ import annotations

import ssl

from gateway.config.connectors.security import TlsConfig


class BadTlsFilesError(Exception):
    """The certificates or the key that the config names cannot be used; the message says which and why."""


def client_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return what a client needs. Blocks on the files.

    Raises:
        BadTlsFilesError: a file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=None if tls.ca is None else str(tls.ca))
    except (OSError, ssl.SSLError) as error:
        raise BadTlsFilesError(f"tls.ca ({tls.ca}) is no PEM file of authorities ({error}): give another") from error
    if tls.certificate is not None:
        try:
            context.load_cert_chain(str(tls.certificate), None if tls.key is None else str(tls.key))
        except (OSError, ssl.SSLError) as error:
            raise BadTlsFilesError(
                f"tls.certificate ({tls.certificate}) and tls.key ({tls.key}) are no PEM files that belong together "
                f"({error}): give the right ones"
            ) from error
    return context
