"""Many gateways that share a quota of VMs and money: simulated, with the production scheduler and claims of each.

Each gateway has one query, which falls behind at home in a spike of two minutes each half hour. Either groups of ten
gateways have their spikes together, or all do. Each is simulated with a limit of its own (one VM for each gateway), and
with a quota of a fifth of that. Requests to the object store take 50 ms (median), and one in a thousand gets no answer.

    PYTHONPATH=. .venv/bin/python bench/quota.py [GATEWAYS]
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
from planning.document import put, table
from suite.row import ROOT

from gateway.core.decide.scheduler import SchedulerSettings
from gateway.simulate.fluid.options import FluidOptions, FluidQuery, FluidSite, Spikes
from gateway.simulate.fluid.outcomes import FluidOutcome
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.options import Machines
from gateway.simulate.sharing import QuotaOptions
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.quota.requests import QuotaLimits
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings

DOCUMENT = ROOT / "docs" / "scaling.md"
GATEWAYS = 1000
LASTS_S = 7200
GROUP = 10
TERMS = BillingTerms(60.0, 60.0, 0.10, 0.09)
BEGINS_S = 1.7e9 // 86_400 * 86_400 + 3600


def site() -> FluidSite:
    """Return a gateway with one query and at most one VM."""
    query = QuerySettings(
        name="q", switching=SwitchingSettings(2.4, 2.0, 1.0, 1_000_000, 1.0), latency_qos_s=2.0, share=0.5
    )
    scheduler = SchedulerSettings(
        queries=(query,), max_vms=1, billing=TERMS, budget=Budget(5.0), boot_s=15.0, slot_s=1.0
    )
    return FluidSite(
        scheduler=scheduler, queries=(FluidQuery(name="q"),), machines=Machines(events_per_s=400.0, batch_s=0.01)
    )


def world(gateways: int, *, together: bool, shared: bool) -> FluidOptions:
    """Return the world of some gateways, all of which have spikes ``together``, or groups of ten do."""
    load = Spikes(
        np.full(gateways, 150.0),
        1.0,
        seed=1,
        day=0.0,
        every_s=1800.0,
        for_s=120.0,
        times=4.0,
        together=np.zeros(gateways, dtype=np.intp) if together else np.arange(gateways) // GROUP,
    )
    one = site()
    quota = None
    if shared:
        one = replace(one, scheduler=replace(one.scheduler, quota=True))
        usd = TERMS.time_usd(TERMS.first_block_s)
        limits = QuotaLimits(max_vms=max(1, gateways // 5), usd_per_day=20 * gateways * usd, usd_a_portion=usd)
        quota = QuotaOptions(limits=limits, unanswered=0.001)
    return FluidOptions(seed=1, sites=(one,) * gateways, load=load, slots=LASTS_S, begins_wall_s=BEGINS_S, quota=quota)


def line(name: str, gateways: int, together: bool, shared: bool) -> tuple[str, ...]:
    """Simulate, check that the limits hold, and return a line of the table."""
    began_s, options = time.process_time(), world(gateways, together=together, shared=shared)
    outcome = FluidWorld(options).run()
    took_s = time.process_time() - began_s
    if options.quota is not None:
        check(outcome, options.quota)
    print(f"{name}: {took_s:.0f} s of CPU", file=sys.stderr)
    return (
        name,
        f"{outcome.vms_most:,}",
        f"{outcome.vms:,}",
        f"{outcome.usd:.2f}",
        f"{outcome.mean_s:.2f} s",
        f"{outcome.missed:.1%}",
        *claims(outcome, gateways),
    )


def check(outcome: FluidOutcome, quota: QuotaOptions) -> None:
    """Fail if the gateways together used more than the quota."""
    limits = quota.limits
    if outcome.vms_most > limits.max_vms:
        raise AssertionError(f"{outcome.vms_most} VMs lived at a time, and {limits.max_vms} may")
    if limits.usd_per_day is not None and outcome.usd > limits.usd_per_day + 1e-6:
        raise AssertionError(f"{outcome.usd} USD were spent, and {limits.usd_per_day} may be")


def claims(outcome: FluidOutcome, gateways: int) -> tuple[str, ...]:
    """Return what the table says of claims."""
    figures = outcome.quota
    if not figures.requests:
        return ("", "", "", "")
    waits_s = np.array(figures.waits_s or [0.0])
    a_gateway = figures.requests.total() / gateways / (LASTS_S / 3600)
    return (
        f"{np.median(waits_s):.2f} s",
        f"{np.quantile(waits_s, 0.99):.2f} s",
        f"{figures.refused:,}",
        f"{a_gateway:.0f}",
    )


def main() -> None:
    """Print the table; with 1,000 gateways or more it is written to the document, too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gateways", type=int, nargs="?", default=GATEWAYS)
    gateways = parser.parse_args().gateways
    worlds = [
        (f"{spikes}, {limit}", gateways, together, shared)
        for spikes, together in (("groups of ten", False), ("all at once", True))
        for limit, shared in ((f"{gateways:,} limits of one VM", False), (f"a quota of {gateways // 5:,} VMs", True))
    ]
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        lines = list(processes.map(line, *zip(*worlds, strict=True)))
    head = (
        "spikes, limits",
        "VMs at a time",
        "launched",
        "USD",
        "mean latency",
        "late",
        "claim, median",
        "claim, p99",
        "refused",
        "requests of a gateway an hour",
    )
    written = table(head, lines)
    print(written)
    if gateways >= GATEWAYS:
        put(DOCUMENT, "quota", written)


if __name__ == "__main__":
    main()
