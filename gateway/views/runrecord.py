"""The record that a gateway writes about one run, and the demo reads: totals, one line per slot, and VM marks.

The file is one JSON object, ``{"totals": {…}, "slots": […], "marks": […], "boot": "emulated" | "real"}``. It does not
say whether results were lost or repeated: ``gateway.demo.verify`` counts that, independently of the gateway.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from policies.vms.machine import VmBill

MarkKind = Literal["vm_start", "vm_ready", "vm_stop", "vm_gone"]
Boot = Literal["emulated", "real"]


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Event-weighted mean, median and 95th percentile of a latency, in milliseconds."""

    mean: float
    p50: float
    p95: float


class WanBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Payload bytes of the runs sent to cloud lanes: before trimming and compression, and as sent."""

    raw: int
    sent: int


class VmTotals(msgspec.Struct, frozen=True, kw_only=True):
    """VMs started and stopped, the seconds they were billed for, and the cost of these and of their traffic.

    Attributes:
        started: how many.
        stopped: how many.
        billed_s: time that is paid for.
        usd: time and traffic.
        used_s: the part of that time in which they could take events or still worked on some.
        unused_s: the rest of it.
        sent_bytes: over the links to them, with frames and heartbeats.
        received_bytes: over the links from them.
        bills: the same for each of the last VMs.
    """

    started: int
    stopped: int
    billed_s: float
    usd: float
    used_s: float = 0.0
    unused_s: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    bills: tuple[VmBill, ...] = ()


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a whole run.

    Attributes:
        events: input events stamped with a seq.
        shed: input events that were shed because the budget was spent.
        results: result rows released to the sink.
        late: result rows released after later ones, and marked so.
        dead_letters: events and undecodable records without a result, which are kept with their reason.
        too_late: rows, or groups of rows, that were behind the watermark of a stateful query and dropped.
        open_groups: rows of state that wait for the watermark; None if that is unknown, or there is none.
        out_of_order: events that were completed after later ones, before they were put in order.
        latency_ms: processing latency over all lanes (completion of a run in its lane minus arrival).
        delivery_ms: release to the sink minus arrival, with the wait for order.
        wan_bytes: the bytes that crossed, or would have crossed, the WAN.
        vms: the number of VMs, and their cost.
        events_by_lane: events that each lane has answered.
        direct_events: those of home that Spark has read and delivered by itself.
    """

    events: int
    results: int
    late: int
    latency_ms: Spread
    delivery_ms: Spread
    wan_bytes: WanBytes
    vms: VmTotals
    out_of_order: int = 0
    dead_letters: int = 0
    shed: int = 0
    too_late: int = 0
    open_groups: int | None = None
    events_by_lane: dict[str, int] = {}
    direct_events: int = 0


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One time step of the switching functions.

    Attributes:
        at_s: end of the slot, seconds since the first event was due.
        latency_ms: L_t, the private lane's processing latency; None if nothing completed and nothing waits.
        all_latency_ms: mean processing latency of the events completed in this slot, all lanes; None without any.
        input_rate: events due in this slot, per second.
        completed_rate: events completed in this slot by all lanes, per second.
        share: R, the part of the events of this slot that was sent to cloud lanes (0 to 1).
        raw_bytes: bytes of the runs sent to cloud lanes in this slot before trimming and compression.
        sent_bytes: bytes that were sent for them.
        vm_states: state of each VM slot, in the words of Figure 4's machine (``off``, ``starting``, ``ready``…).
        completed: events that each lane completed in this slot.
        open: events in each lane at its end.
        direct: events of which Spark at home has told in this slot that it delivered them by itself, each few seconds;
            they are not in ``completed``.
    """

    at_s: float
    latency_ms: float | None
    all_latency_ms: float | None
    input_rate: float
    completed_rate: float
    share: float
    raw_bytes: int
    sent_bytes: int
    vm_states: tuple[str, ...] = ()
    completed: dict[str, int] = {}
    open: dict[str, int] = {}
    direct: int = 0


class TimelineMark(msgspec.Struct, frozen=True, kw_only=True):
    """A moment in the life of a VM; ``at_s`` counts from the first event's due time, ``vm`` is the VM's name."""

    at_s: float
    kind: MarkKind
    vm: str


class GatewayRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a gateway, as it recorded itself.

    Attributes:
        totals: of the whole run.
        slots: one after the other.
        marks: of VMs, in order.
        boot: whether VMs really booted.
        began_s: when its times begin, in seconds since 1970; 0 if that is unknown.
    """

    totals: Totals
    slots: tuple[Slot, ...]
    marks: tuple[TimelineMark, ...]
    boot: Boot
    began_s: float = 0.0


def read_record(path: Path) -> GatewayRecord:
    """Return the record in ``path``.

    Raises:
        ValueError: the file is not a run record; the message names the file and the field.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=GatewayRecord)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is not a run record: {error}") from error


def write_record(record: GatewayRecord, path: Path) -> None:
    """Write ``record`` to ``path`` as one JSON object."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
