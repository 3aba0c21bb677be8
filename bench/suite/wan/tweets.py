"""Bytes that cross the WAN: short texts."""

from __future__ import annotations

from itertools import islice

import msgspec
import pyarrow as pa

from engines.stories.generator import generate_texts
from engines.stories.texts import read_tweets
from suite.wan.payloads import Load, origin, real, row

TEXTS, SEED = 2_000, 3
NEEDED = pa.schema({"number": pa.int64(), "at": pa.timestamp("us", "UTC"), "key": pa.int32(), "text": pa.string()})


def _load() -> Load:
    texts = read_tweets(there) if (there := real("tweets")) else generate_texts(TEXTS, SEED)
    return Load([msgspec.json.encode(text) for text in islice(texts, TEXTS)], NEEDED)


ROW = row(
    "tweets",
    "short texts",
    f"2,000 {origin()} short texts, of which the query needs all fields.",
    _load,
)
