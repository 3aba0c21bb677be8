"""The gateway at a glance, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_BAD: Final = "bold red"
ENDED: Final = "ended"
"""The state of a query that ran until its gateway ended."""
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def overview(answers: Mapping[str, Any]) -> RenderableType:
    """Return what to show.

    Args:
        answers: of the API to ``status``, ``queries``, ``vms``, ``costs``, and perhaps ``decisions``.
    """
    queries, vms = answers["queries"]["queries"], answers["vms"]["vms"]
    parts: list[RenderableType] = [_head(answers["status"]), _queries(queries)]
    parts += [_vms(vms)] if vms else [Text("no VM")]
    parts += [_money(answers["costs"]), *_troubles(queries)]
    if "decisions" in answers:
        parts.append(_decisions(answers["decisions"]["decisions"]))
    return Group(*parts)


def _head(status: Mapping[str, Any]) -> Text:
    text = Text(f"{status['phase']}, {len(status['queries'])} queries, {len(status['vms'])} of {status['max_vms']} VMs")
    if status.get("boots_seen"):  # what an older gateway has left does not say it
        expected_s, configured_s = status["boot_expected_s"], status["boot_configured_s"]
        text.append(f"; a VM is expected to boot in {expected_s:.3g} s (boot says {configured_s:g} s)")
    if status["paused"]:
        text.append(f"; decisions are paused until {_clock(status['paused_until'])}")
    if status["trouble"]:
        text.append(f"; {status['trouble']}", _BAD)
    return text


def _queries(queries: list[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("query", overflow="fold")
    table.add_column("state", no_wrap=True)
    # Short enough for a terminal of 80 columns.
    for column in ("L", "promised", "to\nVMs", "events", "results", "out of\norder", "dead\nletters", "sent"):
        table.add_column(column, justify="right", no_wrap=True)
    for query in queries:
        promised_s, pin = query["thresholds"]["qos_latency_s"], query["pin"]
        late = query["latency_s"] > promised_s
        share = f"{query['share_to_cloud']:.0%}" + (f" (pinned until {_clock(pin['until'])})" if pin else "")
        table.add_row(
            query["name"],
            Text(query["state"], "" if query["state"] in ("running", ENDED) else _BAD),
            Text(f"{query['latency_s']:.2f} s", _BAD if late else ""),
            f"{promised_s:g} s",
            share,
            f"{query['events']:,}",
            f"{query['results']:,}",
            f"{query['out_of_order_events'] / max(1, query['events']):.1%}",
            Text(f"{query['dead_letters']:,}", _BAD if query["dead_letters"] else ""),
            size(query["sent_bytes"]),
        )
    return table


def _vms(vms: list[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("VM", "state", "paid until", "queries"):
        table.add_column(column)
    for column in ("used", "sent", "received", "cost"):
        table.add_column(column, justify="right", no_wrap=True)
    for vm in vms:
        table.add_row(
            vm["name"],
            vm["state"],
            _clock(vm["period_until"]),
            ", ".join(vm["queries"]) or "none",
            f"{vm['used_s']:.0f} of {vm['billed_s']:.0f} s",
            size(vm["sent_bytes"]),
            size(vm["received_bytes"]),
            f"{vm['usd']:.4f} USD",
        )
    return table


def _money(costs: Mapping[str, Any]) -> Text:
    limit = costs["usd_per_day"]
    of = "" if limit is None else f" of {limit:g} USD"
    text = Text(f"spent today: {costs['spent_today_usd']:.4f} USD{of}; reserved: {costs['reserved_usd']:.4f} USD")
    if costs["limit_reached_in_s"] is not None:
        text.append(f"; {costs['limit_reached']} is reached in {costs['limit_reached_in_s']:.0f} s")
    if costs["trouble"]:
        text.append(f"; {costs['trouble']}", _BAD)
    if (quota := costs["quota"]) is not None:
        money = "" if quota["usd_today"] is None else f" and {quota['usd_today']:.4f} USD today"
        text.append(f"; of the quota: {quota['vms']} VMs{money}")
        text.append(f"; {quota['why']}" if quota["why"] else "", _BAD)
    return text


def _troubles(queries: list[Mapping[str, Any]]) -> Iterator[Text]:
    for query in queries:
        for why in (query["reason"], query["trouble"]):
            if why:
                yield Text(f"{query['name']}: {why}", _BAD)


def _decisions(decisions: list[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, title="decisions, the newest first", title_justify="left")
    for column in ("at", "query", "decision"):
        table.add_column(column)
    for each in decisions:
        table.add_row(_clock(each["at"]), each["query"], "; ".join((each["verdict"], *each["done"])))
    return table


def _clock(at: str | None) -> str:
    """Return the time of day (UTC) of a time of the API."""
    return "" if at is None else f"{datetime.fromisoformat(at).astimezone(UTC):%H:%M:%S} UTC"


def size(count: float) -> str:
    """Return bytes in the largest unit that leaves at least 1, as in ``5.2 MB``."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"
