"""Credit: how many payload bytes may be in flight to a host before it reports that it consumed them.

The gateway counts them in ``gateway.core.exchange.lanes.credit``.
"""

from __future__ import annotations

CREDIT_BYTES = 16 << 20
"""The credit that an engine host grants each query."""
