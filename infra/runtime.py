"""The versions and settings that must be equal at two sites for a query to give the same answers."""

from __future__ import annotations

import msgspec


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The versions and settings that must be equal at two sites for a query to give the same answers.

    Attributes:
        protocol: version of the link's protocol.
        spark: its version; likewise ``java`` and ``python``.
        timezone: of the session.
        ansi: whether the session follows the SQL standard.
        settings: the user's settings that can change an answer.
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
