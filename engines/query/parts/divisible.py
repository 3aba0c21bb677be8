"""Checks whether a query can be divided into parts that together give exactly the rows of the undivided query."""

from __future__ import annotations

from infra.messages import HEARTBEAT, KeyPart, OpenQuery, QueryPlan


def why_ill_formed(spec: OpenQuery, part: KeyPart, columns: list[str]) -> str:
    """Return why a part cannot be opened, whatever its query is; empty if it can.

    Args:
        spec: the gateway's request.
        part: of the request.
        columns: of the user's schema.
    """
    if not 0 <= part.index < part.parts:
        return f"it was to be opened as part {part.index} of {part.parts}; parts are numbered from 0"
    if spec.max_batch_runs != 1:
        return (
            f"it was to be opened as a part with up to {spec.max_batch_runs} runs in a micro-batch; the watermarks of "
            "parts are equal only with one run in each"
        )
    own = next((name for name in columns if name.lower() == HEARTBEAT), None)
    if own is not None:
        return f"schema: {own} is the name of a column of Spillway's own in a query that is divided: rename yours"
    return ""


def why_not_by_key(part: KeyPart, plan: QueryPlan) -> str:
    """Return why a query must not be divided by the key of a part; empty if it may."""
    if plan.switch_class == "stateless":
        return "it holds no state, so there is nothing to divide by key: leave out mode: keys"
    if plan.switch_class != "keyed":
        return f"it cannot be divided by key: {plan.reason}; leave out mode: keys"
    if part.key not in plan.keys:
        return (
            f"it cannot be divided by {part.key}, because events that differ in it may meet; "
            f"it can be divided by {' or '.join(plan.keys)}"
        )
    return ""


def why_own_watermark(found: int, *, timed: bool) -> str:
    """Return why a query's own watermark is in the way; empty if it has none.

    Args:
        found: how many watermarks its events pass, that of the event time included.
        timed: whether the request has an event time.
    """
    if found <= timed:
        return ""
    return (
        "its sql or function sets a watermark of its own, which would differ from part to part: remove it, and give "
        "the column and the lateness as event_time"
    )
