"""The message for a query with too many rows that fail, shared by gateway and engine host."""

from __future__ import annotations


def too_many_bad_rows(most: int, first_reason: str) -> str:
    """Return why a query counts as broken when more than ``most`` of 1,000 rows fail."""
    return (
        f"more than {most} of 1,000 rows fail, which dead_letters.most does not allow: the query is broken rather than "
        f"its data. The first failure: {first_reason}. Fix the query, its schema or the source, or raise "
        "dead_letters.most to make such rows dead letters"
    )
