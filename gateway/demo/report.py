"""The demo's figures: one struct for ``report.json``, the table in the terminal and the top of the page."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from rich.table import Table

from gateway.demo.load import RateSegment
from gateway.demo.verify import SinkVerdict
from gateway.views.runrecord import Boot, GatewayRecord, Spread, TimelineMark, VmTotals, WanBytes

Mode = Literal["private_only", "elastic", "elastic_compressed"]

Policy = Literal["reactive", "lookahead", "cpu", "auto"]
"""The policies that need no longer history than a demo has."""

TITLES: dict[Mode, str] = {
    "private_only": "private only",
    "elastic": "elastic",
    "elastic_compressed": "elastic, trimmed and compressed",
}


class Reaction(msgspec.Struct, frozen=True, kw_only=True):
    """How soon the gateway had a VM for a spike, in seconds after the spike began.

    Attributes:
        launch_s: when a VM was launched; None if one was there already, or none was launched before the spike ended.
        serve_s: when a VM could serve; 0 if one was there already, None if none could before the spike ended.
    """

    launch_s: float | None
    serve_s: float | None


class ModeReport(msgspec.Struct, frozen=True, kw_only=True):
    """One mode's figures: counts from ``verify``, everything else as its gateway recorded it."""

    events: int
    results: int
    lost: int
    duplicated: int
    order_violations: int
    late: int
    latency_ms: Spread
    delivery_ms: Spread
    wan_bytes: WanBytes
    vms: VmTotals
    out_of_order: int = 0
    reactions: tuple[Reaction, ...] = ()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that all three runs share.

    Attributes:
        mail: the origin of the mail, in words.
        base_mails: how many distinct mails are repeated.
        profile: the load.
        start_vm_above_s: L_s.
        send_above_s: L_d.
        keep_vm_above_s: L_p.
        billing_period_s: of a VM.
        max_vms: the limit of VMs at a time.
        link_delay_ms: one way, each way.
        link_mbit_per_s: rate of each cloud lane's link.
        wan: the emulated WAN, in words; None if links were shaped in user space.
        order: in which order the modes were played.
        policy: what decided about VMs.
    """

    mail: str
    base_mails: int
    profile: tuple[RateSegment, ...]
    start_vm_above_s: float
    send_above_s: float
    keep_vm_above_s: float
    billing_period_s: float
    max_vms: int
    link_delay_ms: float
    link_mbit_per_s: float
    wan: str | None = None
    order: tuple[Mode, ...] = tuple(TITLES)
    policy: Policy = "reactive"


class Improvement(msgspec.Struct, frozen=True, kw_only=True):
    """How much better a mode is than private only, in percent of private only; below 0 is worse.

    ``sent_over_raw`` is bytes sent over bytes before trimming and compression, None where nothing was sent.
    """

    mean_latency_percent: float
    p95_latency_percent: float
    mean_delivery_percent: float
    sent_over_raw: float | None


class Improvements(msgspec.Struct, frozen=True, kw_only=True):
    """Both elastic modes compared with private only."""

    elastic: Improvement
    elastic_compressed: Improvement


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``report.json``. ``boot`` says how VMs boot: a real Spark start, or emulated on warm hosts."""

    private_only: ModeReport
    elastic: ModeReport
    elastic_compressed: ModeReport
    improvements: Improvements
    capacity_events_per_s: float
    boot: Boot
    config: Settings


class ModeRun(msgspec.Struct, frozen=True, kw_only=True):
    """A mode's record by its gateway, and the result of the check of its answers."""

    record: GatewayRecord
    verdict: SinkVerdict


RunsByMode = dict[Mode, ModeRun]


def make_report(runs: RunsByMode, settings: Settings, capacity_events_per_s: float) -> Report:
    """Combine the figures of the three runs; ``runs`` holds all three modes."""
    modes = {mode: _mode_report(run, settings.profile) for mode, run in runs.items()}
    private = modes["private_only"]
    return Report(
        private_only=private,
        elastic=modes["elastic"],
        elastic_compressed=modes["elastic_compressed"],
        improvements=Improvements(
            elastic=_improvement(private, modes["elastic"]),
            elastic_compressed=_improvement(private, modes["elastic_compressed"]),
        ),
        capacity_events_per_s=capacity_events_per_s,
        boot=runs["elastic"].record.boot,
        config=settings,
    )


