from typing import Any

import pytest

from gateway.core.decide.profiler import Profiler
from gateway.core.exchange import OpenRuns
from policies.signals import HOME, QuerySlot


class Told:
    """A profiler of one query with short calls, and a list of open runs; runs hold 100 events each."""

    def __init__(self, statistic: Any = "mean") -> None:
        self.profiler = Profiler(1.0, {"q": statistic})
        self.waiting_events = 0
        self.waiting_since_s: float | None = None
        self._open: dict[int, tuple[str, float]] = {}

    def dispatched(self, run: int, lane: str = HOME, oldest_s: float = 0.0, raw: int = 0, sent: int = 0) -> None:
        self._open[run] = (lane, oldest_s)
        self.profiler.dispatched("q", lane=lane, events=100, raw_bytes=raw, sent_bytes=sent)

    def completed(
        self, run: int, lane: str = HOME, *, arrival_s: float, at_s: float, batch: tuple[int, float] = (1, 0.1)
    ) -> None:
        del self._open[run]
        self.profiler.completed(
            "q",
            last_seq=run * 100 + 99,
            events=100,
            lane=lane,
            mean_arrival_s=arrival_s,
            completed_s=at_s,
            batch_id=batch[0],
            batch_s=batch[1],
        )

    def waits(self, events: int, since_s: float | None) -> None:
        self.waiting_events, self.waiting_since_s = events, since_s

    def slot(self, now_s: float, **fields: float) -> QuerySlot:
        lanes = {lane for lane, _ in self._open.values()}
        found = {lane: [oldest_s for name, oldest_s in self._open.values() if name == lane] for lane in lanes}
        self.profiler.under_way(
            "q",
            waiting_events=self.waiting_events,
            oldest_arrival_s=self.waiting_since_s,
            open_runs={lane: OpenRuns(100 * len(each), len(each), min(each)) for lane, each in found.items()},
        )
        (slot,) = self.profiler.end_slot(now_s, **fields)
        return slot


def test_an_idle_slot_has_no_latency() -> None:
    slot = Told().slot(5.0, load1=0.7)
    assert slot == QuerySlot(query="q", latency_s=0.0, load1=0.7)


def test_latency_is_weighted_by_events() -> None:
    told = Told()
    for run in range(4):
        told.dispatched(run)
    told.completed(0, arrival_s=0.0, at_s=0.2)
    for run in range(1, 4):
        told.completed(run, arrival_s=0.0, at_s=1.0)
    assert told.slot(1.0).latency_s == pytest.approx(0.8)


def test_p95_sees_the_slow_ones() -> None:
    told = Told("p95")
    for run in range(20):
        told.dispatched(run)
        told.completed(run, arrival_s=0.0, at_s=5.0 if run >= 18 else 0.1)
    assert told.slot(6.0).latency_s == pytest.approx(5.0, rel=0.01)


def test_a_stuck_engine_does_not_look_idle() -> None:
    told = Told()
    told.dispatched(0, oldest_s=1.0)
    told.dispatched(1, oldest_s=1.5)
    told.completed(1, arrival_s=1.5, at_s=1.6)
    assert told.slot(4.0).latency_s == pytest.approx(3.0)
    assert told.slot(5.0).latency_s == pytest.approx(4.0)


def test_events_due_but_not_read_count() -> None:
    told = Told()
    told.waits(70, 1.0)
    slot = told.slot(3.5)
    assert (slot.latency_s, slot.backlog_events) == (2.5, 70)
    told.waits(0, None)
    assert told.slot(4.5).latency_s == 0.0


def test_once_switching_is_on_only_home_is_looked_at() -> None:
    told = Told()
    for run, lane in enumerate((HOME, "vm-1", "vm-1")):
        told.dispatched(run, lane, oldest_s=0.5)
    told.completed(0, arrival_s=0.5, at_s=0.9)
    told.completed(1, "vm-1", arrival_s=0.5, at_s=3.5)
    slot = told.slot(4.0)
    assert slot.latency_s == pytest.approx(0.4)
    assert (slot.home_latency_s, slot.cloud_latency_s) == (pytest.approx(0.4), pytest.approx(3.0))
    assert (slot.open_events, slot.open_runs) == ({"vm-1": 100}, 1)


