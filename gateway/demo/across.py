"""``spillway demo --wan``: the same demo, with its VMs at sites of their own behind an emulated WAN.

The process that the user starts creates the WAN; the demo itself, and every gateway that it starts, runs at home.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from msgspec import convert
from rich.console import Console

from gateway.demo.behind import Behind, parse_wan
from gateway.demo.load import PACES
from gateway.demo.report import Policy
from gateway.demo.run import main
from infra.wan import Wan, WanError

_CODE: Final = "import sys; from gateway.demo.across import play_at_home; sys.exit(play_at_home(sys.argv[1:]))"


def play(
    mail: Path | None,
    out: Path,
    text: str,
    vms: int,
    pace: str = "full",
    runs: int = 1,
    policy: Policy = "reactive",
) -> int:
    """Create a WAN and run the demo across it.

    Args:
        mail: as for ``gateway.demo.run.main``.
        out: likewise.
        text: as for ``parse_wan``.
        vms: how many sites there are in the cloud.
        pace: how much is played, by its name in ``PACES``.
        runs: how often.
        policy: what decides about VMs.

    Returns:
        The demo's exit code; 1 if no WAN can be created here.
    """
    try:
        return asyncio.run(_play(mail, out, text, vms, pace, runs, policy))
    except WanError as error:
        Console(stderr=True).print(f"no demo across a WAN: {error}", style="red", markup=False, soft_wrap=True)
        return 1


async def _play(mail: Path | None, out: Path, text: str, vms: int, pace: str, runs: int, policy: Policy) -> int:
    async with Wan(parse_wan(text)) as wan:
        assert wan.backend is not None
        sites = [await wan.add(f"vm-{number + 1}") for number in range(vms)]
        places = [f"{site.namespace}={site.address}" for site in sites]
        arguments = [str(mail or ""), str(out), text, wan.backend.value, pace, str(runs), policy, *places]
        process = await wan.home.run(sys.executable, "-c", _CODE, *arguments)
        return await process.wait()


def play_at_home(arguments: list[str]) -> int:
    """Run the demo in this process, which is at the site ``home``; the arguments are those of ``_play``."""
    mail, out, text, made_by, pace, runs, policy, *places = arguments
    namespaces = dict(place.split("=", 1) for place in places)
    behind = Behind(parse_wan(text), made_by, namespaces)
    return main(Path(mail) if mail else None, Path(out), behind, PACES[pace], int(runs), convert(policy, Policy))