def write_report(report: Report, path: Path) -> None:
    """Write ``report`` as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def shortfalls(report: Report) -> list[str]:
    """Return one sentence for each property that every demo must have and this one lacks: right answers, no VM left."""
    found: list[str] = []
    for mode, title in TITLES.items():
        one: ModeReport = getattr(report, mode)
        counts = {"lost": one.lost, "duplicated": one.duplicated, "out of order": one.order_violations}
        found.extend(f"{title}: {count} {what}" for what, count in counts.items() if count)
        if one.vms.stopped != one.vms.started:
            found.append(f"{title}: {one.vms.started} VMs started, {one.vms.stopped} stopped")
    return found


def summary_rows(report: Report) -> list[tuple[str, str, str, str]]:
    """Return the summary as (figure, private only, elastic, compressed), ready for display."""
    modes = (report.private_only, report.elastic, report.elastic_compressed)
    gains = (None, report.improvements.elastic, report.improvements.elastic_compressed)
    means = [_gain(gain.mean_latency_percent) if gain else "" for gain in gains]
    p95s = [_gain(gain.p95_latency_percent) if gain else "" for gain in gains]
    table = [
        ("mean latency", [f"{m.latency_ms.mean / 1000:.2f} s{g}" for m, g in zip(modes, means, strict=True)]),
        ("median latency", [f"{m.latency_ms.p50 / 1000:.2f} s" for m in modes]),
        (
            "95th percentile of latency",
            [f"{m.latency_ms.p95 / 1000:.2f} s{g}" for m, g in zip(modes, p95s, strict=True)],
        ),
        ("mean delivery (with reorder wait)", [f"{m.delivery_ms.mean / 1000:.2f} s" for m in modes]),
        ("95th percentile of delivery", [f"{m.delivery_ms.p95 / 1000:.2f} s" for m in modes]),
        ("events", [f"{m.events:,}" for m in modes]),
        ("results", [f"{m.results:,}" for m in modes]),
        ("lost / duplicated / out of order", [f"{m.lost} / {m.duplicated} / {m.order_violations}" for m in modes]),
        ("completed out of order", [f"{100 * m.out_of_order / max(1, m.events):.1f} % of events" for m in modes]),
        ("late, and marked as late", [f"{m.late:,}" for m in modes]),
        ("WAN bytes before trimming", [_megabytes(m.wan_bytes.raw) for m in modes]),
        ("WAN bytes sent", [_megabytes(m.wan_bytes.sent) + _ratio(m.wan_bytes) for m in modes]),
        ("VMs started / stopped", [f"{m.vms.started} / {m.vms.stopped}" for m in modes]),
        ("from a spike to the launch of a VM", [_seconds([r.launch_s for r in m.reactions]) for m in modes]),
        ("from a spike to a VM that serves", [_seconds([r.serve_s for r in m.reactions]) for m in modes]),
        ("VM time billed", [f"{m.vms.billed_s:.0f} s" for m in modes]),
        ("cost", [f"{m.vms.usd:.4f} USD" for m in modes]),
    ]
    return [(name, *cells) for name, cells in table]  # type: ignore[misc]


def summary_table(report: Report) -> Table:
    """Return the summary for a terminal."""
    table = Table(title="The same mail, replayed in three ways")
    table.add_column("")
    for title in TITLES.values():
        table.add_column(title, justify="right")
    for row in summary_rows(report):
        table.add_row(*row)
    return table


def reactions(marks: Sequence[TimelineMark], profile: Sequence[RateSegment]) -> tuple[Reaction, ...]:
    """Return the reaction to each spike, which is where the rate of ``profile`` rises."""
    found, at_s = [], 0.0
    for before, segment in itertools.pairwise(profile):
        at_s += before.duration_s
        if segment.events_per_s > before.events_per_s:
            found.append(_reaction(marks, at_s, at_s + segment.duration_s))
    return tuple(found)


def _reaction(marks: Sequence[TimelineMark], begins_s: float, ends_s: float) -> Reaction:
    serves = {mark.vm for mark in marks if mark.kind == "vm_ready" and mark.at_s <= begins_s}
    serves -= {mark.vm for mark in marks if mark.kind in ("vm_stop", "vm_gone") and mark.at_s <= begins_s}
    if serves:
        return Reaction(launch_s=None, serve_s=0.0)
    within = [mark for mark in marks if begins_s < mark.at_s <= ends_s]
    launch_s, serve_s = (
        min((mark.at_s - begins_s for mark in within if mark.kind == kind), default=None)
        for kind in ("vm_start", "vm_ready")
    )
    return Reaction(launch_s=launch_s, serve_s=serve_s)


def _mode_report(run: ModeRun, profile: Sequence[RateSegment]) -> ModeReport:
    totals, verdict = run.record.totals, run.verdict
    return ModeReport(
        events=totals.events,
        results=verdict.results,
        lost=verdict.lost,
        duplicated=verdict.duplicated,
        order_violations=verdict.order_violations,
        late=verdict.late,
        latency_ms=totals.latency_ms,
        delivery_ms=totals.delivery_ms,
        wan_bytes=totals.wan_bytes,
        vms=totals.vms,
        out_of_order=totals.out_of_order,
        reactions=reactions(run.record.marks, profile),
    )


def _improvement(private: ModeReport, hybrid: ModeReport) -> Improvement:
    return Improvement(
        mean_latency_percent=_percent_below(private.latency_ms.mean, hybrid.latency_ms.mean),
        p95_latency_percent=_percent_below(private.latency_ms.p95, hybrid.latency_ms.p95),
        mean_delivery_percent=_percent_below(private.delivery_ms.mean, hybrid.delivery_ms.mean),
        sent_over_raw=hybrid.wan_bytes.sent / hybrid.wan_bytes.raw if hybrid.wan_bytes.raw else None,
    )


def _percent_below(private: float, hybrid: float) -> float:
    return 100 * (private - hybrid) / private if private else 0.0


def _gain(percent: float) -> str:
    return f"  ({-percent:+.0f} %)"


def _seconds(each_s: Sequence[float | None]) -> str:
    """Return a time for each spike; a dash where there is none."""
    return ", ".join("-" if one_s is None else f"{one_s:.1f} s" for one_s in each_s)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _ratio(wan: WanBytes) -> str:
    return f"  ({wan.sent / wan.raw:.2f}x)" if wan.raw else ""
