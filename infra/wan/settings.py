"""What a WAN does to packets, and the netem arguments for it. Pure."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Final

PACKET_BYTES: Final = 1514
_UNLIMITED_BITS_PER_S: Final = 10_000_000_000
# A router's buffer: how much it holds beyond the packets in transit, in seconds at its rate.
_QUEUE_S: Final = 0.1
_QUEUE_PACKETS_MIN: Final = 32
# What certainly fits into the small virtual machine's memory.
_PACKETS_MAX: Final = 30_000


class Direction(enum.Enum):
    """One direction of the WAN."""

    UP = "up"
    """From home to the cloud."""
    DOWN = "down"
    """From the cloud to home."""


@dataclass(frozen=True, slots=True)
class WanSettings:
    """What happens to the packets of one direction; packets keep their order.

    Attributes:
        delay_s: one way.
        jitter_s: the delay varies by up to this much, either way.
        loss: the share of packets that is lost, independently of each other.
        rate_bits_per_s: of packets with their Ethernet headers; None: not limited.

    Raises:
        ValueError: a value is out of range.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    rate_bits_per_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.delay_s < math.inf:
            raise ValueError(f"a delay of {self.delay_s} s: it must be finite and not negative")
        if not 0 <= self.jitter_s <= self.delay_s:
            raise ValueError(f"a jitter of {self.jitter_s} s: it must not be negative, and at most the delay")
        if not 0 <= self.loss <= 1:
            raise ValueError(f"a loss of {self.loss}: it must be a share from 0 to 1")
        if self.rate_bits_per_s is not None and not 1 <= self.rate_bits_per_s < math.inf:
            raise ValueError(
                f"a rate of {self.rate_bits_per_s} bit/s: it must be finite and at least 1; None means no limit"
            )

    def netem(self, *, is_cut: bool) -> list[str]:
        """Return netem's arguments for these settings; always all, since netem keeps the values of missing ones."""
        rate_bits_per_s = self.rate_bits_per_s or _UNLIMITED_BITS_PER_S
        loss = 1.0 if is_cut else self.loss
        return [
            *("delay", f"{self.delay_s * 1e6:.0f}us", f"{self.jitter_s * 1e6:.0f}us"),
            *("loss", f"{loss * 100:.6f}%"),
            # With a rate, netem keeps packets in order; without one, jitter would reorder them.
            *("rate", f"{rate_bits_per_s:.0f}bit"),
            *("limit", str(self._limit_packets(rate_bits_per_s))),
        ]

    def _limit_packets(self, rate_bits_per_s: float) -> int:
        packets_per_s = rate_bits_per_s / 8 / PACKET_BYTES
        under_way = packets_per_s * (self.delay_s + self.jitter_s)
        queued = max(_QUEUE_PACKETS_MIN, packets_per_s * _QUEUE_S)
        return min(_PACKETS_MAX, math.ceil(under_way + queued))