def test_what_waits_for_a_lane_counts_also_once_switching_is_on() -> None:
    told = Told()
    told.dispatched(0, "vm-1", oldest_s=0.0)
    told.dispatched(1, HOME, oldest_s=2.0)
    told.waits(10, 2.5)
    assert told.slot(4.0).latency_s == pytest.approx(2.0)


def test_a_query_that_is_wholly_in_the_cloud_is_judged_there() -> None:
    told = Told()
    told.dispatched(0, "vm-1", oldest_s=0.0)
    told.dispatched(1, "vm-1", oldest_s=0.0)
    told.completed(0, "vm-1", arrival_s=0.0, at_s=1.5)
    assert told.slot(4.0).latency_s == pytest.approx(4.0)
    told.completed(1, "vm-1", arrival_s=3.0, at_s=4.5)
    assert told.slot(5.0).latency_s == pytest.approx(1.5)


def test_bytes_are_counted_by_vm_and_slot() -> None:
    told = Told()
    told.dispatched(0, "vm-1", raw=1000, sent=300)
    told.dispatched(1, "vm-2", raw=500, sent=100)
    told.dispatched(2, HOME, raw=700)
    slot = told.slot(1.0)
    assert (slot.raw_bytes, slot.sent_bytes) == ({"vm-1": 1000, "vm-2": 500}, {"vm-1": 300, "vm-2": 100})
    assert slot.dispatched_events == {"vm-1": 100, "vm-2": 100, HOME: 100}
    assert told.slot(2.0).raw_bytes == {}


