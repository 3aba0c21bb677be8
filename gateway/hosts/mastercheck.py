"""Checks whether Spark's master answers at its configured address.

Spark itself tries for a minute and then fails with a stack trace; this check reports a wrong host within seconds.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from typing import Final

from infra.clock import Clock

KEY: Final = ("private", "spark", "master")
_WITHIN_S: Final = 5.0
_PORTS: Final = {"http": 80, "https": 443}
# A frame of Spark's own protocol: its length, the type of a stream request, the length and name of the stream. No
# master has this stream, and each master says so. An accepted connection alone proves little: a proxy or a firewall may
# accept any.
_STREAM: Final = b"/files/spillway"
_HELLO: Final = struct.pack(">qbI", 8 + 1 + 4 + len(_STREAM), 6, len(_STREAM)) + _STREAM


class MasterAwayError(OSError):
    """No address of the master answers.

    Args:
        why: the reason for each address.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"{'.'.join(KEY)}: {why}")
        self.why = why


def see_master(master: str, clock: Clock, within_s: float = _WITHIN_S) -> None:
    """Check that a master answers; of several addresses, one is enough. Blocks.

    A standalone master gets a request in Spark's protocol; for Kubernetes a connection is enough.

    Args:
        master: Spark's master URL; ``local`` and ``yarn`` have no address to check.
        clock: time.
        within_s: for all addresses together.

    Raises:
        MasterAwayError: no address answers.
    """
    addresses = master_addresses(master)
    if not addresses:
        return
    answers: queue.Queue[tuple[str, str]] = queue.Queue()
    hello = _HELLO if master.startswith("spark://") else b""
    for host, port in addresses:
        # Threads that are never joined: a name lookup may take longer, and cannot be cancelled.
        threading.Thread(target=_try, args=(host, port, hello, within_s, answers), daemon=True).start()
    failed = {f"{host}:{port}": f"no answer within {within_s:g} s" for host, port in addresses}
    deadline_s = clock.now() + within_s
    for _ in addresses:
        try:
            address, trouble = answers.get(timeout=max(0.0, deadline_s - clock.now()))
        except queue.Empty:
            break
        if not trouble:
            return
        failed[address] = trouble
    said = ", ".join(f"{address} ({why})" for address, why in failed.items())
    raise MasterAwayError(f"no Spark master answers at {said}; start it, or correct its host and port in the config")


def master_addresses(master: str) -> list[tuple[str, int]]:
    """Return host and port of each address in a master's URL; none for ``local`` and ``yarn``."""
    _, slashes, rest = master.partition("://")
    if not slashes:
        return []
    scheme, inner, after = rest.partition("://")
    standard = _PORTS.get(scheme if inner else "https", 443)
    parts = (after if inner else rest).partition("/")[0].split(",")
    return [_address(part, standard) for part in parts]


def _address(text: str, standard: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = text, str(standard)
    return host.strip("[]"), int(port)


def _try(host: str, port: int, hello: bytes, within_s: float, answers: queue.Queue[tuple[str, str]]) -> None:
    trouble = ""
    try:
        with socket.create_connection((host, port), timeout=within_s) as connection:
            if hello:
                connection.sendall(hello)
                # A master that requires TLS or a password closes the connection, which is an answer, too.
                trouble = "something else answers: HTTP" if connection.recv(5) == b"HTTP/" else ""
    except TimeoutError:
        trouble = f"no answer within {within_s:g} s"
    except OSError as error:
        trouble = error.strerror or str(error)
    except (OverflowError, UnicodeError) as error:
        trouble = str(error)
    answers.put((f"{host}:{port}", trouble))
