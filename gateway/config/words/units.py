"""Quantities with their unit, as people write them: ``10ms``, ``1MiB``, ``2000/s``, ``40Mbit/s``, ``10%``.

Decimal arithmetic keeps the written value: ``100ms`` is the float nearest to 0.1, not 100 times the float nearest to
0.001. A bare number is refused, because nobody should have to guess whether ``latency: 2`` means seconds. Other common
spellings of a unit (``2 sec``, ``2000 per second``) are accepted if they have only one meaning.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_NUMBER: Final = r"(?P<number>[0-9]+(?:\.[0-9]+)?)"
_NUMBER_AND_WORD: Final = re.compile(rf"\s*{_NUMBER}\s*(?P<word>[A-Za-z]+)\s*")
_PATTERNS: Final = {" ": r"\s+", "/": r"/\s*"}
_DIGITS_MAX: Final = 18


class UnitError(ValueError):
    """A quantity that cannot be read; the message lists the valid units."""


class Unit:
    """A family of units for one kind of quantity.

    Args:
        noun: the kind, with its article, to begin an error message.
        scales: each unit's name and its size in the base unit, smallest first.
        example: a right value, for messages.
        also: other words for a unit, accepted in upper and lower case; in lower case here.
        exactly: other words for a unit, accepted only as they are written here.
        unclear: words with more than one meaning, in lower case, with the units to write instead.
    """

    def __init__(
        self,
        noun: str,
        scales: dict[str, Decimal],
        example: str,
        *,
        also: dict[str, str] | None = None,
        exactly: dict[str, str] | None = None,
        unclear: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.noun = noun
        self.example = example
        self.names = tuple(scales)
        self._scales = scales
        self._also = also or {}
        self._exactly = {name: name for name in scales} | (exactly or {})
        self._unclear = unclear or {}
        words = "|".join([*map(re.escape, self._exactly), *map(_in_any_case, self._also)])
        self.pattern = rf"^\s*{_NUMBER.replace('?P<number>', '')}\s*({words})\s*$"
        self._regex = re.compile(rf"\s*{_NUMBER}\s*(?P<unit>{words})\s*")

    def parse(self, text: object) -> Decimal:
        """Return the quantity in the base unit.

        Raises:
            UnitError: the text is not a number followed by one of the units.
        """
        if not isinstance(text, str):
            raise UnitError(f"{text!r} is not {self.noun}; {self._hint()}")
        match = self._regex.fullmatch(text)
        if match is None:
            raise UnitError(self._unclear_text(text) or f'"{text}" is not {self.noun}; {self._hint()}')
        number = match["number"]
        if len(number) > _DIGITS_MAX:
            raise UnitError(f'"{text}" has more digits than {_DIGITS_MAX}; write it in a larger unit')
        return Decimal(number) * self._scales[self._name_of(match["unit"])]

    def _name_of(self, word: str) -> str:
        """Return the unit of a word that was matched."""
        return self._exactly.get(word) or self._also[" ".join(word.lower().split()).replace("/ ", "/")]

    def _unclear_text(self, text: str) -> str:
        """Return what to write instead of a unit with more than one meaning; empty for any other text."""
        match = _NUMBER_AND_WORD.fullmatch(text)
        meant = self._unclear.get(match["word"].lower(), ()) if match else ()
        if match is None or not meant:
            return ""
        instead = " or ".join(match["number"] + name for name in meant)
        units = f"the units are {self._listed()}, as in {self.example}"
        return f'"{text}" can be read in more than one way; write {instead} ({units})'

    def format(self, value: float) -> str:
        """Return the shortest text that parses to ``value``, with a number of at least one if possible."""
        exact = Decimal(repr(value))
        texts = [_plain(exact / scale) + name for name, scale in reversed(self._scales.items())]
        same = [text for text in texts if float(self._value(text)) == float(value)]
        return min(same or [_plain(exact) + self.names[0]], key=lambda text: (text.startswith("0."), len(text)))

    def _value(self, text: str) -> Decimal:
        match = self._regex.fullmatch(text)
        return Decimal(match["number"]) * self._scales[self._name_of(match["unit"])] if match else Decimal(-1)

    def _hint(self) -> str:
        return f"write a number with its unit ({self._listed()}), as in {self.example}"

    def _listed(self) -> str:
        *some, last = self._scales
        return f"{', '.join(some)} or {last}" if some else last


def _in_any_case(word: str) -> str:
    """Return a pattern for a word in upper and lower case; JSON Schema has no flag for that."""
    return "".join(_PATTERNS.get(c) or f"[{c}{c.upper()}]" for c in word)


def _plain(number: Decimal) -> str:
    """Return the number without exponent and without trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


