"""From what the user chose to the policy of a query.

The policies that plan need scipy, which takes long to import: it is imported once one of them is chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.advice import Reactive, Site, VmPolicy

if TYPE_CHECKING:
    from policies.planning.plain import CpuOptions, StaticOptions
    from policies.planning.planner import PlannerOptions
    from policies.planning.queueing import QueueingOptions

    PolicyOptions = PlannerOptions | QueueingOptions | CpuOptions | StaticOptions
    """What the user says of a policy; None stands for the reactive one, which has nothing to say."""


def make_policy(options: PolicyOptions | None, site: Site, latency_s: float) -> VmPolicy:
    """Return a query's policy.

    Args:
        options: what the user chose.
        site: what is the same for all queries.
        latency_s: what is promised to the query.
    """
    if options is None:
        return Reactive()
    from policies.planning.plain import CpuOptions, CpuPolicy, StaticOptions, StaticPolicy
    from policies.planning.planner import Planner, PlannerOptions
    from policies.planning.queueing import QueueingPolicy

    match options:
        case PlannerOptions():
            return Planner(options, site, latency_s)
        case CpuOptions():
            return CpuPolicy(options, site, latency_s)
        case StaticOptions():
            return StaticPolicy(options)
        case _:
            return QueueingPolicy(options, site, latency_s)
