"""Chooses which runs are traced, and makes the ids of their traces and spans. Pure: the same seed gives the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceIds:
    """The ids of one gateway.

    Attributes:
        seed: other for each start of each gateway, so that ids do not repeat.
        share: the part of the runs that is traced, in (0, 1].
    """

    seed: bytes
    share: float

    def is_sampled(self, query: str, first_seq: int) -> bool:
        """Return whether a run is traced; all parts of a divided query trace the same runs."""
        return self._number("sample", query, first_seq, bits=53) < self.share * 2**53

    def trace_id(self, query: str, first_seq: int) -> int:
        """Return the id of a run's trace, 128 bits, not 0; all parts of a divided query have the same."""
        return self._number("trace", query, first_seq, bits=128) or 1

    def span_id(self, query: str, part: int | None, first_seq: int, index: int) -> int:
        """Return the id of a span, 64 bits, not 0."""
        return self._number("span", query, part, first_seq, index, bits=64) or 1

    def _number(self, *words: object, bits: int) -> int:
        digest = hashlib.blake2b(repr(words).encode(), digest_size=16, key=self.seed).digest()
        return int.from_bytes(digest) >> (128 - bits)
