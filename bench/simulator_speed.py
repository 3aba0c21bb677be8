"""How fast fluid worlds are, and that their cost grows linearly: 10 to 10,000 queries for 24 h of 1 s slots.

Each gateway has ten queries, one VM, one private cluster and its own production Scheduler. Each
query gets 160 events a second on average, following the time of day, and five times as many in two spikes of 5 minutes
a day. All queries of a gateway have their spikes together, and these exceed its private host. Times are CPU seconds of
one process (numpy on one thread), memory is its largest resident size. Prints a table in Markdown.

    nice -n 19 .venv/bin/python bench/simulator_speed.py 10 100 1000 10000
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import resource
import subprocess
import sys
import time

import numpy as np

from gateway.core.decide.scheduler import SchedulerSettings
from gateway.simulate.fluid.options import FluidOptions, FluidQuery, FluidSite, Spikes
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.options import Machines
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings

DAY_S = 86_400
SIDE = 10


def site() -> FluidSite:
    """Return a gateway of ten queries and at most one VM."""
    thresholds = SwitchingSettings(2.4, 2.0, 1.0, 1_000_000, 1.0)
    queries = tuple(QuerySettings(name=f"q{at}", switching=thresholds, latency_qos_s=2.0) for at in range(SIDE))
    scheduler = SchedulerSettings(
        queries=queries,
        max_vms=1,
        billing=BillingTerms(60.0, 60.0, 0.10, 0.09),
        budget=Budget(5.0),
        boot_s=15.0,
        slot_s=1.0,
    )
    shapes = tuple(FluidQuery(name=query.name) for query in queries)
    return FluidSite(scheduler=scheduler, queries=shapes, machines=Machines(events_per_s=2500.0, batch_s=0.01, cores=2))


def measured(count: int, slots: int) -> str:
    """Simulate this many queries and return a line of the table."""
    together = np.arange(count) // SIDE
    load = Spikes(
        np.full(count, 160.0),
        1.0,
        seed=1,
        day=0.2,
        every_s=DAY_S / 2,
        for_s=300.0,
        times=5.0,
        together=together,
    )
    sites = (site(),) * (count // SIDE)
    began_s = time.process_time()
    outcome = FluidWorld(FluidOptions(seed=1, sites=sites, load=load, slots=slots)).run()
    took_s = time.process_time() - began_s
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    asked = outcome.calls / (outcome.slots * len(sites))
    each_us = took_s / (count * outcome.slots) * 1e6
    cells = (
        f"{count:,}",
        f"{len(sites):,}",
        f"{took_s:.1f}",
        f"{each_us:.2f}",
        f"{memory_mib:.0f}",
        f"{asked:.2%}",
        f"{outcome.vms:,}",
        f"{outcome.usd:.2f}",
        f"{outcome.mean_s:.3f}",
        f"{outcome.missed:.2%}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table; each line is measured in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "queries", type=int, nargs="*", default=[10, 100, 1000, 10_000], help="numbers of queries, one line each"
    )
    parser.add_argument("--slots", type=int, default=DAY_S, help="how many seconds to simulate")
    parser.add_argument("--one", action="store_true", help="print one line, without the head")
    chosen = parser.parse_args()
    if chosen.one:
        print(measured(chosen.queries[0], chosen.slots), flush=True)
        return
    head = "queries|gateways, VMs|CPU s|µs a query and slot|MiB|scheduler called|VMs started|USD|mean latency, s|missed"
    print(f"| {' | '.join(head.split('|'))} |", flush=True)
    print(f"|{' ---: |' * len(head.split('|'))}", flush=True)
    for count in chosen.queries:
        command = [sys.executable, __file__, "--one", "--slots", str(chosen.slots), str(count)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
