"""Unused loopback ports, for servers that cannot choose one by themselves."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from itertools import cycle

# Below what Linux gives to connections and to binds of port 0 (32768 and up): what is free now is free when the
# server binds it, and again when it is restarted, whatever else was connected meanwhile.
_FIRST, _LAST = 20_000, 32_700
# Each process of tests begins elsewhere, and none gives a port twice until it has given all.
_BEGIN = random.randrange(_FIRST, _LAST)
_NEXT: Iterator[int] = cycle([*range(_BEGIN, _LAST), *range(_FIRST, _BEGIN)])


def free_ports(count: int) -> list[int]:
    """Different loopback ports on which nothing listens."""
    return [free_port() for _ in range(count)]


def free_port() -> int:
    """A loopback port on which nothing listens."""
    for _ in range(_FIRST, _LAST):
        port = next(_NEXT)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(port)
    raise AssertionError(f"no port from {_FIRST} to {_LAST} is free")
