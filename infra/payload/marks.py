"""The column by which a run says which selections begin with each of its events."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from infra.messages import SELECTIONS

MARK: Final = pa.struct([pa.field("number", pa.int64()), pa.field("events", pa.int64())])


def with_marks(events: pa.Schema) -> pa.Schema:
    """Return the schema of runs with selections."""
    return events.append(pa.field(SELECTIONS, MARK))
