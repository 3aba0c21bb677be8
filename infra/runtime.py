"""What must be equal at two sites for a query to give the same answers there."""

from __future__ import annotations

import msgspec


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """All that must be equal at two sites for a query to give the same answers there.

    Attributes:
        protocol: of the link.
        spark: its version; likewise ``java`` and ``python``.
        timezone: of the session.
        ansi: whether the session follows the SQL standard.
        settings: those of the user that can change an answer.
    """

    protocol: int
    spark: str
    java: str
    python: str
    timezone: str
    ansi: bool
    settings: dict[str, str] = {}

    def differences(self, other: Runtime) -> list[str]:
        """Return one sentence for each field in which ``other`` differs."""
        return [
            f"{name}: {getattr(self, name)!r} here, {getattr(other, name)!r} there"
            for name in self.__struct_fields__
            if getattr(self, name) != getattr(other, name)
        ]
