"""Bytes that cross the WAN: readings of sensors."""

from __future__ import annotations

from suite.reading.decode import NEEDED, lines
from suite.wan.payloads import Load, row

ROW = row(
    "payload",
    "sensors",
    "Events of 226 bytes with 12 fields, of which the query needs 4.",
    lambda: Load(lines(), NEEDED),
)