def test_a_rate_is_events_per_busy_second_and_a_batch_is_busy_once() -> None:
    told = Told()
    for run in range(4):
        told.dispatched(run)
        told.completed(run, arrival_s=0.0, at_s=1.0, batch=(run // 2, 0.5))
    assert told.slot(1.0).rates == {HOME: pytest.approx(400.0)}


def test_a_rate_is_smoothed_and_outlives_idle_slots() -> None:
    told = Told()
    told.dispatched(0)
    told.completed(0, arrival_s=0.0, at_s=1.0, batch=(1, 1.0))
    assert told.slot(1.0).rates[HOME] == pytest.approx(100.0)
    assert told.slot(2.0).rates[HOME] == pytest.approx(100.0)
    told.dispatched(1)
    told.completed(1, arrival_s=2.0, at_s=3.0, batch=(2, 0.1))
    assert 100.0 < told.slot(3.0).rates[HOME] < 1000.0


def test_the_time_in_a_lane_follows_from_what_is_open_and_what_completes() -> None:
    told = Told()
    assert (told.slot(1.0).home_lane_s, told.slot(2.0).cloud_lane_s) == (None, None)
    for run in range(40):
        told.dispatched(run, HOME if run % 2 else "vm-1")
    for at in range(8):
        told.completed(2 * at, "vm-1", arrival_s=0.0, at_s=3.0)
        told.completed(2 * at + 1, HOME, arrival_s=0.0, at_s=3.0)
        told.dispatched(100 + at, HOME)
        slot = told.slot(3.0 + at)
    assert slot.home_lane_s == pytest.approx(20.0, rel=0.05)
    assert slot.cloud_lane_s is not None
    assert 12.0 < slot.cloud_lane_s < 15.0


def test_a_run_after_an_idle_while_does_not_seem_to_stay_for_minutes() -> None:
    told = Told()
    for at in range(8):
        told.dispatched(at, "vm-1")
        told.slot(2.0 * at)
        told.completed(at, "vm-1", arrival_s=2.0 * at, at_s=2.0 * at + 1)
        busy = told.slot(2.0 * at + 1)
    for at in range(20):
        idle = told.slot(20.0 + at)
    assert idle.cloud_lane_s == busy.cloud_lane_s
    told.dispatched(100, "vm-1")
    assert 0.0 < (told.slot(40.0).cloud_lane_s or 0.0) < 5.0


def test_a_closed_lane_leaves_neither_open_runs_nor_a_rate() -> None:
    told = Told()
    told.dispatched(0, "vm-1")
    told.dispatched(1, "vm-1")
    told.completed(0, "vm-1", arrival_s=0.0, at_s=1.0)
    assert told.slot(1.0).open_runs == 1
    told.profiler.lane_closed("vm-1")
    (slot,) = told.profiler.end_slot(2.0)
    assert (slot.rates, slot.open_runs, slot.cloud_lane_s) == ({}, 0, None)


def test_what_comes_after_a_later_run_is_out_of_order() -> None:
    told = Told()
    for run in range(4):
        told.dispatched(run)
    for run in (0, 3, 1, 2):
        told.completed(run, arrival_s=0.0, at_s=1.0)
    assert told.slot(1.0).out_of_order_share == 0.5
    told.dispatched(4)
    told.completed(4, arrival_s=1.0, at_s=1.5)
    assert told.slot(2.0).out_of_order_share == 0.0


def test_times_of_micro_batches_are_relative_to_their_lane() -> None:
    told = Told()
    for run, lane in enumerate([HOME, HOME, HOME, "vm-1", "vm-1", HOME, "vm-1"]):
        told.dispatched(run, lane)
    told.completed(0, arrival_s=0.0, at_s=1.0, batch=(1, 0.2))
    told.completed(1, arrival_s=0.0, at_s=1.0, batch=(1, 0.2))
    told.completed(2, arrival_s=0.0, at_s=1.0, batch=(2, 0.3))
    told.completed(3, "vm-1", arrival_s=0.0, at_s=1.0, batch=(1, 0.9))
    told.completed(4, "vm-1", arrival_s=0.0, at_s=1.0, batch=(2, 0.9))
    told.completed(5, arrival_s=0.0, at_s=1.0, batch=(3, 0.1))
    told.completed(6, "vm-1", arrival_s=0.0, at_s=1.0, batch=(3, 0.9))
    times = told.slot(1.0).batch_times
    assert times is not None
    # Home: 200 events in 0.2 s, then 100 in 0.3 s after a mean of 0.5 s for 300. The VM: always 9 ms an event.
    assert sorted(times.sample) == pytest.approx([1.0, 1.0, 1.0, 1.8], rel=1e-3)
    assert told.slot(2.0).batch_times is None, "what is not complete yet counts later"


def arrive(told: Told, events: int, first_due_s: float, last_due_s: float) -> None:
    told.profiler.arrived("q", events=events, raw_bytes=events * 10, first_due_s=first_due_s, last_due_s=last_due_s)


def test_the_input_rate_is_that_of_due_times_however_slowly_events_are_read() -> None:
    told = Told()
    arrive(told, 200, 10.0, 10.1)
    arrive(told, 1800, 10.1, 11.0)
    slot = told.slot(11.0)
    assert (slot.input_rate, slot.input_bytes_per_s) == (pytest.approx(1000, rel=0.01), pytest.approx(10_000, rel=0.01))
    arrive(told, 500, 11.0, 11.25)
    assert told.slot(12.0).input_rate == pytest.approx(2000)
    told.waits(0, 11.25)
    assert told.slot(13.0).input_rate == pytest.approx(2000)
    arrive(told, 8000, 11.25, 15.25)
    assert told.slot(14.0).input_rate == pytest.approx(2000)


def test_without_input_the_rate_is_zero_and_a_burst_after_a_pause_is_one_slot_long() -> None:
    told = Told()
    arrive(told, 100, 10.0, 10.0)
    assert told.slot(10.5).input_rate == pytest.approx(100)
    assert told.slot(11.5).input_rate == 0.0
    arrive(told, 300, 60.0, 60.0)
    assert told.slot(60.5).input_rate == pytest.approx(300)


def test_credit_that_ran_out_is_told_for_its_slot_only() -> None:
    told = Told()
    told.profiler.no_credit("q", "vm-1")
    told.profiler.no_credit("q", "vm-1")
    assert told.slot(1.0).no_credit == {"vm-1"}
    assert told.slot(2.0).no_credit == frozenset()


def test_queries_are_kept_apart() -> None:
    profiler = Profiler(1.0, {"a": "mean", "b": "mean"})
    profiler.under_way("a", waiting_events=1, oldest_arrival_s=0.0, open_runs={})
    a, b = profiler.end_slot(2.0)
    assert ((a.query, a.latency_s), (b.query, b.latency_s)) == (("a", 2.0), ("b", 0.0))


def test_a_slot_without_length_is_refused() -> None:
    with pytest.raises(ValueError, match="slot"):
        Profiler(0.0, {"q": "mean"})
