"""Do VMs do harm? Worlds drawn at random, run by run, with VMs and with home alone.

``PYTHONPATH=bench python -m planning.harm [SEED ...]`` prints what was drawn and measured for these worlds.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planning.document import table
from planning.harmless import VmHarm, as_runs, harmless
from policies.lookahead.policy import LookaheadOptions
from policies.planning.planner import PlannerOptions

if TYPE_CHECKING:
    from policies.choose import PolicyOptions

HEADER = ("policy", "worlds", "answered within", "delivered within", "worst", "median of all", "launches", "cost")
POLICIES: tuple[tuple[str, PolicyOptions | None, range], ...] = (
    ("`reactive`", None, range(1, 121)),
    ("`lookahead`", LookaheadOptions(), range(1, 121)),
    ("`planner`", PlannerOptions(window_s=30.0, windows=12, history=100), range(1, 7)),
)


def report() -> str:
    """Simulate the worlds of each policy; return the table."""
    rows = []
    for name, policy, seeds in POLICIES:
        found = [as_runs(harmless(seed, policy)) for seed in seeds]
        rows.append((name, len(found), *_row([each for each, _ in found], [each for _, each in found])))
        print(rows[-1], flush=True)
    return table(HEADER, rows)


def _row(answered: Sequence[VmHarm], delivered: Sequence[VmHarm]) -> tuple[str, ...]:
    worst = max(delivered, key=lambda harm: harm.excess_s)
    median = statistics.median(harm.part for harm in delivered)
    return (
        f"{sum(harm.within for harm in answered)}",
        f"{sum(harm.within for harm in delivered)}",
        f"{worst.part:+.1%} (seed {worst.seed}: {worst.home_s:.2f} s to {worst.elastic_s:.2f} s)",
        f"{median:+.1%}",
        f"{sum(harm.vms for harm in delivered)}",
        f"${sum(harm.usd for harm in delivered):.2f}",
    )


def main(seeds: Sequence[str]) -> None:
    """Print the worlds of these seeds, with ``reactive``."""
    for seed in map(int, seeds):
        world = harmless(seed)
        answered, delivered = as_runs(world)
        print(f"seed {seed}: {world.words}\n  answered {answered}\n  delivered {delivered}")


if __name__ == "__main__":
    main(sys.argv[1:])
