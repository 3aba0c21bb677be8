"""The event cache of a lane: a run with selections sends only events that the lane does not have."""

from __future__ import annotations

from infra.payload.caching.decoding import CachingDecoder
from infra.payload.caching.encoding import CachingEncoder

__all__ = ["CachingDecoder", "CachingEncoder"]
