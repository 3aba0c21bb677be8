"""How a result names the Kafka record that it was made of: columns on its way, headers in its own record."""

from __future__ import annotations

from typing import Final

NAME_TOPIC: Final = "_spillway_topic"
NAME_PARTITION: Final = "_spillway_partition"
NAME_OFFSET: Final = "_spillway_offset"
NAMES: Final = (NAME_TOPIC, NAME_PARTITION, NAME_OFFSET)
"""The columns, at the end of the events' columns and of the results' columns."""
NAMES_DDL: Final = f"{NAME_TOPIC} STRING, {NAME_PARTITION} INT, {NAME_OFFSET} BIGINT"
"""The same as Spark DDL."""
NAME_HEADERS: Final = ("spillway-topic", "spillway-partition", "spillway-offset")
"""The headers of a result's record."""
