"""Who overtook whom, as a query over selections: one opens with each vehicle, and closes when that vehicle leaves."""

from __future__ import annotations

from typing import Any, Final

SELECTIONS: Final[dict[str, Any]] = {
    "time": "at",
    "opens": {"when": "position = 1"},
    "closes": {"when": "position = 2", "same": "vehicle", "after": "1h"},
}
"""The section ``selections`` of the query; a vehicle that does not leave within the hour has stopped."""

SQL: Final = """
WITH vehicles AS (
  SELECT selection, vehicle, count(DISTINCT position) = 2 AS passed_both, min(at) AS came, max(at) AS last
  FROM events GROUP BY selection, vehicle
), slow AS (
  SELECT selection, min_by(vehicle, came) AS vehicle FROM vehicles GROUP BY selection
)
SELECT fast.selection, slow.vehicle AS slow, fast.vehicle AS fast, fast.last AS at
FROM vehicles AS fast JOIN slow ON fast.selection = slow.selection
WHERE fast.passed_both AND fast.vehicle <> slow.vehicle
"""
"""Each other vehicle that came and left in a selection has overtaken the vehicle with which the selection opened."""
