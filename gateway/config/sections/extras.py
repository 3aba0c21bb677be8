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
    "clouds": ("libcloud", "boto3"),
}
"""The modules of each extra of pyproject.toml."""


def why_missing(what: str, extra: str) -> str | None:
    """Return what to install for a part of the config; None if it is there.

    Args:
        what: the part, in the plural, as in "kafka sources".
        extra: the extra that it needs.
    """
    if all(find_spec(module) is not None for module in EXTRAS[extra]):
        return None
    return f"{what} need: pip install 'spillway[{extra}]'"
