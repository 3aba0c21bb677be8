"""Lets a query of the corpus run at home only, or in two places with random moves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from gateway.query.running import RunningQuery
from policies.keys.places import PartPlaces
from tests.hybrid.cases import StreamCase
from tests.hybrid.events import Event
from tests.hybrid.places import Places
from tests.hybrid.site import ONE_RUN_BYTES, SOME_RUNS_BYTES, Journey, Site
from tests.hybrid.traveller import MovingTraveller, PartsTraveller, SharingTraveller, Traveller

PARTS: Final = 3


@asynccontextmanager
async def opened(site: Site) -> AsyncIterator[RunningQuery]:
    """Open a query at home, and close it at the end."""
    await site.open()
    try:
        yield site.query
    finally:
        await site.query.close_on_hosts()
        await site.query.stop()


async def at_one_site(case: StreamCase, folder: Path, runs: Sequence[Sequence[Event]], places: Places) -> Journey:
    """Run a query at home only. One that may not leave home is only opened: it may depend on more than its events.

    Raises:
        QueryRefusedError: the host refuses it.
        StuckError: it failed.
    """
    site = Site(case, folder, runs, places.home, ONE_RUN_BYTES)
    async with opened(site) as query:
        if query.switchable:
            for _ in runs:
                site.write()
            await site.until(lambda: site.is_committed, "all is committed")
        return site.journey()


async def at_two_sites(
    case: StreamCase,
    folder: Path,
    runs: Sequence[Sequence[Event]],
    places: Places,
    *,
    stateful: bool,
    draw: random.Random,
    losses: bool,
) -> Journey:
    """Run a query at home and on the VM; its moves, and the losses of the VM, come at random moments.

    Args:
        case: the query, which may be switched.
        folder: new.
        runs: the events of each run.
        places: the hosts.
        stateful: whether it keeps state: then it moves, else each place gets a part of the runs.
        draw: draws the moments.
        losses: whether the VM may be lost.

    Raises:
        QueryRefusedError: a host refuses it.
        StuckError: it failed.
    """
    kind = MovingTraveller if stateful else SharingTraveller
    site = Site(case, folder, runs, places.home, ONE_RUN_BYTES if stateful else SOME_RUNS_BYTES)
    return await _travelled(kind, site, runs, places, stateful=stateful, draw=draw, losses=losses)


async def in_parts(
    case: StreamCase,
    folder: Path,
    runs: Sequence[Sequence[Event]],
    places: Places,
    key: str,
    *,
    draw: random.Random,
    losses: bool,
) -> Journey:
    """Run a keyed query in parts, some of which are on the VM for some of the time.

    Raises:
        QueryRefusedError: a host refuses to divide it.
        StuckError: it failed.
    """
    switching = {"mode": "keys", "key": key, "parts": PARTS, "max_pause": "60s"}
    divided = replace(case, more={**case.more, "switching": switching})
    site = Site(divided, folder, runs, places.home, ONE_RUN_BYTES)
    site.query._part_places = PartPlaces(PARTS, stay_s=0.0)  # noqa: SLF001 - a test cannot wait
    return await _travelled(PartsTraveller, site, runs, places, stateful=True, draw=draw, losses=losses)


async def _travelled(
    kind: type[Traveller],
    site: Site,
    runs: Sequence[Sequence[Event]],
    places: Places,
    *,
    stateful: bool,
    draw: random.Random,
    losses: bool,
) -> Journey:
    async with opened(site) as query:
        traveller = kind(site, query, places, draw, losses=losses)
        stops = draw.sample(range(len(runs)), draw.randint(2, 3)) if stateful else range(0, len(runs), 3)
        for number in range(len(runs)):
            if number in stops:
                await traveller.go_on()
            site.write()
            if draw.random() < 0.5:
                await traveller.settle()
            else:
                # The moment of what follows: the run may be anywhere on its way.
                await asyncio.sleep(draw.uniform(0.0, 0.5))
        await traveller.settle()
        return site.journey(traveller.lost)
