"""The figures of a gateway as metrics, in the naming conventions of Prometheus.

Labels are bounded: names of queries are from the config, and VMs are counted by place, except for those that live.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from gateway.views.http.models import CostsAnswer, LaneAnswer, QueryAnswer, StatusAnswer, VmAnswer
from policies.histogram import Histogram
from policies.signals import HOME

PHASES: Final = ("starting", "standby", "running", "stopping")
BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_Labels = TypeVar("_Labels", bound=tuple[str, ...])
_QUERY: Final = ("query",)
_LANE: Final = ("query", "lane")


class MeasuredGateway(NamedTuple):
    """All that metrics are made from.

    Attributes:
        status: of the gateway.
        queries: none before the gateway runs.
        lanes: of all queries.
        vms: those that live.
        costs: the money.
        latencies: processing and delivery latency by query, since the gateway started.
        vm_events: how often something has happened to a VM, by its word.
        traces: how many runs' traces were exported or dropped, by that word.
    """

    status: StatusAnswer
    queries: Sequence[QueryAnswer]
    lanes: Sequence[LaneAnswer]
    vms: Sequence[VmAnswer]
    costs: CostsAnswer
    latencies: Mapping[str, tuple[Histogram, Histogram]]
    vm_events: Mapping[str, int]
    traces: Mapping[str, int]


def metrics_of(now: MeasuredGateway) -> Iterator[Metric]:
    """Return all metrics."""
    yield from _of_gateway(now.status)
    yield from _of_queries(now.queries)
    yield from _of_latencies(now.latencies)
    yield from _of_lanes(now.lanes)
    yield from _of_vms(now)
    yield from _of_costs(now.costs)
    traces = {(outcome,): float(count) for outcome, count in now.traces.items()}
    yield _counter("traces", "Runs whose trace was exported or dropped.", traces, ["outcome"])


def _gauge(name: str, help_text: str, samples: Mapping[_Labels, float], labels: Sequence[str] = ()) -> Metric:
    family = GaugeMetricFamily(f"spillway_{name}", help_text, labels=labels)
    for values, value in samples.items():
        family.add_metric(values, value)
    return family


def _counter(name: str, help_text: str, samples: Mapping[_Labels, float], labels: Sequence[str] = ()) -> Metric:
    family = CounterMetricFamily(f"spillway_{name}", help_text, labels=labels)
    for values, value in samples.items():
        family.add_metric(values, value)
    return family


def _of_gateway(status: StatusAnswer) -> Iterator[Metric]:
    yield InfoMetricFamily("spillway", "The version of the gateway.", value={"version": status.version})
    yield _gauge("ready", "1 if the gateway takes and delivers events, else 0.", {(): status.ready})
    phases = {(phase,): float(phase == status.phase) for phase in PHASES}
    yield _gauge("phase", "1 for the phase of the gateway, 0 for all others.", phases, ["phase"])
    yield _gauge("decisions_paused", "1 if an operator paused all decisions, else 0.", {(): status.paused})
    yield _gauge("memory_held_bytes", "Events and results in memory.", {(): status.memory_held_bytes})
    yield _gauge("memory_limit_bytes", "The limit of spillway_memory_held_bytes.", {(): status.memory_limit_bytes})
    yield _gauge("vms_limit", "max_vms of the config.", {(): status.max_vms})
    states = list(status.vms.values())
    counted = {(state,): float(states.count(state)) for state in sorted(set(states))}
    yield _gauge("vms", "VMs that live, by state.", counted, ["state"])


def _of_queries(queries: Sequence[QueryAnswer]) -> Iterator[Metric]:
    def of_all(value: str) -> dict[tuple[str, ...], float]:
        return {(query.name,): float(getattr(query, value)) for query in queries}

    ups = {(query.name,): float(query.state == "running") for query in queries}
    yield _gauge("query_up", "1 if the query runs, 0 if it is being opened or has failed.", ups, _QUERY)
    yield _gauge("query_failures_in_a_row", "Failures since the query last ran well.", of_all("failures"), _QUERY)
    troubled = {(query.name,): float(bool(query.trouble)) for query in queries}
    yield _gauge("query_troubled", "1 if it does not take or deliver events now, else 0.", troubled, _QUERY)
    latencies = of_all("latency_s")
    yield _gauge(
        "query_latency_seconds", "L: what the thresholds are compared with, in the last slot.", latencies, _QUERY
    )
    yield _gauge(
        "query_threshold_seconds",
        "The thresholds of L, and the promised latency (qos).",
        {key: seconds for query in queries for key, seconds in _thresholds(query).items()},
        ("query", "threshold"),
    )
    shares = of_all("share_to_cloud")
    yield _gauge("query_cloud_share_ratio", "R: the part of its events that goes to VMs.", shares, _QUERY)
    pins = {(query.name,): float(query.pin is not None) for query in queries}
    yield _gauge("query_pinned", "1 if an operator pinned the query, else 0.", pins, _QUERY)
    yield _gauge("query_dead_letters", "Dead letters that are kept now.", of_all("dead_letters"), _QUERY)
    for name, value, help_text in _COUNTED:
        yield _counter(f"query_{name}", help_text, of_all(value), _QUERY)
    yield _counter(
        "query_completed_events",
        "Events whose run was completed, at home or on VMs.",
        {key: events for query in queries for key, events in _completed(query).items()},
        ("query", "place"),
    )


_COUNTED: Final = (
    ("events", "events", "Events that were read."),
    ("results", "results", "Results that were released to the sink."),
    ("late_results", "late_results", "Results that were released after those of a later run."),
    ("shed_events", "shed_events", "Events that were discarded because the budget is spent."),
    ("too_late_rows", "too_late_rows", "Rows or groups that came behind the watermark and were dropped."),
    ("out_of_order_events", "out_of_order_events", "Events whose run was completed after a later one."),
    ("direct_events", "direct_events", "Events that Spark at home has read and delivered by itself."),
    ("raw_bytes", "raw_bytes", "Bytes of the runs for VMs, before trimming and compression."),
    ("sent_bytes", "sent_bytes", "Bytes that were sent to VMs for them."),
)


def _thresholds(query: QueryAnswer) -> dict[tuple[str, ...], float]:
    limits = query.thresholds
    named = {
        "start_vm_above": limits.start_vm_above_s,
        "send_above": limits.send_above_s,
        "keep_vm_above": limits.keep_vm_above_s,
        "qos": limits.qos_latency_s,
    }
    return {(query.name, name): seconds for name, seconds in named.items()}


def _completed(query: QueryAnswer) -> dict[tuple[str, ...], float]:
    """Return the events by place; VMs as one, since there are more and more names of VMs."""
    home = query.events_by_lane.get(HOME, 0)
    return {(query.name, HOME): home, (query.name, "vms"): sum(query.events_by_lane.values()) - home}


def _of_latencies(latencies: Mapping[str, tuple[Histogram, Histogram]]) -> Iterator[Metric]:
    texts = (
        ("processing", "Completion of a run minus its arrival, of each event."),
        ("delivery", "Release to the sink minus arrival, of each event."),
    )
    for place, (name, help_text) in enumerate(texts):
        family = HistogramMetricFamily(f"spillway_query_{name}_latency_seconds", help_text, labels=_QUERY)
        for query, both in latencies.items():
            family.add_metric([query], _buckets(both[place]), both[place].weight * both[place].mean_s)
        yield family


def _buckets(counted: Histogram) -> list[tuple[str, float]]:
    bins = counted.bins()
    below = [(str(bound), sum(weight for middle, weight in bins.items() if middle <= bound)) for bound in BUCKETS_S]
    return [*below, ("+Inf", counted.weight)]


def _of_lanes(lanes: Sequence[LaneAnswer]) -> Iterator[Metric]:
    def of_all(value: str) -> dict[tuple[str, ...], float]:
        found = {(lane.query, lane.lane): getattr(lane, value) for lane in lanes}
        return {key: float(number) for key, number in found.items() if number is not None}

    yield _gauge("lane_open_runs", "Runs that were dispatched and not completed.", of_all("open_runs"), _LANE)
    yield _gauge("lane_share_ratio", "The part of the query's events that goes to the lane.", of_all("share"), _LANE)
    rates = of_all("rate_per_s")
    yield _gauge("lane_service_rate_events_per_second", "Events per second while the lane works.", rates, _LANE)
    yield _gauge("lane_round_trip_seconds", "Round trip over the link.", of_all("round_trip_s"), _LANE)


def _of_vms(now: MeasuredGateway) -> Iterator[Metric]:
    happened = {(what,): float(count) for what, count in now.vm_events.items()}
    yield _counter(
        "vm_events", "How often something has happened to a VM, as in launched or lost.", happened, ["event"]
    )
    billed, used = {(): now.costs.billed_s}, {(): now.costs.used_s}
    yield _counter("vm_billed_seconds", "Time of all VMs that is billed.", billed)
    yield _counter("vm_used_seconds", "Time of all VMs in which they had runs.", used)
    yield _counter("vm_cost_usd", "What all VMs have cost.", {(): now.costs.usd})


def _of_costs(costs: CostsAnswer) -> Iterator[Metric]:
    limits = {"day": costs.usd_per_day, "hour": costs.usd_per_hour, "query_day": costs.usd_per_query_day}
    given = {(per,): usd for per, usd in limits.items() if usd is not None}
    yield _gauge("budget_limit_usd", "The limits of the budget; absent without a limit.", given, ["per"])
    yield _gauge("budget_spent_today_usd", "Spent since midnight (UTC).", {(): costs.spent_today_usd})
    yield _gauge("budget_reserved_usd", "Set aside for billing periods of VMs that live.", {(): costs.reserved_usd})
    left = {} if costs.left_usd is None else {(): costs.left_usd}
    yield _gauge("budget_left_usd", "What may still be reserved now; absent without a limit.", left)
    yield _gauge("budget_troubled", "1 if no more money is reserved because of a fault.", {(): bool(costs.trouble)})
    yield from _quota(costs)


def _quota(costs: CostsAnswer) -> Iterator[Metric]:
    quota = costs.quota
    vms = {} if quota is None else {(): quota.vms}
    money = {} if quota is None or quota.usd_today is None else {(): quota.usd_today}
    refused = {} if quota is None else {(): bool(quota.why)}
    yield _gauge("quota_vms", "VMs that the quota allows this gateway now; absent without a quota.", vms)
    yield _gauge("quota_today_usd", "Money of the quota for this UTC day; absent without a limit.", money)
    yield _gauge("quota_refused", "1 if the quota does not grant what is needed; absent without a quota.", refused)
