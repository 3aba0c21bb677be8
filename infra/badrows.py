"""What gateway and engine host both say of a query of which too many rows fail."""

from __future__ import annotations


def too_many_bad_rows(most: int, first_reason: str) -> str:
    """Return why a query is broken of whose 1,000 rows more than ``most`` fail."""
    return (
        f"more than {most} of 1,000 rows fail, which dead_letters.most does not allow: the query is broken rather than "
        f"its data. The first of them says: {first_reason}. Mend the query, its schema or the source; raise "
        "dead_letters.most if such rows are to become dead letters"
    )