DURATION: Final = Unit(
    "a duration",
    {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)},
    "2s",
    also={
        **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), "ms"),
        **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
        **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
        **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    },
    # M is a month elsewhere.
    unclear={"m": ("m",)},
)
SIZE: Final = Unit(
    "a size",
    {
        "B": Decimal(1),
        "kB": Decimal(10**3),
        "KiB": Decimal(2**10),
        "MB": Decimal(10**6),
        "MiB": Decimal(2**20),
        "GB": Decimal(10**9),
        "GiB": Decimal(2**30),
    },
    "1MB",
    also={"kib": "KiB", "mib": "MiB", "gib": "GiB", "byte": "B", "bytes": "B"},
    exactly={"KB": "kB"},
    # A small b is a bit elsewhere, and K, M and G are powers of 1000 here and of 1024 there.
    unclear={
        "b": ("B",),
        **dict.fromkeys(("k", "kb"), ("kB", "KiB")),
        **dict.fromkeys(("m", "mb"), ("MB", "MiB")),
        **dict.fromkeys(("g", "gb"), ("GB", "GiB")),
    },
)
RATE: Final = Unit(
    "a rate of events",
    {"/s": Decimal(1)},
    "2000/s",
    also=dict.fromkeys(("/s", "/sec", "/second", "per s", "per sec", "per second"), "/s"),
)
LINK_RATE: Final = Unit(
    "the rate of a link",
    {"bit/s": Decimal(1), "kbit/s": Decimal(10**3), "Mbit/s": Decimal(10**6), "Gbit/s": Decimal(10**9)},
    "40Mbit/s",
    also={"bit/s": "bit/s", "kbit/s": "kbit/s", "mbit/s": "Mbit/s", "gbit/s": "Gbit/s"},
    exactly={"bps": "bit/s", "kbps": "kbit/s", "Kbps": "kbit/s", "Mbps": "Mbit/s", "Gbps": "Gbit/s"},
)
PAUSES_EXAMPLE: Final = "5s..5m"
PAUSES_PATTERN: Final = rf"{DURATION.pattern.removesuffix('$')}(\.\.{DURATION.pattern.removeprefix('^')[:-1]})?$"
"""A duration, or a first and a longest one with two dots between them."""
SHARE: Final = Unit("a share", {"%": Decimal("0.01")}, "10%")


def duration_s(text: object) -> float:
    """Return seconds: ``10ms`` is 0.01, ``1m`` is 60."""
    return float(DURATION.parse(text))


def size_bytes(text: object) -> int:
    """Return bytes: ``1MB`` is 10**6, ``1MiB`` is 2**20; a part of a byte is refused."""
    exact = SIZE.parse(text)
    if exact != int(exact):
        raise UnitError(f'"{text}" is not a whole number of bytes')
    return int(exact)


def rate_per_s(text: object) -> float:
    """Return events a second: ``2000/s`` is 2000, ``0.5/s`` one event each two seconds."""
    return float(RATE.parse(text))


def link_bits_per_s(text: object) -> float:
    """Return bits a second: ``40Mbit/s`` is 40,000,000."""
    return float(LINK_RATE.parse(text))


def share_fraction(text: object) -> float:
    """Return a share as a number from 0 to 1: ``10%`` is 0.1."""
    exact = SHARE.parse(text)
    if exact > 1:
        raise UnitError(f'"{text}" is more than 100%')
    return float(exact)


def ms_of(seconds: float | None) -> int:
    """Return a duration in whole milliseconds, at least 1; 0 if there is none."""
    return 0 if seconds is None else max(1, round(seconds * 1000))
