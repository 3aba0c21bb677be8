"""A micro-batch that was larger on a VM than what a lane takes at home at first runs again there as a whole."""

from __future__ import annotations

import pytest

import gateway.core.exchange.events as ev
from engines.streaming.checkpoints import ResumePoint
from engines.streaming.feed import Feed
from gateway.core.exchange import Exchange, ExchangeSettings
from gateway.core.exchange.instructions import Pack, Send
from gateway.query.flow.run import Run
from policies.failures.overdue import Patience
from policies.signals import HOME
from tests.support.gateway_doubles import ManualClock

RUNS = [Run(first, first + 9, None, 0.0, 100) for first in range(0, 80, 10)]


def fed(batch_ends: tuple[int, ...], planned_end_seq: int) -> int:
    """Open a lane at home, with these ends, and give it what the exchange dispatches; return the first batch's end."""
    settings = ExchangeSettings(patience=Patience(), home_only=True, flush_s=None, held_bytes_max=1 << 20)
    exchange: Exchange[Run, None] = Exchange(settings)
    feed = Feed(0, 8, 1 << 20, ManualClock(), batch_ends)
    events: list[ev.ExchangeEvent[Run, None]] = [
        ev.LaneOpened(at_s=0.0, lane=HOME, credit_bytes=1 << 20, planned_end_seq=planned_end_seq),
        *(ev.RunLogged(at_s=0.0, run=run) for run in RUNS),
    ]
    for event in events:
        for what in exchange.handle(event):
            first = what.run.first_seq if isinstance(what, Pack) else getattr(what, "first_seq", 0)
            if isinstance(what, Pack):
                events.append(
                    ev.Packed(at_s=0.0, lane=HOME, first_seq=first, raw_bytes=100, payload_bytes=100, rows=10)
                )
            elif isinstance(what, Send):
                feed.put((), None, 10)
                events.append(ev.Sent(at_s=0.0, lane=HOME, first_seq=first, took_s=0.0))
    return feed.latest(0, 0.0)


@pytest.mark.parametrize("ends", [(50,), (50, 70)])
def test_it_gets_all_its_runs(ends: tuple[int, ...]) -> None:
    assert fed(ends, ResumePoint().repeats_before(ends)) == 50


def test_with_only_the_planned_one_known_it_would_wait_for_ever() -> None:
    assert fed((50,), ResumePoint().resume_end_seq) == 0


def test_without_ends_only_the_planned_one_runs_again() -> None:
    assert ResumePoint(11, 21).repeats_before(()) == 21
    assert ResumePoint(11, 21).repeats_before((21, 40)) == 40
