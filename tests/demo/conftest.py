"""Three runs as a gateway would record them, from a simple queue: one engine, up to two VMs, the demo's load."""

from __future__ import annotations

import pytest

from gateway.demo.load import event_count, spikes
from gateway.demo.report import ModeRun, Report, RunsByMode, Settings, make_report
from gateway.demo.verify import SinkVerdict
from gateway.views.runrecord import GatewayRecord, Slot, Spread, TimelineMark, Totals, VmTotals, WanBytes

CAPACITY = 5000.0
PROFILE = spikes(CAPACITY)
SETTINGS = Settings(
    mail="made-up mail",
    base_mails=4146,
    profile=PROFILE,
    start_vm_above_s=3,
    send_above_s=2,
    keep_vm_above_s=1,
    billing_period_s=20,
    max_vms=2,
    link_delay_ms=35,
    link_mbit_per_s=40,
)


def simulated(sent_ratio: float, cloud_share: float, *, elastic: bool) -> GatewayRecord:
    slots, marks, backlog, raw_total = [], [], 0.0, 0
    up_at: list[float] = []
    rates = [segment.events_per_s for segment in PROFILE for _ in range(int(segment.duration_s))] + [0.0] * 6
    for second, rate in enumerate(rates):
        latency_s = 0.3 + backlog / CAPACITY
        if elastic and latency_s > 3 and len(up_at) < 2 and (not up_at or second > up_at[-1] + 3):
            up_at.append(second + 4)
            marks += [TimelineMark(at_s=second, kind="vm_start", vm=f"vm-{second}")]
            marks += [TimelineMark(at_s=second + 4, kind="vm_ready", vm=f"vm-{second}")]
            marks += [TimelineMark(at_s=second + 24, kind="vm_stop", vm=f"vm-{second}")]
            marks += [TimelineMark(at_s=second + 26, kind="vm_gone", vm=f"vm-{second}")]
        up_at = [at for at in up_at if second < at + 20]
        ready = sum(at <= second for at in up_at) if latency_s > 1 else 0
        share = min(0.8, ready * cloud_share)
        backlog = max(0.0, backlog + rate * (1 - share) - CAPACITY)
        raw = int(rate * share * 1400)
        raw_total += raw
        slots.append(
            Slot(
                at_s=second + 1,
                latency_ms=1000 * latency_s if rate else None,
                all_latency_ms=1000 * (latency_s * (1 - share) + 0.6 * share) if rate else None,
                input_rate=rate,
                completed_rate=rate,
                share=share,
                raw_bytes=raw,
                sent_bytes=int(raw * sent_ratio),
                vm_states=("off",) * 2,
            )
        )
    seen = [slot.all_latency_ms for slot in slots if slot.all_latency_ms is not None]
    mean = sum(seen) / len(seen)
    spread = Spread(mean=mean, p50=sorted(seen)[len(seen) // 2], p95=sorted(seen)[int(len(seen) * 0.95)])
    vms = sum(mark.kind == "vm_start" for mark in marks)
    totals = Totals(
        events=event_count(PROFILE),
        results=1000,
        late=0,
        latency_ms=spread,
        delivery_ms=spread,
        wan_bytes=WanBytes(raw=raw_total, sent=int(raw_total * sent_ratio)),
        vms=VmTotals(started=vms, stopped=vms, billed_s=20.0 * vms, usd=0.001 * vms),
    )
    return GatewayRecord(totals=totals, slots=tuple(slots), marks=tuple(marks), boot="emulated")


@pytest.fixture
def runs() -> RunsByMode:
    clean = SinkVerdict(results=1000, lost=0, duplicated=0, order_violations=0, late=0)
    return {
        "private_only": ModeRun(record=simulated(1, 0, elastic=False), verdict=clean),
        "elastic": ModeRun(record=simulated(1, 0.25, elastic=True), verdict=clean),
        "elastic_compressed": ModeRun(record=simulated(0.31, 0.35, elastic=True), verdict=clean),
    }


@pytest.fixture
def report(runs: RunsByMode) -> Report:
    return make_report(runs, SETTINGS, CAPACITY)
