"""The WAN in front of the demo's VMs: parses ``--wan`` and passes it to the demo."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.config.words.units import UnitError, duration_s, link_bits_per_s, share_fraction
from infra.wan import WanSettings

_RATE: Final = re.compile(r"(?P<number>[0-9.]+) ?(?P<scale>[kmg]?)bit(/s)?", re.IGNORECASE)
_SCALES: Final = {"": "", "k": "k", "m": "M", "g": "G"}
_LOSS: Final = re.compile(r"loss (?P<share>.+)")
_FORM: Final = "write the round trip, the rate and, if packets are to be lost, their share: 70ms,50mbit,loss 0.1%"


class WanTextError(ValueError):
    """The value of ``--wan`` cannot be read; the message says what is valid."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The WAN in front of the VMs, and their namespaces.

    Attributes:
        settings: the WAN, each way.
        made_by: the backend whose netem is used.
        namespaces: of the VMs, with the address of each.
    """

    settings: WanSettings
    made_by: str
    namespaces: dict[str, str]

    def __str__(self) -> str:
        lost = f", {self.settings.loss:.3g} of the packets lost" if self.settings.loss else ""
        rate = (self.settings.rate_bits_per_s or 0.0) / 1e6
        return (
            f"a WAN of {2000 * self.settings.delay_s:g} ms there and back and {rate:g} Mbit/s{lost} "
            f"(netem, {self.made_by})"
        )


def parse_wan(text: str) -> WanSettings:
    """Read ``70ms,50mbit`` or ``70ms,50mbit,loss 0.1%``: round trip, rate, and share of packets lost each way.

    Raises:
        WanTextError: it has another form.
    """
    words = [word.strip() for word in text.split(",")]
    if len(words) not in (2, 3) or not all(words):
        raise WanTextError(f'"{text}" is not a WAN; {_FORM}')
    try:
        return WanSettings(
            delay_s=duration_s(words[0]) / 2, rate_bits_per_s=_rate(words[1]), loss=_loss(words[2:], text)
        )
    except ValueError as error:
        raise WanTextError(f"--wan {text}: {error}") from error


def _rate(word: str) -> float:
    match = _RATE.fullmatch(word)
    if match is None:
        raise UnitError(f'"{word}" is not the rate of a link; {_FORM}')
    return link_bits_per_s(f"{match['number']}{_SCALES[match['scale'].lower()]}bit/s")


def _loss(words: list[str], text: str) -> float:
    if not words:
        return 0.0
    match = _LOSS.fullmatch(words[0])
    if match is None:
        raise WanTextError(f'"{words[0]}" in "{text}" is not the share of packets that is lost; {_FORM}')
    return share_fraction(match["share"])
