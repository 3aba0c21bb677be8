"""Events for the function ``totals``, which sums ids by name, and what it answers by plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

USER = str(Path(__file__).parent / "user")


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number % 3}"} for number in range(first, first + count)]


def straight(count: int) -> list[dict[str, Any]]:
    totals = {"n0": 0, "n1": 0, "n2": 0}
    found = []
    for row in rows(0, count):
        totals[row["name"]] += row["id"]
        if row["id"] % 10 == 0:
            found.append({"name": row["name"], "total": totals[row["name"]]})
    return found


def ordered(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted((row["name"], row["total"]) for row in found)
