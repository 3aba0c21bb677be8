"""The ingress sheds an even sample, and counts it in the run log as durably as the runs themselves."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from gateway.connectors.position import Position
from gateway.query.flow.ingress import RunLimits, sampled
from gateway.query.flow.runlog import LogHead, RunLog
from gateway.query.flow.statistics import Tally
from tests.query.ingress_site import SCHEMA, Site, table_source
from tests.support.gateway_doubles import ManualClock
from tests.support.waiting import until

TENS = RunLimits(10, 1 << 30, 1.0)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def numbers(site: Site) -> list[int]:
    return [row["n"] for run in site.runs for row in run.batch.to_pylist()]


async def shed_all(site: Site, share: float, count: int = 1000) -> None:
    async with site.started(table_source(count), limits=TENS, run=False) as ingress:
        ingress.sampler.share = share
        await ingress.run()
        assert ingress.finished


async def test_an_exact_part_is_shed_evenly_and_the_seq_stays_dense(site: Site) -> None:
    await shed_all(site, 0.3)
    kept = numbers(site)
    assert len(kept) == 700
    assert [run.first_seq for run in site.runs] == [0, *(run.last_seq + 1 for run in site.runs[:-1])]
    assert site.runs[-1].last_seq == 699
    assert sum(run.shed for run in site.runs) == 300
    assert all(6 <= len([n for n in kept if ten <= n < ten + 10]) <= 8 for ten in range(0, 1000, 10))
    assert site.log.shed_events == 300


@pytest.mark.parametrize("share", [0.3, 0.95])
async def test_after_a_kill_the_same_events_are_cut_again_and_the_count_stays(site: Site, share: float) -> None:
    await shed_all(site, share)
    before, shed = [(run.first_seq, run.batch.to_pylist(), run.shed) for run in site.runs], site.log.shed_events
    site.runs.clear()
    async with site.started(table_source(1000), limits=TENS, run=False):
        pass
    assert [(run.first_seq, run.batch.to_pylist(), run.shed) for run in site.runs] == before
    assert site.log.shed_events == shed


async def test_runs_that_are_shed_as_a_whole_are_counted_by_the_next_one(site: Site) -> None:
    await shed_all(site, 0.95)
    kept = sum(run.last_seq - run.first_seq + 1 for run in site.runs)
    assert kept == pytest.approx(50, abs=1)
    assert any(run.shed >= 10 for run in site.runs)
    assert site.log.shed_events + site.log.shed_since + kept == 1000


async def test_the_source_may_not_forget_what_is_not_counted_yet(tmp_path: Path) -> None:
    clock = ManualClock()
    log = RunLog(tmp_path / "runs.log", LogHead("me", clock.wall()))
    log.skip(Position(10), shed=10)
    assert (log.position, log.position_before(0)) == (Position(10), Position(0))
    log.skip(Position(11))
    assert log.position_before(0) == Position(0)
    log.close()
    again = RunLog(tmp_path / "runs.log", LogHead("me", clock.wall()))
    assert (again.position, again.shed_events) == (Position(0), 0)
    again.close()


async def test_the_count_outlives_the_runs(site: Site) -> None:
    await shed_all(site, 0.5)
    log = RunLog(site.folder / "runs.log", LogHead("me", 0.0))
    log.retire(250)
    assert log.runs[0].first_seq >= 245
    assert log.shed_events == 500
    log.close()
    again = RunLog(site.folder / "runs.log", LogHead("me", 0.0))
    assert again.shed_events == 500
    again.close()


async def test_it_changes_while_events_come(site: Site) -> None:
    async with site.started(table_source(100_000), limits=TENS, rate=100.0) as ingress:
        await until(lambda: len(site.runs) >= 5, site.clock, 0.05)
        assert site.log.shed_events == 0
        ingress.sampler.share = 0.5
        await until(lambda: site.log.shed_events >= 50, site.clock, 0.05)
        ingress.sampler.share = 0.0
        seen, shed = len(site.runs), site.log.shed_events
        await until(lambda: len(site.runs) > seen + 3, site.clock, 0.05)
        assert site.log.shed_events <= shed + 5


def test_a_sample_is_even_and_keeps_the_order() -> None:
    batch = pa.RecordBatch.from_pylist([{"n": n, "at": None} for n in range(10)], schema=SCHEMA)
    for shed in range(11):
        kept = [row["n"] for row in sampled(batch, shed).to_pylist()]
        assert len(kept) == 10 - shed
        assert kept == sorted(set(kept))
    assert [row["n"] for row in sampled(batch, 8).to_pylist()] == [2, 7]


def test_the_tally_counts_what_was_shed_once() -> None:
    tally = Tally()
    tally.arrived(0, 9, 5)
    tally.arrived(0, 9, 5)
    tally.arrived(10, 10, 2)
    assert (tally.events, tally.shed) == (11, 7)
