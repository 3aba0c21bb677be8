"""Converts the config to the scheduler's settings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gateway.config.models import CloudConfig, Config
from gateway.config.policy import (
    CpuPolicyConfig,
    LookaheadPolicyConfig,
    PlannerPolicyConfig,
    PolicyConfig,
    QueueingPolicyConfig,
    ReactivePolicyConfig,
    StaticPolicyConfig,
    default_window_s,
    horizon_s,
)
from gateway.core.decide.scheduler import SchedulerSettings
from infra.clouds.providers.profiles import PROFILES
from policies.money.ledger import Budget
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings

if TYPE_CHECKING:
    from policies.choose import PolicyOptions


def scheduler_settings(config: Config) -> SchedulerSettings:
    """Return the scheduler's settings of a config."""
    budget = config.cloud.budget
    return SchedulerSettings(
        queries=tuple(
            QuerySettings(
                name=name,
                switching=SwitchingSettings(
                    start_vm_above_s=query.thresholds.start_vm_above_s,
                    send_above_s=query.thresholds.send_above_s,
                    keep_vm_above_s=query.thresholds.keep_vm_above_s,
                    keep_vm_bytes=query.thresholds.keep_vm_bytes,
                    tolerance_s=query.thresholds.tolerance_s,
                ),
                latency_qos_s=query.qos.latency_s,
                mode=query.switching.mode,
                share=None if query.switching.share == "auto" else float(query.switching.share),
                policy=_policy(query.policy, config),
                announced=tuple(each.announcement for each in query.announced),
                pause_most_s=query.switching.pause_most_s,
                stay_s=config.cloud.terms.first_block_s,
                dry_run=query.switching.dry_run,
            )
            for name, query in config.queries.items()
        ),
        max_vms=config.cloud.max_vms,
        billing=config.cloud.terms,
        budget=Budget(budget.usd_per_day, budget.usd_per_hour, budget.usd_per_query_day),
        boot_s=config.cloud.boot_s,
        slot_s=config.gateway.slot_s,
        sheds=budget.when_spent == "shed",
        boot_within_s=boot_within_s(config.cloud),
        freezes=tuple(window.terms for window in config.cloud.freeze),
    )


def boot_within_s(cloud: CloudConfig) -> float:
    """Return when a VM of a provider that does not listen is abandoned; 0 if the cloud has no such limit."""
    if cloud.provider == "process":
        return 0.0
    return cloud.boot_within_s or PROFILES[cloud.provider].boot_within_s


def _policy(policy: PolicyConfig, config: Config) -> PolicyOptions | None:
    """Return a policy's options with their defaults; the policy's modules are imported only if it is chosen."""
    if isinstance(policy, ReactivePolicyConfig):
        return None
    from policies.lookahead.policy import LookaheadOptions
    from policies.planning.plain import CpuOptions, StaticOptions
    from policies.planning.planner import PlannerOptions
    from policies.planning.queueing import QueueingOptions

    if isinstance(policy, StaticPolicyConfig):
        return StaticOptions(policy.vms)
    if isinstance(policy, LookaheadPolicyConfig):
        return LookaheadOptions()
    boot_s, first_block_s = config.cloud.boot_s, config.cloud.terms.first_block_s
    window_s = policy.window_s or default_window_s(config.gateway.slot_s, boot_s, first_block_s)
    match policy:
        case CpuPolicyConfig():
            return CpuOptions(start_above=policy.start_above, stop_below=policy.stop_below, window_s=window_s)
        case PlannerPolicyConfig():
            return PlannerOptions(
                window_s=window_s,
                windows=math.ceil(horizon_s(policy, boot_s, first_block_s) / window_s - 1e-9),
                history=policy.history,
                cycles_s=policy.cycles_s,
                miss_usd=policy.miss_usd,
                change_usd=policy.change_usd,
                most_uncertainty=policy.most_uncertainty,
                most_error=policy.most_error,
            )
        case QueueingPolicyConfig():
            return QueueingOptions(
                window_s=window_s,
                buffer_limit=policy.buffer_limit,
                probability=policy.probability,
                ahead_s=policy.ahead_s,
                forecast=policy.forecast,
                cycle_s=policy.season_s,
                history=policy.history,
            )


def unattended_s(config: Config) -> float:
    """Return how long a VM costs money after its gateway is gone; infinite if only a deletion stops the bill."""
    provider = config.cloud.provider
    deletes_itself = config.cloud.self_delete is not None
    stops = provider == "process" or PROFILES[provider].shutdown_stops_bill or deletes_itself
    return config.gateway.orphan_after_s if stops else math.inf
