"""The image's health check: exit 0 when what ``SPILLWAY_HEALTH``, or the argument, names answers well, else 1 and why.

``http://host:port/path`` must be answered with 2xx; ``tcp://host:port`` must take a connection.
"""

from __future__ import annotations

import os
import socket
import sys
import urllib.error
import urllib.parse
import urllib.request

WITHIN_S = 5.0
SAID_BYTES_MAX = 1000


def look(url: str) -> tuple[bool, str]:
    """Return whether it is well, and what it says.

    Raises:
        OSError: nothing answers.
        ValueError: the address cannot be right.
    """
    if url.startswith("tcp://"):
        where = urllib.parse.urlsplit(url)
        socket.create_connection((where.hostname or "", where.port or 0), timeout=WITHIN_S).close()
        return True, "it takes connections"
    if not url.startswith("http://"):
        raise ValueError("write http://host:port/path or tcp://host:port")
    try:
        with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:  # noqa: S310 -- http, as was just checked
            return True, answer.read(SAID_BYTES_MAX).decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return False, f"{error.code}: {error.read(SAID_BYTES_MAX).decode(errors='replace')}"


def main() -> int:
    """Look once."""
    url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SPILLWAY_HEALTH", "")
    try:
        well, said = look(url)
    except (OSError, ValueError) as error:
        well, said = False, str(error)
    print(f"{url}: {said}")  # noqa: T201 -- `docker inspect` shows it
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
