"""Records one run of the gateway, for the demo and for ``--report``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gateway.query.flow.statistics import Tally
from gateway.views.runrecord import (
    Boot,
    GatewayRecord,
    MarkKind,
    Slot,
    Spread,
    TimelineMark,
    Totals,
    VmTotals,
    WanBytes,
    write_record,
)
from policies.histogram import Histogram
from policies.signals import Command, Event, QuerySlot, StartVm, TerminateVm, VmAdopted, VmGone, VmReady
from policies.vms.fleet import FleetTotals

# Of all queries together: of one query, one slot per second for four hours; a longer run keeps the newest.
_SLOTS_MAX = 14_400
_MARKS_MAX = 10_000


class Recorder:
    """Collects the slots of each query, and the marks of the VMs.

    Args:
        started_s: zero of the time axis, on the gateway's clock.
        wall_s: the same in seconds since 1970; 0 if that is unknown.
    """

    def __init__(self, started_s: float, wall_s: float = 0.0) -> None:
        self._started_s = self._last_s = started_s
        self._wall_s = wall_s
        self._direct: dict[str, int] = {}
        self._slots: dict[str, list[Slot]] = {}
        self._marks: list[TimelineMark] = []

    def slot(
        self, at_s: float, slots: Sequence[QuerySlot], tallies: Mapping[str, Tally], vm_states: Sequence[str]
    ) -> None:
        """Add the measurements of a slot; ``tallies`` counts the events of each query that there is now."""
        most = max(1, _SLOTS_MAX // max(1, len(tallies)))
        for slot in slots:
            if (tally := tallies.get(slot.query)) is not None:
                kept = self._slots.setdefault(slot.query, [])
                kept.append(self._measured(at_s, slot, tally, vm_states))
                del kept[:-most]
        self._last_s = at_s

    def _measured(self, at_s: float, slot: QuerySlot, tally: Tally, vm_states: Sequence[str]) -> Slot:
        dispatched = sum(slot.dispatched_events.values())
        to_cloud = sum(n for lane, n in slot.dispatched_events.items() if lane in slot.raw_bytes)
        completed, all_latency_s = tally.take_slot()
        direct = tally.direct_events - self._direct.get(slot.query, 0)
        self._direct[slot.query] = tally.direct_events
        return Slot(
            at_s=at_s - self._started_s,
            latency_ms=slot.latency_s * 1e3,
            all_latency_ms=None if all_latency_s is None else all_latency_s * 1e3,
            input_rate=slot.input_rate,
            completed_rate=completed / (at_s - self._last_s),
            share=to_cloud / dispatched if dispatched else 0.0,
            raw_bytes=sum(slot.raw_bytes.values()),
            sent_bytes=sum(slot.sent_bytes.values()),
            vm_states=tuple(vm_states),
            completed=dict(slot.completed_events),
            open=dict(slot.open_events),
            direct=direct,
        )

    def note(self, event: Event, commands: Iterable[Command]) -> None:
        """Mark what an event and its commands mean for VMs."""
        self.event(event)
        for command in commands:
            self.command(event.at_s, command)

    def command(self, at_s: float, command: Command) -> None:
        """Mark a VM's start and its termination."""
        kinds: dict[type[Command], MarkKind] = {StartVm: "vm_start", TerminateVm: "vm_stop"}
        kind = kinds.get(type(command))
        if kind is not None and isinstance(command, StartVm | TerminateVm):
            self._marks.append(TimelineMark(at_s=at_s - self._started_s, kind=kind, vm=command.vm))

        del self._marks[:-_MARKS_MAX]

    def event(self, event: Event) -> None:
        """Mark a VM that is ready, adopted, or gone."""
        if isinstance(event, VmReady | VmAdopted | VmGone):
            kind: MarkKind = "vm_gone" if isinstance(event, VmGone) else "vm_ready"
            self._marks.append(TimelineMark(at_s=event.at_s - self._started_s, kind=kind, vm=event.vm))

    def write(self, path: Path, first: str, tallies: Mapping[str, Tally], fleet: FleetTotals, boot: Boot) -> list[Path]:
        """Write the record of each query as JSON; return the files.

        Args:
            path: the file of the query ``first``; that of another query has its name at the end: ``run-orders.json``.
            first: the config's first query.
            tallies: counts of the queries that there are at the end.
            fleet: what the VMs did for all of them.
            boot: whether their boots were real.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        written = []
        for name, tally in tallies.items():
            slots, marks = tuple(self._slots.get(name, ())), tuple(self._marks)
            record = GatewayRecord(
                totals=_totals(tally, fleet), slots=slots, marks=marks, boot=boot, began_s=self._wall_s
            )
            written.append(path if name == first else path.with_stem(f"{path.stem}-{name}"))
            write_record(record, written[-1])
        return written


def _totals(tally: Tally, fleet: FleetTotals) -> Totals:
    return Totals(
        events=tally.events,
        results=tally.results,
        shed=tally.shed,
        late=tally.late_results,
        dead_letters=tally.dead_letters,
        too_late=tally.too_late,
        open_groups=tally.open_groups,
        out_of_order=tally.disordered_events,
        latency_ms=_spread(tally.latency),
        delivery_ms=_spread(tally.delivery),
        wan_bytes=WanBytes(raw=tally.raw_bytes, sent=tally.sent_bytes),
        vms=VmTotals(
            started=fleet.started,
            stopped=fleet.stopped,
            billed_s=fleet.billed_s,
            usd=fleet.usd,
            used_s=fleet.used_s,
            unused_s=fleet.billed_s - fleet.used_s,
            sent_bytes=fleet.sent_bytes,
            received_bytes=fleet.received_bytes,
            bills=fleet.bills,
        ),
        events_by_lane=dict(tally.events_by_lane),
        direct_events=tally.direct_events,
    )


def _spread(histogram: Histogram) -> Spread:
    return Spread(
        mean=histogram.mean_s * 1e3, p50=histogram.quantile_s(0.5) * 1e3, p95=histogram.quantile_s(0.95) * 1e3
    )


def tallies_texts(tallies: Mapping[str, Tally]) -> list[str]:
    """Return a line for each query: events by lane, results, latency."""
    return [
        f"query {name}: {_by_lane(tally)}, {tally.results:,} results, mean latency {tally.latency.mean_s:.2f} s, "
        f"delivered after {tally.delivery.mean_s:.2f} s, {tally.sent_bytes:,} of {tally.raw_bytes:,} bytes sent; "
        f"{tally.shed:,} shed, {tally.dead_letters:,} dead letters, {tally.too_late:,} too late"
        for name, tally in tallies.items()
    ]


def _by_lane(tally: Tally) -> str:
    """Return how many events each lane has answered, such as ``10 events (home 7, vm-1 3)``."""
    lanes = ", ".join(f"{lane} {events:,}" for lane, events in sorted(tally.events_by_lane.items()))
    return f"{sum(tally.events_by_lane.values()):,} events" + (f" ({lanes})" if lanes else "")


def open_groups_texts(tallies: Mapping[str, Tally]) -> list[str]:
    """Return a line for each query whose results wait for a watermark that does not advance any more."""
    return [
        f"query {name}: {tally.open_groups} groups are still open in its state. Append mode delivers a group once the "
        "watermark has passed it. They stay in the checkpoint, and a later start with more events goes on with them: "
        "docs/until-drained.md"
        for name, tally in tallies.items()
        if tally.open_groups
    ]
