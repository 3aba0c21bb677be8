"""The TLS context of a client, from PEM files."""

from __future__ import annotations

import ssl


class BadTlsFilesError(Exception):
    """The certificates or the key in the config cannot be used; the message says which and why."""


def client_context(ca: str, certificate: str, key: str) -> ssl.SSLContext:
    """Return the TLS context of a client. Reads the files, so it blocks.

    Args:
        ca: the file of the trusted authorities; empty: the system's.
        certificate: the file of the client's certificate; empty: there is none.
        key: the file of its key.

    Raises:
        BadTlsFilesError: a file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise BadTlsFilesError(
            f"tls.ca ({ca}) is not a PEM file of authorities ({error}): name another file"
        ) from error
    if certificate:
        try:
            context.load_cert_chain(certificate, key or None)
        except (OSError, ssl.SSLError) as error:
            raise BadTlsFilesError(
                f"tls.certificate ({certificate}) and tls.key ({key}) are not PEM files that belong together "
                f"({error}): name the right files"
            ) from error
    return context
