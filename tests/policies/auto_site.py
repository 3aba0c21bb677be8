"""Settings of ``auto`` for tests in a fluid, with windows as short as its boots."""

from __future__ import annotations

from policies.auto.policy import AutoOptions
from policies.planning.plain import CpuOptions
from policies.planning.planner import PlannerOptions
from policies.planning.queueing import QueueingOptions
from tests.policies.policy_data import query_settings

AUTO = AutoOptions(
    planner=PlannerOptions(window_s=4.0, windows=7, history=100),
    queueing=QueueingOptions(window_s=4.0),
    cpu=CpuOptions(start_above=0.7, stop_below=0.5, window_s=4.0),
    switching=query_settings(share=None).switching,
)
