"""The user's settings for compression, and the link's rate for ``auto``."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, cast

from infra.payload.codecs.choose import CODECS, Codec

DEFAULT_LINK_RATE = 5e6
"""Bytes/s assumed until the link has been measured: 40 Mbit/s."""

Mode = Codec | Literal["auto"]


class CodecPolicy:
    """How the fields of a query are packed.

    Args:
        default: for fields that ``fields`` does not name.
        fields: codec by top-level field.
        clock: seconds for measuring codecs; any origin.
    """

    def __init__(
        self,
        default: Mode = "none",
        fields: Mapping[str, Mode] | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._default = default
        self._fields = dict(fields or {})
        self._link_rate = DEFAULT_LINK_RATE
        self.clock = clock

    @classmethod
    def parse(
        cls, value: str | Mapping[str, str] | None, *, clock: Callable[[], float] = time.perf_counter
    ) -> CodecPolicy:
        """Read the config's ``compress``: ``auto``, one codec for all fields, or a mapping of field to either.

        ``None`` and ``{}`` mean ``none``, and so does a field that a mapping leaves out.

        Raises:
            ValueError: naming the unknown codec and the nearest known one.
        """
        if isinstance(value, str):
            return cls(_mode(value, "compress"), clock=clock)
        fields = {field: _mode(codec, f"compress: {field}") for field, codec in (value or {}).items()}
        return cls("none", fields, clock=clock)

    def mode(self, field: str) -> Mode:
        """Return the codec of a top-level field, or ``auto``."""
        return self._fields.get(field, self._default)

    def without_dictionaries(self, fields: Iterable[str]) -> CodecPolicy:
        """Return a policy for which ``zstd`` replaces ``auto`` and ``zstd-dict`` in some fields.

        Ciphertext has no common strings for a dictionary, and ``auto`` would measure that again and again.
        """
        plain: dict[str, Mode] = {name: "zstd" for name in fields if self.mode(name) in ("auto", "zstd-dict")}
        return CodecPolicy(self._default, {**self._fields, **plain}, clock=self.clock)

    def check_fields(self, names: Iterable[str]) -> None:
        """Raise ValueError when the policy names a field that is not among ``names``."""
        known = list(names)
        for field in self._fields:
            if field not in known:
                nearest = difflib.get_close_matches(field, known, n=1)
                hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
                raise ValueError(f"compress: there is no top-level field {field!r}{hint}")

    def link_rate(self, bytes_per_s: float | None) -> None:
        """Set the link's present rate; None means the default."""
        if bytes_per_s is not None and not bytes_per_s > 0:
            raise ValueError(f"the link rate must be above 0 bytes/s, not {bytes_per_s}")
        self._link_rate = DEFAULT_LINK_RATE if bytes_per_s is None else bytes_per_s

    @property
    def current_link_rate(self) -> float:
        """The rate in bytes/s that is used to choose codecs."""
        return self._link_rate


def _mode(value: str, where: str) -> Mode:
    allowed = (*CODECS, "auto")
    if value in allowed:
        return cast("Mode", value)
    nearest = difflib.get_close_matches(str(value), allowed, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"{where}: unknown codec {value!r}{hint} (known: {', '.join(allowed)})")
