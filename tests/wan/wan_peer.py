"""The programs at both ends of the WAN in its tests. All share one monotonic clock, so each direction can be timed.

``echo`` answers each line with its time of arrival, and prints the line. ``ask`` sends a line for each line of its
input and prints when it was sent, received and answered. ``sink`` measures what ``flood`` sends. ``count`` and
``burst`` do the same with datagrams.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections.abc import Callable

_BLOCK_BYTES = 1 << 16
_MEASURED_S = 3.0


def accepted() -> socket.socket:
    with socket.create_server(("0.0.0.0", 0)) as server:
        print(server.getsockname()[1], flush=True)
        return server.accept()[0]


def echo() -> None:
    with accepted() as connection, connection.makefile("rw") as lines:
        for line in lines:
            print(line.strip(), flush=True)
            lines.write(f"{time.monotonic()}\n")
            lines.flush()


def ask(address: str, port: str) -> None:
    with socket.create_connection((address, int(port))) as connection, connection.makefile("rw") as lines:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print("connected", flush=True)
        for line in sys.stdin:
            sent_s = time.monotonic()
            lines.write(line)
            lines.flush()
            heard_s = float(lines.readline())
            print(json.dumps({"up_s": heard_s - sent_s, "down_s": time.monotonic() - heard_s}), flush=True)


def sink() -> None:
    # From the first moment on, and so never more than the rate: a receiver that stood still has nothing to catch up.
    with accepted() as connection:
        buffer, received_bytes, start_s = bytearray(1 << 20), 0, time.monotonic()
        while (elapsed_s := time.monotonic() - start_s) < _MEASURED_S:
            received_bytes += connection.recv_into(buffer)
        print(received_bytes * 8 / elapsed_s, flush=True)


def flood(address: str, port: str) -> None:
    with socket.create_connection((address, int(port))) as connection:
        block = bytes(_BLOCK_BYTES)
        try:
            while True:
                connection.sendall(block)
        except OSError:
            return


def count(wanted: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("0.0.0.0", 0))
        receiver.settimeout(60)
        print(receiver.getsockname()[1], flush=True)
        came = [int(receiver.recv(1500))]
        receiver.settimeout(5)  # of those that are lost nothing is heard
        with contextlib.suppress(TimeoutError):
            while len(came) < int(wanted):
                came.append(int(receiver.recv(1500)))
        print(json.dumps(came), flush=True)


def burst(address: str, port: str, wanted: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for number in range(int(wanted)):
            sender.sendto(str(number).encode(), (address, int(port)))
            time.sleep(0.002)


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {"echo": echo, "ask": ask, "sink": sink}
    programs |= {"flood": flood, "count": count, "burst": burst}
    programs[sys.argv[1]](*sys.argv[2:])
