"""The image's health check. It exits with 0 if the address is healthy, else with 1.

The address is the argument, or else ``SPILLWAY_HEALTH``: ``http://host:port/path`` must answer with 2xx;
``tcp://host:port`` must accept a connection.
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
    """Return whether the address is healthy, and its answer.

    Raises:
        OSError: nothing answers.
        ValueError: the address is not valid.
    """
    if url.startswith("tcp://"):
        where = urllib.parse.urlsplit(url)
        socket.create_connection((where.hostname or "", where.port or 0), timeout=WITHIN_S).close()
        return True, "it accepts connections"
    if not url.startswith("http://"):
        raise ValueError("write http://host:port/path or tcp://host:port")
    try:
        with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:  # noqa: S310 -- http, as was just checked
            return True, answer.read(SAID_BYTES_MAX).decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return False, f"{error.code}: {error.read(SAID_BYTES_MAX).decode(errors='replace')}"


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
