"""Credit: how many payload bytes may be on their way to a host that has not said that it consumed them.

The gateway counts them in ``gateway.core.exchange.lanes.credit``.
"""

from __future__ import annotations

CREDIT_BYTES = 16 << 20
"""What an engine host grants each query."""
