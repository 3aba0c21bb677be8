"""The pattern: a rise within a minute after a large trade, with no fall below the first price right after it."""

from __future__ import annotations

from typing import Any

LARGE_SHARES = 1_000
WITHIN_S = 60
FOR_S = 10

RISES_SQL = """
SELECT selection, large.number AS large, rise.number AS rise, large.price AS before, rise.price AS after
FROM matches
"""


def rises_after_large_trades(rise: float) -> dict[str, Any]:
    """Return the ``pattern`` of a query over the columns of ``engines.ticks.trades.SCHEMA_DDL``.

    Args:
        rise: the least price after the rise as a part of the price of the large trade, such as 1.01.
    """
    return {
        "time": "at",
        "within": f"{WITHIN_S}s",
        "sequence": [
            {"name": "large", "when": f"shares >= {LARGE_SHARES}"},
            {"name": "rise", "when": f"symbol = large.symbol AND price >= {rise} * large.price"},
            {
                "name": "fall",
                "when": "symbol = large.symbol AND price < large.price",
                "times": "none",
                "for": f"{FOR_S}s",
            },
        ],
    }
