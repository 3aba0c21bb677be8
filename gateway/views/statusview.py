"""The gateway's report about itself under ``/status``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from gateway.query.flow.memory import MemoryPool
from gateway.query.moving.mover import Mover
from gateway.query.running import RunningQuery
from gateway.query.supervision.supervisor import Supervisor
from infra.link.client import LinkStats
from policies.signals import BootEstimate


def status_text(
    phase: str,
    vms: Mapping[str, object],
    supervisors: Mapping[str, Supervisor],
    latencies: Mapping[str, float],
    money: Mapping[str, object],
    boot: BootEstimate,
    memory: MemoryPool,
) -> str:
    """Return it as JSON.

    Args:
        phase: of the gateway.
        vms: state of each VM by name.
        supervisors: of the queries, by name; none before the gateway runs.
        latencies: of the slot that ended last, in s, by query.
        money: see ``gateway.views.moneyview``.
        boot: how long a VM that is ordered now is expected to take.
        memory: what all queries hold.
    """
    return json.dumps(
        {
            "phase": phase,
            "vms": {name: str(state) for name, state in vms.items()},
            "boot": boot._asdict(),
            "money": money,
            "memory": {"held_bytes": memory.held_bytes, "limit_bytes": memory.limit_bytes},
            "links": {
                name: _link(lane.link)
                for supervisor in supervisors.values()
                for name, lane in supervisor.query.lanes.items()
            },
            "queries": {name: _query(each, latencies.get(name, 0.0)) for name, each in supervisors.items()},
        }
    )


def kept_state(query: RunningQuery) -> dict[str, object] | None:
    """Return where the state is; of a divided query for each part, and with its moves in all."""
    if not query.stateful:
        return None
    if not query.divided:
        return _of_mover(query.movers[0])
    return {"parts": {number: _of_mover(mover) for number, mover in enumerate(query.movers)}}


def _of_mover(mover: Mover) -> dict[str, object]:
    return {
        "place": mover.place,
        "moves": mover.moves,
        "last_pause_s": mover.pause_s,
        "last_moved_bytes": mover.moved_bytes,
    }


def _link(stats: LinkStats) -> dict[str, object]:
    return {
        "round_trip_s": stats.rtt_s,
        "goodput_bytes_per_s": stats.goodput_bytes_per_s,
        "loss": stats.loss,
        "sent_bytes": stats.sent_bytes,
        "received_bytes": stats.received_bytes,
    }


def _query(supervisor: Supervisor, latency_s: float) -> dict[str, object]:
    query = supervisor.query
    since_s = supervisor.since_wall_s
    return {
        "state": supervisor.state,
        "reason": supervisor.reason,
        "since": None if since_s is None else datetime.fromtimestamp(since_s, UTC).isoformat(timespec="seconds"),
        "failures": supervisor.failures,
        "opened_again_in_s": supervisor.retry_in_s,
        "events": query.tally.events,
        "results": query.tally.results,
        "shed": query.shed_events,
        "shed_share": query.shed_share,
        "share_to_cloud": query.cloud_share,
        "stays_home": query.stays_home,
        "data_path": query.data_path.name,
        "data_path_why": query.data_path.why,
        "kept_state": kept_state(query),
        "latency_s": latency_s,
        "mean_latency_s": query.tally.latency.mean_s,
        "median_latency_s": query.tally.latency.quantile_s(0.5),
        "dead_letters": query.dead_letters.count,
        "too_late": query.tally.too_late,
        "open_groups": query.tally.open_groups,
        "trouble": supervisor.trouble,
        "codecs": {name: lane.choices for name, lane in query.lanes.items()},
        "runs_in_lanes": {name: lane.open_runs for name, lane in query.lanes.items()},
        "events_by_lane": dict(query.tally.events_by_lane),
        "direct_events": query.tally.direct_events,
    }
