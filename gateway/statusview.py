"""What the gateway says of itself under ``/status``."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gateway.query import RunningQuery
from infra.link.client import LinkStats


def status_text(
    phase: str,
    vms: Mapping[str, object],
    queries: Mapping[str, RunningQuery],
    latencies: Mapping[str, float],
    money: Mapping[str, object],
) -> str:
    """Return it as JSON.

    Args:
        phase: the gateway's.
        vms: state of each VM by name.
        queries: those that run.
        latencies: of the slot that ended last, in s, by query.
        money: see ``gateway.moneyview``.
    """
    return json.dumps(
        {
            "phase": phase,
            "vms": {name: str(state) for name, state in vms.items()},
            "money": money,
            "links": {
                name: _link(lane.link) for query in queries.values() for name, lane in query.pipeline.lanes.items()
            },
            "queries": {name: _query(query, latencies.get(name, 0.0)) for name, query in queries.items()},
        }
    )


def _link(stats: LinkStats) -> dict[str, object]:
    return {
        "round_trip_s": stats.rtt_s,
        "goodput_bytes_per_s": stats.goodput_bytes_per_s,
        "loss": stats.loss,
        "sent_bytes": stats.sent_bytes,
        "received_bytes": stats.received_bytes,
    }


def _query(query: RunningQuery, latency_s: float) -> dict[str, object]:
    return {
        "events": query.tally.events,
        "results": query.tally.results,
        "shed": query.shed_events,
        "shed_share": query.ingress.sampler.share,
        "share_to_cloud": query.pipeline.cloud_share,
        "latency_s": latency_s,
        "mean_latency_s": query.tally.latency.mean_s,
        "dead_letters": query.dead_letters.count,
        "trouble": query.trouble,
        "codecs": {name: lane.choices for name, lane in query.pipeline.lanes.items()},
    }
