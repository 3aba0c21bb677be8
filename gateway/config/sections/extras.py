"""Which libraries a config needs that not every installation has: the package's extras.

They are looked for by name and not imported, which would take seconds for some of them.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "kafka": ("aiokafka", "fastavro"),
    "mqtt": ("aiomqtt", "paho"),
    "s3": ("boto3",),
    "calendar": ("icalendar", "recurring_ical_events"),
    "clouds": ("libcloud", "boto3"),
    "traces": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
}
"""The modules of each extra of pyproject.toml."""


def why_missing(what: str, extra: str) -> str | None:
    """Return what to install for a part of the config; None if it is there.

    Args:
        what: the part, in the plural, as in "kafka sources".
        extra: the extra that it needs.
    """
    if all(map(_is_there, EXTRAS[extra])):
        return None
    return f"{what} need: pip install 'spillway[{extra}]'"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it belongs to
        return False
