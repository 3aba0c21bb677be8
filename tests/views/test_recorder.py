from __future__ import annotations

from pathlib import Path

import pytest

from gateway.query.flow.statistics import Tally
from gateway.views.recorder import Recorder, open_groups_texts, tallies_texts
from gateway.views.runrecord import TimelineMark, read_record
from policies.signals import HOME, Cause, QuerySlot, StartVm, TerminateVm, VmGone, VmReady
from policies.vms.fleet import FleetTotals
from policies.vms.machine import VmBill


def test_totals_are_weighted_by_events() -> None:
    tally = Tally()
    tally.completed(HOME, 1.0, 300)
    tally.completed("vm1", 2.0, 100)
    tally.released(3.0, 300, 30, late=False)
    tally.released(5.0, 100, 7, late=True)
    tally.sent(1000, 250)
    assert tally.latency.mean_s == pytest.approx(1.25)
    assert tally.delivery.mean_s == pytest.approx(3.5)
    assert tally.events_by_lane == {HOME: 300, "vm1": 100}
    assert (tally.results, tally.late_results) == (37, 7)
    assert tally.take_slot() == (400, pytest.approx(1.25))
    assert tally.take_slot() == (0, None)
    assert "37 results" in tallies_texts({"q": tally})[0]
    assert "250 of 1,000 bytes" in tallies_texts({"q": tally})[0]


def test_a_micro_batch_that_runs_again_is_not_counted_again() -> None:
    tally = Tally()
    assert [tally.state(0, *said) for said in ((9, 3, 5), (19, 4, 6), (19, 4, 6), (9, 3, 5), (29, 1, 2))] == [
        3,
        4,
        0,
        0,
        1,
    ]
    assert (tally.too_late, tally.open_groups) == (8, 2)


def test_what_waits_for_a_watermark_is_said() -> None:
    some, none, unknown = Tally(), Tally(), Tally()
    some.state(0, 9, 3, 5)
    none.state(0, 9, 0, 0)
    (said,) = open_groups_texts({"q": some, "closed": none, "stateless": unknown})
    assert said.startswith("query q: 5 groups are still open in its state. Append mode delivers a group once")
    assert "3 too late" in tallies_texts({"q": some})[0]


def test_what_was_recorded_can_be_read_back(tmp_path: Path) -> None:
    recorder, tally, others = Recorder(100.0), Tally(), Tally()
    tallies = {"other": others, "q": tally}
    others.events, tally.events = 70, 900
    tally.completed(HOME, 0.5, 400)
    other = QuerySlot(query="other", latency_s=9.0)
    slot = QuerySlot(
        query="q",
        latency_s=1.5,
        dispatched_events={HOME: 300, "vm1": 100},
        raw_bytes={"vm1": 1000},
        sent_bytes={"vm1": 250},
        input_rate=800.0,
        completed_events={HOME: 400},
        open_events={"vm1": 100},
    )
    recorder.command(100.2, StartVm(cause=Cause("e1", "slow"), vm="vm1"))
    recorder.event(VmReady(event_id="e2", at_s=100.6, vm="vm1", billing_since_s=100.2))
    recorder.slot(100.5, [other, slot], tallies, ["ready", "off"])
    recorder.slot(101.5, [slot, QuerySlot(query="removed", latency_s=1.0)], tallies, ["off", "off"])
    recorder.command(101.6, TerminateVm(cause=Cause("e3", "fast"), vm="vm1"))
    recorder.event(VmGone(event_id="e4", at_s=102.0, vm="vm1"))
    bill = VmBill(vm="vm1", billed_s=60.0, used_s=42.0, unused_s=18.0, sent_bytes=250, usd=0.25)
    fleet = FleetTotals(1, 1, billed_s=60.0, usd=0.25, used_s=42.0, sent_bytes=250, bills=(bill,))
    folder = tmp_path / "reports"
    written = recorder.write(folder / "run.json", "q", tallies, fleet, "emulated")
    assert written == [folder / "run-other.json", folder / "run.json"]
    beside = read_record(folder / "run-other.json")
    assert ([slot.latency_ms for slot in beside.slots], beside.totals.events) == ([9000.0], 70)
    record = read_record(tmp_path / "reports" / "run.json")
    first, second = record.slots
    assert first.at_s == pytest.approx(0.5)
    assert (first.latency_ms, first.all_latency_ms, second.all_latency_ms) == (1500.0, 500.0, None)
    assert (first.share, first.raw_bytes, first.sent_bytes) == (0.25, 1000, 250)
    assert beside.marks == record.marks
    assert (first.completed_rate, second.completed_rate) == (800.0, 0.0)
    assert first.vm_states == ("ready", "off")
    assert (first.completed, first.open) == ({HOME: 400}, {"vm1": 100})
    assert (second.completed, second.open) == ({HOME: 400}, {"vm1": 100})
    assert [(mark.kind, round(mark.at_s, 3)) for mark in record.marks] == [
        ("vm_start", 0.2),
        ("vm_ready", 0.6),
        ("vm_stop", 1.6),
        ("vm_gone", 2.0),
    ]
    assert all(isinstance(mark, TimelineMark) and mark.vm == "vm1" for mark in record.marks)
    assert (record.totals.events, record.totals.vms.usd, record.boot) == (900, 0.25, "emulated")
    vms = record.totals.vms
    assert (vms.used_s, vms.unused_s, vms.sent_bytes, vms.bills) == (42.0, 18.0, 250, (bill,))


def test_what_spark_carried_by_itself_is_told_by_slot_and_in_sum(tmp_path: Path) -> None:
    recorder, tally = Recorder(100.0, 1_700_000_000.0), Tally()
    for at_s, events in ((101.0, 0), (102.0, 40), (103.0, 0), (104.0, 60)):
        tally.carried(events)
        recorder.slot(at_s, [QuerySlot(query="q", latency_s=0.1)], {"q": tally}, [])
    tally.carried(5)
    tally.completed("vm-1", 0.5, 7)
    (path,) = recorder.write(tmp_path / "record.json", "q", {"q": tally}, FleetTotals(0, 0, 0.0, 0.0), "real")
    record = read_record(path)
    assert [slot.direct for slot in record.slots] == [0, 40, 0, 60]
    assert record.totals.direct_events == 105
    assert record.totals.events_by_lane == {HOME: 105, "vm-1": 7}
    assert record.began_s == 1_700_000_000.0
