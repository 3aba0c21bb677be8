"""``spillway demo --wan``: the same demo, its VMs at a site of their own behind a real WAN.

The process that the user starts makes the WAN; the demo itself, and every gateway that it starts, runs at home.
"""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from gateway.config.words.units import UnitError, duration_s, link_bits_per_s, share_fraction
from infra.wan import Wan, WanError, WanSettings

_RATE: Final = re.compile(r"(?P<number>[0-9.]+) ?(?P<scale>[kmg]?)bit(/s)?", re.IGNORECASE)
_SCALES: Final = {"": "", "k": "k", "m": "M", "g": "G"}
_LOSS: Final = re.compile(r"loss (?P<share>.+)")
_FORM: Final = "write the round trip, the rate and, if packets are to be lost, their share: 70ms,50mbit,loss 0.1%"
_CODE: Final = "import sys; from gateway.demo.across import play_at_home; sys.exit(play_at_home(sys.argv[1:]))"


class WanTextError(ValueError):
    """What was given as ``--wan`` cannot be understood; the message says what can."""


@dataclass(frozen=True, slots=True)
class Behind:
    """What the VMs are behind, and where.

    Attributes:
        settings: the WAN, each way.
        made_by: whose netem it is.
        namespaces: of the VMs, with the address that each has.
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
        WanTextError: it is something else.
    """
    words = [word.strip() for word in text.split(",")]
    if len(words) not in (2, 3) or not all(words):
        raise WanTextError(f'"{text}" is no WAN; {_FORM}')
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


def play(mail: Path | None, out: Path, text: str, vms: int) -> int:
    """Make a WAN and play the demo across it.

    Args:
        mail: as for ``gateway.demo.run.main``.
        out: likewise.
        text: what ``parse_wan`` reads.
        vms: how many sites there are in the cloud.

    Returns:
        The demo's exit code; 1 when no WAN can be made here.
    """
    try:
        return asyncio.run(_play(mail, out, text, vms))
    except WanError as error:
        Console(stderr=True).print(f"no demo across a WAN: {error}", style="red", markup=False, soft_wrap=True)
        return 1


async def _play(mail: Path | None, out: Path, text: str, vms: int) -> int:
    async with Wan(parse_wan(text)) as wan:
        assert wan.backend is not None
        sites = [await wan.add(f"vm-{number + 1}") for number in range(vms)]
        places = [f"{site.namespace}={site.address}" for site in sites]
        arguments = [str(mail or ""), str(out), text, wan.backend.value, *places]
        process = await wan.home.run(sys.executable, "-c", _CODE, *arguments)
        return await process.wait()


def play_at_home(arguments: list[str]) -> int:
    """Play the demo in this process, which is at the site ``home``; the arguments are those of ``_play``."""
    from gateway.demo.run import main

    mail, out, text, made_by, *places = arguments
    namespaces = dict(place.split("=", 1) for place in places)
    return main(Path(mail) if mail else None, Path(out), Behind(parse_wan(text), made_by, namespaces))
