"""Equations 1 and 2 of ESM with the numbers of a slot, as sentences (Ravindra et al., ICPE 2017, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from policies.switching.query import SwitchedQuery
from policies.vms.machine import VmAccount
from policies.vms.vm import READY_STATES, VmState


class BilledPeriod(NamedTuple):
    """The billing period of a VM.

    Attributes:
        vm: its name.
        end_s: when the period ends, on the clock of ``at_s``.
        raw_bytes: D by query: raw bytes that were sent to it in this period.
    """

    vm: str
    end_s: float
    raw_bytes: Mapping[str, int]


def billed_periods(live: Iterable[VmAccount]) -> tuple[BilledPeriod, ...]:
    """Return the billing periods of the VMs that serve."""
    serving = (machine for machine in live if machine.state in READY_STATES)
    return tuple(BilledPeriod(each.name, each.block_end_s, dict(each.block_raw_bytes)) for each in serving)


def equations(
    query: SwitchedQuery,
    at_s: float,
    *,
    vms: Mapping[str, VmState],
    periods: tuple[BilledPeriod, ...],
    vm_note: str,
) -> tuple[str, ...]:
    """Return what the equations say of a query: whether to launch a VM, to keep each VM, and to send events.

    Args:
        query: its measurements, thresholds, and since when its latency is high.
        at_s: end of the slot.
        vms: state of each live VM.
        periods: of the VMs that serve.
        vm_note: the state of the next VM.
    """
    return (
        _launch(query, at_s, vm_note),
        *(_keep(query, at_s, period) for period in periods),
        _send(query, vms),
    )


def _launch(query: SwitchedQuery, at_s: float, vm_note: str) -> str:
    latency_s, limits = query.slot.latency_s, query.settings.switching
    if latency_s < limits.start_vm_above_s:
        return f"Equation 1, launch: no, since L {latency_s:.2f} s < start_vm_above (L_s) {limits.start_vm_above_s:g} s"
    said = f"L {latency_s:.2f} s >= start_vm_above (L_s) {limits.start_vm_above_s:g} s"
    if query.high_since_s is None:
        return f"Equation 1, launch: {said}; {query.why_home or vm_note}"
    held = f"held for {at_s - query.high_since_s:.1f} s of the tolerance (tau) of {limits.tolerance_s:g} s"
    return f"Equation 1, launch: {'yes' if query.vm_is_due(at_s) else 'not yet'}: {said}, {held}"


def _keep(query: SwitchedQuery, at_s: float, period: BilledPeriod) -> str:
    latency_s, limits = query.slot.latency_s, query.settings.switching
    period_bytes = period.raw_bytes.get(query.settings.name, 0)
    high, many = latency_s >= limits.keep_vm_above_s, period_bytes >= limits.keep_vm_bytes
    verdict = "yes" if query.keeps_vm(period_bytes, at_s) else "no"
    left_s = max(0.0, period.end_s - at_s)
    return (
        f"Equation 1, keep {period.vm} when its billing period ends in {left_s:.0f} s: {verdict}: "
        f"L {latency_s:.2f} s {'>=' if high else '<'} keep_vm_above (L_p) {limits.keep_vm_above_s:g} s, and "
        f"D {period_bytes:,} bytes {'>=' if many else '<'} keep_vm_bytes (D_s) {limits.keep_vm_bytes:,}"
    )


def _send(query: SwitchedQuery, vms: Mapping[str, VmState]) -> str:
    latency_s, limits = query.slot.latency_s, query.settings.switching
    ready = not READY_STATES.isdisjoint(vms.values())
    high = latency_s >= limits.send_above_s
    verdict = "yes" if ready and high else "no"
    told = (
        f"Equation 2, send events: {verdict}: {'a' if ready else 'no'} VM is ready, and L {latency_s:.2f} s "
        f"{'>=' if high else '<'} send_above (L_d) {limits.send_above_s:g} s"
    )
    if ready and not high and query.would_be_late:
        told += f"; they are sent all the same, since with home alone they would wait {query.home_alone_s:.1f} s soon"
    return told
