"""What was decided for a query, as a sentence."""

from __future__ import annotations

from policies.query import Query
from policies.signals import Decision


def decision(query: Query, at_s: float, *, refused: str, vm_note: str, wanted: bool, ready: bool) -> Decision:
    """Say what was decided for a query, and why or why not.

    Args:
        query: with its route of now.
        at_s: end of the slot.
        refused: why the ranking did not let it go; empty if it did.
        vm_note: how things stand with the next VM.
        wanted: whether any VM is wanted.
        ready: whether any VM can take events.
    """
    latency_s, switching = query.slot.latency_s, query.settings.switching
    sent = [lane for lane, _ in query.route[1:]]
    if query.why_home:
        verdict = f"stays home: {query.why_home}"
    elif sent:
        verdict = f"{query.share:.1%} to {', '.join(sent)}"
    elif refused:
        verdict = f"stays home: {refused}"
    elif ready:
        verdict = f"stays home: L {latency_s:.2f} s < send_above {switching.send_above_s:g} s"
    else:
        verdict = "stays home: no VM is ready"
    if query.asks_for_vm():
        verdict += f"; L {latency_s:.2f} s >= start_vm_above {switching.start_vm_above_s:g} s: {vm_note}"
    return Decision(
        query=query.settings.name,
        at_s=at_s,
        latency_s=latency_s,
        phi_vm=wanted,
        phi_data=bool(sent),
        share=query.share,
        verdict=verdict,
    )
