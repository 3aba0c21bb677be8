"""The image's health check. It exits with 0 if the address is healthy, else with 1.

The address is the argument, or else ``SPILLWAY_HEALTH``: ``http://host:port/path`` must answer with 2xx;
``tcp://host:port`` must accept a connection. With ``https://host:port/path`` the first certificate of the PEM file
``SPILLWAY_CERTIFICATE`` must be the server's, whatever its name.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

WITHIN_S = 5.0
SAID_BYTES_MAX = 1000


def look(url: str) -> tuple[bool, str]:
    """Return whether the address is healthy, and its answer.

    Raises:
        OSError: nothing answers.
        ValueError: the address is not valid.
    """
    if url.startswith("tcp://"):
        where = urllib.parse.urlsplit(url)
        socket.create_connection((where.hostname or "", where.port or 0), timeout=WITHIN_S).close()
        return True, "it accepts connections"
    if not url.startswith(("http://", "https://")):
        raise ValueError("write http://host:port/path, https://host:port/path or tcp://host:port")
    context = accepting(os.environ.get("SPILLWAY_CERTIFICATE", "")) if url.startswith("https://") else None
    try:
        with urllib.request.urlopen(url, timeout=WITHIN_S, context=context) as answer:  # noqa: S310 -- as was checked
            return True, answer.read(SAID_BYTES_MAX).decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return False, f"{error.code}: {error.read(SAID_BYTES_MAX).decode(errors='replace')}"


def accepting(certificate: str) -> ssl.SSLContext:
    """Return the TLS context of a client that accepts only the first certificate of a file.

    Raises:
        OSError: the file cannot be read, or has no certificate.
        ValueError: the same.
    """
    if not certificate:
        raise ValueError("https needs SPILLWAY_CERTIFICATE: the path of the gateway's certificate in the container")
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    _, found, text = Path(certificate).read_text(encoding="ascii").partition(begin)
    if not found:
        raise ValueError(f"{certificate} has no certificate in PEM: name the right file in SPILLWAY_CERTIFICATE")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=begin + text.partition(end)[0] + end)
    return context


def main() -> int:
    """Check the address once."""
    url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SPILLWAY_HEALTH", "")
    try:
        well, said = look(url)
    except (OSError, ValueError) as error:
        well, said = False, str(error)
    print(f"{url}: {said}")  # noqa: T201 -- `docker inspect` shows it
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
