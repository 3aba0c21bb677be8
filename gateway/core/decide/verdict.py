"""The decision about each query, as a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.core.decide.equations import BilledPeriod, equations
from policies.advice import Advice, Site
from policies.alternatives import Alternatives, Standing, alternatives
from policies.demand import Demand
from policies.signals import BootEstimate, Decision
from policies.switching.query import SwitchedQuery
from policies.vms.vm import READY_STATES, WANTED_STATES, VmState


def decisions(
    queries: Mapping[str, SwitchedQuery],
    demand: Demand,
    at_s: float,
    *,
    refused: Mapping[str, str],
    vm_note: str,
    vms: Mapping[str, VmState],
    slow: tuple[str, ...],
    periods: tuple[BilledPeriod, ...],
    site: Site,
    boot: BootEstimate,
    halted: str = "",
) -> tuple[Decision, ...]:
    """Say what was decided for each query, as ``_decision`` does; ``refused`` is by query."""
    shown_vms = MappingProxyType({name: str(state) for name, state in vms.items()})
    return tuple(
        _decision(
            query,
            at_s,
            policy=demand.policy(name),
            advice=demand.advice[name],
            asks=demand.asks(name),
            refused=refused.get(name, ""),
            vm_note=vm_note,
            vms=vms,
            shown_vms=shown_vms,
            slow=slow,
            periods=periods,
            site=site,
            boot=boot,
            halted=halted,
        )
        for name, query in queries.items()
    )


def _decision(
    query: SwitchedQuery,
    at_s: float,
    *,
    policy: str,
    advice: Advice,
    asks: bool,
    refused: str,
    vm_note: str,
    vms: Mapping[str, VmState],
    shown_vms: Mapping[str, str],
    slow: tuple[str, ...],
    periods: tuple[BilledPeriod, ...],
    site: Site,
    boot: BootEstimate,
    halted: str,
) -> Decision:
    """Return the decision about a query, with its reason.

    Args:
        query: with its present route.
        at_s: end of the slot.
        policy: the policy that decides when VMs start and are kept.
        advice: its answer.
        asks: whether equation 1 asks for a VM.
        refused: why the ranking did not let it go; empty if it did.
        vm_note: the state of the next VM.
        vms: state of each live VM.
        shown_vms: the same for the record, which nobody may change.
        slow: of VMs that take long to start.
        periods: the billing periods of the VMs that serve, before any was renewed.
        site: the settings that all queries share.
        boot: how long a VM that is ordered now takes.
        halted: why no VM is launched or given back now, whatever is measured; empty if they may be.
    """
    latency_s, sent = query.slot.latency_s, len(query.route) > 1
    verdict = _verdict(query, asks=asks, refused=refused, vm_note=vm_note, vms=vms, halted=halted)
    others = None if (advice.rules and advice.options) or query.why_home else _others(query, site, boot, vms)
    return Decision(
        query=query.settings.name,
        at_s=at_s,
        latency_s=latency_s,
        phi_vm=not WANTED_STATES.isdisjoint(vms.values()),
        phi_data=sent,
        share=query.share,
        verdict=verdict,
        slot=query.shown,
        vms=shown_vms,
        policy=policy,
        advice=advice,
        vm_note=vm_note,
        slow=slow,
        boot=boot,
        equations=equations(query, at_s, vms=vms, periods=periods, vm_note=vm_note),
        rules=MappingProxyType(dict(advice.rules or (others.rules if others else {}))),
        options=advice.options or (others.options if others else ()),
    )


def _verdict(
    query: SwitchedQuery, *, asks: bool, refused: str, vm_note: str, vms: Mapping[str, VmState], halted: str
) -> str:
    """Return the sentence; the arguments are those of ``_decision``."""
    latency_s, switching = query.slot.latency_s, query.settings.switching
    sent = [lane for lane, _ in query.route[1:]]
    if query.why_home:
        verdict = f"stays home: {query.why_home}"
        if query.settings.dry_run:
            verdict += f"; {query.left_undone}"
    elif sent:
        verdict = f"{query.share:.1%} to {', '.join(sent)}" + (f": {query.pin.why}" if query.pin is not None else "")
    elif query.pin is not None:
        waits = ", ".join(f"{name} is {state}" for name, state in vms.items()) or vm_note
        verdict = f"stays home although {query.pin.why}: no VM is ready; {waits}"
    elif refused:
        verdict = f"stays home: {refused}"
    elif latency_s >= switching.send_above_s and query.why_not_moved:
        verdict = f"stays home: {query.why_not_moved}"
    elif READY_STATES.intersection(vms.values()):
        verdict = f"stays home: L {latency_s:.2f} s < send_above {switching.send_above_s:g} s"
    else:
        verdict = "stays home: no VM is ready"
    if asks:
        verdict += f"; L {latency_s:.2f} s >= start_vm_above {switching.start_vm_above_s:g} s: {vm_note}"
    if halted:
        verdict += f"; {halted}"
    return verdict


def _others(query: SwitchedQuery, site: Site, boot: BootEstimate, vms: Mapping[str, VmState]) -> Alternatives | None:
    """Return what else there was, where the policy does not say it."""
    ready = [name for name, state in vms.items() if state in READY_STATES]
    booting = sum(state is VmState.STARTING for state in vms.values())
    latency_s, sent_part = query.settings.latency_qos_s, query.sent_part
    standing = Standing(ready, booting, boot.expected_s)
    return alternatives(query.slot, site, standing, latency_s=latency_s, sent_part=sent_part)
