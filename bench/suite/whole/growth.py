"""How the cost of an event grows: with the events per second, and with the lanes that share them."""

from __future__ import annotations

import asyncio
import http.client
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from suite.row import Row, SideError, lasts_s
from suite.tax.clock import System, end, leave_cpu, log_told, new_topics, pour, warm_up
from suite.tax.load import plain
from suite.tax.programs import around, gateway_of, query
from suite.turns import OURS, Goal, Sample
from tests.connectors.ports import free_port

RATES_PER_S = (500, 2_000, 8_000)
VMS = (1, 7, 63)
LANES_PER_S = 2_000
"""The rate at which lanes are compared."""
AT_MOST = f"CPU an event: at {RATES_PER_S[-1]:,} events/s, times that at {RATES_PER_S[1]:,}"
PER_LANE = "% of a core for each lane more"
_BOOT_WITHIN_S, _POLL_S = 240.0, 0.2


def by_rate(per_s: float) -> str:
    """Return the name of the figure for a rate."""
    return f"us of CPU an event, {per_s:,} events/s"


def by_lanes(lanes: int) -> str:
    """Return the name of the figure for a number of lanes, home's included."""
    return f"us of CPU an event, {lanes} lanes"


@contextmanager
def _running(vms: int) -> Iterator[System]:
    """Run a gateway that spreads its events over home and so many VMs; it has answered its first events."""
    work, port = plain(), free_port()
    events, results = asyncio.run(new_topics())
    spread: Mapping[str, object] = {
        "switching": {"share": "90%", "send_above": "1ms", "keep_vm_above": "1ms"},
        "policy": {"type": "static", "vms": vms},
    }
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"
        process = gateway_of(
            Path(name),
            # Its name is that of its consumer group, in which a gateway that has ended stays a member for a while.
            {f"growth-{vms}": {**query(work, events, results), **(spread if vms else {})}},
            log,
            ("suite.whole.gateway",),
            api_port=port,
            cloud={"max_vms": max(1, vms), "boot": "100ms", "warm": bool(vms), "budget": {"usd_per_day": 1_000}},
        )
        leave_cpu()
        try:
            with log_told(log):
                system = System(process.pid, events, results)
                asyncio.run(warm_up(work, system))
                _wait_for_lanes(system, port, 1 + vms)
                yield system
        finally:
            end(process)


def _wait_for_lanes(system: System, port: int, lanes: int) -> None:
    ends_s = time.monotonic() + _BOOT_WITHIN_S
    while (found := _lanes(port)) < lanes:
        if not system.is_alive() or time.monotonic() > ends_s:
            raise SideError(f"{found} of {lanes} lanes are open")
        time.sleep(_POLL_S)


def _lanes(port: int) -> int:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=_BOOT_WITHIN_S)
    try:
        link.request("GET", "/status")
        return len(json.loads(link.getresponse().read())["links"])
    finally:
        link.close()


def _cpu_us(system: System, per_s: float) -> float:
    """Return the CPU that the gateway's own process uses for each event at a rate, in microseconds."""
    gateway = psutil.Process(system.pid)
    before_s = sum(gateway.cpu_times()[:2])
    events = asyncio.run(pour(plain(), system, per_s))
    return 1e6 * (sum(gateway.cpu_times()[:2]) - before_s) / events


def ours() -> Sample:
    """Measure a gateway at several rates, then gateways with several numbers of lanes."""
    with _running(0) as system:
        rates = {per_s: _cpu_us(system, per_s) for per_s in RATES_PER_S}
    lanes = {}
    for vms in VMS if lasts_s() >= 1 else (1, 2):
        with _running(vms) as system:
            lanes[1 + vms] = _cpu_us(system, LANES_PER_S)
    few, many = min(lanes), max(lanes)
    return Sample(
        {
            **{by_rate(per_s): cpu_us for per_s, cpu_us in rates.items()},
            AT_MOST: rates[RATES_PER_S[-1]] / rates[RATES_PER_S[1]],
            **{by_lanes(count): cpu_us for count, cpu_us in lanes.items()},
            PER_LANE: 100 * LANES_PER_S * (lanes[many] - lanes[few]) / 1e6 / (many - few),
        }
    )


ROW = Row(
    name="growth",
    title="how the cost of an event grows",
    sides={OURS: ours},
    goals=(Goal(AT_MOST, None, 1.0, at_least=False), Goal(PER_LANE, None, 0.2, at_least=False)),
    note="The CPU of the gateway's own process, without its engine hosts, which run without Spark and send each run "
    "back. Events of 1 kB from Kafka to Kafka for 5 s at each rate; 90 % of them go to the VMs if there are any.",
    around=around,
    turns_most=1,
)
