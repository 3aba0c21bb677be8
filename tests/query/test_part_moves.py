"""Parts of a divided query move while all go on: whatever happens in between, the results are those of one place."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway.query.moving.mover import NotNowError
from gateway.query.moving.partmover import PartMover
from policies.signals import HOME
from tests.query.part_site import PARTS, PartSite, rest
from tests.support.gateway_doubles import ManualClock
from tests.support.waiting import until


def act(site: PartSite, chance: random.Random) -> None:
    """Do one of the things that may happen."""
    match chance.randrange(12):
        case 0 | 1:
            site.put(chance.randint(1, 9))
        case 2 | 3 | 4 | 5:
            chance.choice([*site.engines, *site.nexts.values()]).work()
        case 6 | 7:
            chance.choice([*site.engines, *site.nexts.values()]).credit()
        case 8 | 9:
            site.clock.advance(chance.choice([0.02, 0.1, 0.5]))
        case 10:
            site.move(chance.randrange(PARTS), chance.choice([HOME, "vm-1", "vm-2"]))
        case _ if site.nexts and chance.random() < 0.3:
            part, engine = chance.choice(sorted(site.nexts.items()))
            what = chance.randrange(5)
            if what < 2:
                engine.host.link.lose("kill -9")
            elif what < 3:
                site.tasks[part].cancel()  # as when the query is stopped
            else:
                site.movers[part].next_place = site.movers[part].place


async def work_on(site: PartSite) -> None:
    """Let all engines work until nothing is left to do."""

    def rested() -> bool:
        for engine in [*site.engines, *site.nexts.values()]:
            engine.work()
            engine.credit()
        return site.pipeline.idle and not site.tasks

    await until(rested, site.clock, 0.05)


async def lived(folder: Path, seed: int) -> PartSite:
    """Let things happen, and then all engines work until nothing is left to do; return what was there."""
    chance = random.Random(seed)
    site = PartSite(folder, chance)
    async with site.running():
        for _ in range(400):
            act(site, chance)
            await rest(chance)
        await work_on(site)
    return site


async def test_no_result_is_lost_doubled_or_changed(tmp_path: Path) -> None:
    ends, held_s = Counter[str](), list[float]()
    for seed in range(12):
        (tmp_path / str(seed)).mkdir()
        site = await lived(tmp_path / str(seed), seed)
        assert sorted(site.found()) == site.expected(), f"seed {seed}"
        assert site.memory.held_bytes == 0, f"seed {seed}"
        ends += site.ends
        held_s += site.held_s
    # Otherwise this would show little.
    assert ends["switched"] > 20, ends
    assert ends["LinkLost"], ends
    assert ends["NextPlaceError"], ends
    assert ends["CancelledError"], ends
    assert min(held_s) < 0.05 < 1.0 < max(held_s)


async def test_a_copy_with_more_than_was_answered_is_not_used_now() -> None:
    """Otherwise the runs whose answers are still on their way would be given to a state that has them."""
    passed: list[object] = []
    part = SimpleNamespace(done_before=20, pass_on=passed.append, free=lambda _: None)

    async def sent(from_seq: int) -> None:
        assert from_seq == 20

    async def opened() -> object:
        return SimpleNamespace(ready=SimpleNamespace(resume_seq=30))

    closed = AsyncMock()
    moving = PartMover(
        cast("Any", part),
        cast("Any", SimpleNamespace(place=HOME, next_place="vm-1", send_while_open=sent)),
        cast("Any", SimpleNamespace(name="vm-1", alive=True)),
        5.0,
        open_there=cast("Any", opened),
        close=closed,
        on_commit=lambda _: None,
        on_switched=lambda _: None,
        clock=ManualClock(),
    )
    with pytest.raises(NotNowError, match="has seq 29, which is not answered yet"):
        await moving.run()
    closed.assert_awaited_once()
    assert passed[-1] is None
