"""What the gateway says of itself under ``/status``."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gateway.query import RunningQuery


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
            "queries": {name: _query(query, latencies.get(name, 0.0)) for name, query in queries.items()},
        }
    )


def _query(query: RunningQuery, latency_s: float) -> dict[str, object]:
    return {
        "events": query.tally.events,
        "results": query.tally.results,
        "share_to_cloud": query.pipeline.cloud_share,
        "latency_s": latency_s,
        "mean_latency_s": query.tally.latency.mean_s,
        "dead_letters": query.dead_letters.count,
        "trouble": query.trouble,
        "codecs": {name: lane.choices for name, lane in query.pipeline.lanes.items()},
    }
