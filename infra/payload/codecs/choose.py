"""Chooses the codec that costs least: a pure decision over measured bytes and seconds.

The paper selects fields for compression by profiling offline (ESM, section 5.2). Here the same comparison is repeated
while the stream runs, because sizes, CPU load and link change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Codec = Literal["none", "gzip", "zstd", "zstd-dict"]

CODECS: tuple[Codec, ...] = ("none", "zstd", "zstd-dict", "gzip")
"""All codecs, the simplest first: of two with the same cost the earlier is chosen."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The result of packing ``raw_bytes`` with a codec: CPU seconds and the bytes left to send."""

    raw_bytes: float
    sent_bytes: float
    cpu_s: float

    def merged(self, newer: Measurement, weight: float) -> Measurement:
        """Add ``newer`` to this measurement, which counts with ``weight`` (0 to 1), so that old samples fade."""
        return Measurement(
            raw_bytes=self.raw_bytes * weight + newer.raw_bytes,
            sent_bytes=self.sent_bytes * weight + newer.sent_bytes,
            cpu_s=self.cpu_s * weight + newer.cpu_s,
        )

    def cost_s(self, link_rate: float) -> float:
        """Return the seconds that one raw byte costs: packing it, then sending the rest at ``link_rate`` bytes/s."""
        return (self.cpu_s + self.sent_bytes / link_rate) / self.raw_bytes


def choose(measurements: Mapping[Codec, Measurement], link_rate: float) -> Codec:
    """Return the codec with the least ``cpu_s + sent_bytes / link_rate`` for each raw byte.

    Args:
        measurements: by codec, each over at least one raw byte; codecs that were not measured cannot win.
        link_rate: bytes/s that the link carries, above 0.

    Raises:
        ValueError: without any measurement, or with a rate that is not positive.
    """
    if not link_rate > 0:
        raise ValueError(f"the link rate must be above 0 bytes/s, not {link_rate}")
    measured = [codec for codec in CODECS if codec in measurements]
    if not measured:
        raise ValueError("no codec has been measured, so none can be chosen")
    return min(measured, key=lambda codec: measurements[codec].cost_s(link_rate))
