"""Makes the API's answers from the parts of the gateway."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from gateway.config.models import QueryConfig
from gateway.core.decide.scheduler import Scheduler
from gateway.query.supervision.supervisor import Supervisor
from gateway.views.http.models import (
    BillAnswer,
    CostsAnswer,
    DecisionAnswer,
    LaneAnswer,
    PinAnswer,
    QueryAnswer,
    QuotaAnswer,
    StoryAnswer,
    ThresholdsAnswer,
    VmAnswer,
)
from gateway.views.moneyview import quota_view
from gateway.views.statusview import kept_state
from gateway.views.why.telling import explained
from policies.money.ledger import Ledger
from policies.signals import QuerySlot
from policies.switching.pinning import Pin


def utc(wall_s: float) -> str:
    """Return a time as text."""
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds")


def thresholds_answer(config: QueryConfig) -> ThresholdsAnswer:
    """Return the thresholds of a query."""
    limits = config.thresholds
    return ThresholdsAnswer(
        start_vm_above_s=limits.start_vm_above_s,
        send_above_s=limits.send_above_s,
        keep_vm_above_s=limits.keep_vm_above_s,
        keep_vm_bytes=limits.keep_vm_bytes,
        tolerance_s=limits.tolerance_s,
        qos_latency_s=config.qos.latency_s,
    )


def query_answer(
    config: QueryConfig, supervisor: Supervisor, *, pin: Pin | None, why_home: str, latency_s: float, ahead_s: float
) -> QueryAnswer:
    """Return what is known of one query.

    Args:
        config: the query's config.
        supervisor: the query's.
        pin: what an operator has pinned.
        why_home: why it stays at home now; else empty.
        latency_s: of the last slot.
        ahead_s: by how much seconds since 1970 are ahead of the gateway's clock.
    """
    query, since_s = supervisor.query, supervisor.since_wall_s
    tally = query.tally
    return QueryAnswer(
        name=query.name,
        state=supervisor.state,
        reason=supervisor.reason,
        since=None if since_s is None else utc(since_s),
        failures=supervisor.failures,
        opened_again_in_s=supervisor.retry_in_s,
        trouble=supervisor.trouble,
        mode=config.switching.mode,
        policy=config.policy.type,
        stays_home=why_home or query.stays_home,
        data_path=query.data_path.name,
        data_path_why=query.data_path.why,
        thresholds=thresholds_answer(config),
        pin=None if pin is None else PinAnswer(share=pin.share, until=utc(pin.until_s + ahead_s)),
        share_to_cloud=query.cloud_share,
        latency_s=latency_s,
        processing_s=tally.latency.mean_s,
        delivery_s=tally.delivery.mean_s,
        events=tally.events,
        results=tally.results,
        late_results=tally.late_results,
        shed_events=query.shed_events,
        shed_share=query.shed_share,
        too_late_rows=tally.too_late,
        out_of_order_events=tally.disordered_events,
        dead_letters=query.dead_letters.count,
        raw_bytes=tally.raw_bytes,
        sent_bytes=tally.sent_bytes,
        events_by_lane=dict(tally.events_by_lane),
        direct_events=tally.direct_events,
        open_groups=tally.open_groups,
        kept_state=kept_state(query),
    )


def lane_answers(supervisor: Supervisor, shares: Mapping[str, float], slot: QuerySlot | None) -> list[LaneAnswer]:
    """Return the lanes of a query."""
    query = supervisor.query
    return [
        LaneAnswer(
            query=query.name,
            lane=name,
            share=shares.get(name, 0.0),
            open_runs=lane.open_runs,
            events=query.tally.events_by_lane[name],
            rate_per_s=None if slot is None else slot.rates.get(name),
            codecs=dict(lane.choices),
            round_trip_s=lane.link.rtt_s,
            goodput_bytes_per_s=lane.link.goodput_bytes_per_s,
            loss=lane.link.loss,
            link_sent_bytes=lane.link.sent_bytes,
            link_received_bytes=lane.link.received_bytes,
        )
        for name, lane in query.lanes.items()
    ]


def vm_answers(scheduler: Scheduler, at_s: float, ahead_s: float) -> list[VmAnswer]:
    """Return the VMs that live."""
    bills = {bill.vm: bill for bill in scheduler.totals(at_s).bills}
    return [
        VmAnswer(
            name=lease.vm,
            state=str(lease.state),
            period_since=utc(lease.block_since_s + ahead_s),
            period_until=utc(lease.block_end_s + ahead_s),
            reclaimed_at=None if math.isinf(lease.ends_s) else utc(lease.ends_s + ahead_s),
            billed_s=bills[lease.vm].billed_s,
            used_s=bills[lease.vm].used_s,
            usd=bills[lease.vm].usd,
            sent_bytes=bills[lease.vm].sent_bytes,
            received_bytes=bills[lease.vm].received_bytes,
            queries=[name for name, route in scheduler.routes.items() if any(lane == lease.vm for lane, _ in route)],
            story=[
                StoryAnswer(
                    at=utc(line.at_s + ahead_s), happened=str(line.happened), state=str(line.state), why=line.why
                )
                for line in scheduler.story(lease.vm)
            ],
        )
        for lease in scheduler.leases
    ]


def costs_answer(scheduler: Scheduler, at_s: float, wall_s: float) -> CostsAnswer:
    """Return the money."""
    said, totals = scheduler.money(at_s), scheduler.totals(at_s)
    ledger, forecast = Ledger(said.budget, said.ledger), said.limit_reached
    left_usd = ledger.left_usd(wall_s)
    return CostsAnswer(
        usd_per_day=said.budget.usd_per_day,
        usd_per_hour=said.budget.usd_per_hour,
        usd_per_query_day=said.budget.usd_per_query_day,
        spent_today_usd=ledger.spent_usd(wall_s),
        spent_today_by_query_usd=dict(ledger.spent_by_query(wall_s)),
        reserved_usd=ledger.reserved_usd,
        left_usd=None if math.isinf(left_usd) else left_usd,
        limit_reached="" if forecast is None else forecast.limit,
        limit_reached_in_s=None if forecast is None else forecast.in_s,
        trouble=said.frozen,
        quota=None if said.quota is None else QuotaAnswer(**quota_view(said.quota, wall_s)),
        usd=totals.usd,
        billed_s=totals.billed_s,
        used_s=totals.used_s,
        bills=[BillAnswer(**asdict(bill)) for bill in totals.bills],
    )


def decision_answer(line: Mapping[str, Any]) -> DecisionAnswer:
    """Return a line of the ledger of decisions in sentences."""
    parts = explained(line)
    return DecisionAnswer(
        at=line["at"],
        wall_s=line["wall_s"],
        query=line["query"],
        verdict=line["verdict"],
        done=parts.done,
        why=parts.why,
        why_not=parts.why_not,
    )
