"""The names of the parts of a keyed query, and their results as one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from gateway.query.flow.delivery import Results


def part_name(query: str, part: int) -> str:
    """Return the name by which engine hosts know a part."""
    return f"{query}~{part}"  # no query of the config has such a name


def joined(each: Sequence[Results]) -> Results:
    """Return the results of all parts of a run as one; dead letters in the order of their events."""
    batch = pa.Table.from_batches([results.batch for results in each]).combine_chunks().to_batches()
    letters = sorted((letter for results in each for letter in results.letters), key=lambda letter: letter.seq or 0)
    return Results(batch[0] if batch else each[0].batch, tuple(letters))
