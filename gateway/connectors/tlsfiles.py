"""A client's TLS certificate and trusted authorities, from the files that the config names."""

from __future__ import annotations

import ssl

from gateway.config.connectors.security import TlsConfig


class BadTlsFilesError(Exception):
    """The certificates or the key in the config cannot be used; the message says which and why."""


def client_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the TLS context of a client. Reads the files, so it blocks.

    Raises:
        BadTlsFilesError: a file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=None if tls.ca is None else str(tls.ca))
    except (OSError, ssl.SSLError) as error:
        raise BadTlsFilesError(
            f"tls.ca ({tls.ca}) is not a PEM file of authorities ({error}): name another file"
        ) from error
    if tls.certificate is not None:
        try:
            context.load_cert_chain(str(tls.certificate), None if tls.key is None else str(tls.key))
        except (OSError, ssl.SSLError) as error:
            raise BadTlsFilesError(
                f"tls.certificate ({tls.certificate}) and tls.key ({tls.key}) are not PEM files that belong together "
                f"({error}): name the right files"
            ) from error
    return context
