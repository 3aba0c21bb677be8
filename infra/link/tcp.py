"""The kernel's counters of a TCP connection, and the goodput and loss that they show.

Linux's ``struct tcp_info`` only grows at its end, so a prefix of fixed size is safe since Linux 4.19.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

# tcpi_total_retrans, tcpi_bytes_acked, tcpi_bytes_received, tcpi_data_segs_out, tcpi_bytes_sent by their places in the
# struct.
_INFO: Final = struct.Struct("=100xI16xQQ20xI40xQ")
_HELD: Final = 21


class Socket(Protocol):
    """A socket whose options can be read."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
        """As ``socket.socket``."""
        ...


@dataclass(frozen=True, slots=True)
class TcpCounts:
    """What a connection has carried since it was opened, TLS included, without the headers of TCP and IP.

    Attributes:
        acked_bytes: bytes that the other end has acknowledged.
        segments: segments with data, retransmissions included.
        again: retransmitted segments.
        sent_bytes: bytes sent, retransmissions included.
        received_bytes: bytes received in order.
    """

    acked_bytes: int
    segments: int
    again: int
    sent_bytes: int = 0
    received_bytes: int = 0


def tcp_counts(connection: Socket) -> TcpCounts | None:
    """Read the kernel's counters; None if it has none."""
    if sys.platform != "linux":
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    except OSError:
        return None  # it is closed
    if len(info) < _INFO.size:
        return None
    again, acked_bytes, received_bytes, segments, sent_bytes = _INFO.unpack(info)
    return TcpCounts(acked_bytes, segments, again, sent_bytes, received_bytes)


class TcpMeter:
    """Goodput and loss over the last ``_HELD - 1`` looks."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, TcpCounts]] = deque(maxlen=_HELD)

    def look(self, at_s: float, counts: TcpCounts | None) -> None:
        """Add the counters at a time; calls come in order of time."""
        if counts is not None:
            self._seen.append((at_s, counts))

    @property
    def goodput_bytes_per_s(self) -> float | None:
        """Acknowledged bytes per second; None before the second look."""
        if len(self._seen) < 2 or self._seen[-1][0] <= self._seen[0][0]:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last.acked_bytes - first.acked_bytes) / (last_s - first_s)

    @property
    def loss(self) -> float | None:
        """The part of the segments that were retransmitted, slightly more than were lost; None without segments."""
        if not self._seen:
            return None
        first, last = self._seen[0][1], self._seen[-1][1]
        segments = last.segments - first.segments
        return min(1.0, (last.again - first.again) / segments) if segments > 0 else None
