"""Converts the config to the scheduler's settings."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.config.models import CloudConfig, Config
from gateway.config.policy import (
    AutoPolicyConfig,
    CpuPolicyConfig,
    LookaheadPolicyConfig,
    PlannerPolicyConfig,
    QueueingPolicyConfig,
    ReactivePolicyConfig,
    StaticPolicyConfig,
    ThresholdsConfig,
    default_window_s,
    horizon_s,
)
from gateway.config.queries import QueryConfig
from gateway.core.decide.scheduler import SchedulerSettings
from infra.clouds.providers.profiles import PROFILES
from policies.money.ledger import Budget
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings

if TYPE_CHECKING:
    from policies.auto.policy import AutoOptions
    from policies.choose import PolicyOptions
    from policies.planning.plain import CpuOptions
    from policies.planning.planner import PlannerOptions
    from policies.planning.queueing import QueueingOptions


def scheduler_settings(config: Config) -> SchedulerSettings:
    """Return the scheduler's settings of a config."""
    budget = config.cloud.budget
    return SchedulerSettings(
        queries=tuple(
            QuerySettings(
                name=name,
                switching=_switching(query.thresholds),
                latency_qos_s=query.qos.latency_s,
                mode=query.switching.mode,
                share=None if query.switching.share == "auto" else float(query.switching.share),
                policy=_policy(name, query, config),
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
        quota=config.gateway.quota is not None,
    )


def lone_settings(config: Config) -> SchedulerSettings:
    """Return the settings of a gateway that has its quota for itself, as in a simulation of one gateway."""
    settings, quota = scheduler_settings(config), config.gateway.quota
    if quota is None:
        return settings
    limits_usd = [usd for usd in (settings.budget.usd_per_day, quota.usd_per_day) if usd is not None]
    budget = replace(settings.budget, usd_per_day=min(limits_usd, default=None))
    return replace(settings, max_vms=min(settings.max_vms, quota.max_vms), budget=budget, quota=False)


def boot_within_s(cloud: CloudConfig) -> float:
    """Return when a VM of a provider that does not listen is abandoned; 0 if the cloud has no such limit."""
    if cloud.provider == "process":
        return 0.0
    return cloud.boot_within_s or PROFILES[cloud.provider].boot_within_s


def _switching(thresholds: ThresholdsConfig) -> SwitchingSettings:
    return SwitchingSettings(
        start_vm_above_s=thresholds.start_vm_above_s,
        send_above_s=thresholds.send_above_s,
        keep_vm_above_s=thresholds.keep_vm_above_s,
        keep_vm_bytes=thresholds.keep_vm_bytes,
        tolerance_s=thresholds.tolerance_s,
    )


def _policy(name: str, query: QueryConfig, config: Config) -> PolicyOptions | None:
    """Return a policy's options with their defaults; the policy's modules are imported only if it is chosen."""
    policy = query.policy
    if isinstance(policy, ReactivePolicyConfig):
        return None
    from policies.lookahead.policy import LookaheadOptions
    from policies.planning.plain import StaticOptions

    match policy:
        case StaticPolicyConfig():
            return StaticOptions(policy.vms)
        case LookaheadPolicyConfig():
            return LookaheadOptions()
        case CpuPolicyConfig():
            return _cpu(policy, config)
        case PlannerPolicyConfig():
            return _planner(policy, config)
        case QueueingPolicyConfig():
            return _queueing(policy, config)
        case AutoPolicyConfig():
            return _auto(name, policy, query, config)


def _window_s(window_s: float | None, config: Config) -> float:
    cloud = config.cloud
    return window_s or default_window_s(config.gateway.slot_s, cloud.boot_s, cloud.terms.first_block_s)


def _cpu(policy: CpuPolicyConfig, config: Config) -> CpuOptions:
    from policies.planning.plain import CpuOptions

    window_s = _window_s(policy.window_s, config)
    return CpuOptions(start_above=policy.start_above, stop_below=policy.stop_below, window_s=window_s)


def _planner(policy: PlannerPolicyConfig, config: Config) -> PlannerOptions:
    from policies.planning.planner import PlannerOptions

    window_s = _window_s(policy.window_s, config)
    ahead_s = horizon_s(policy, config.cloud.boot_s, config.cloud.terms.first_block_s)
    return PlannerOptions(
        window_s=window_s,
        windows=math.ceil(ahead_s / window_s - 1e-9),
        history=policy.history,
        cycles_s=policy.cycles_s,
        miss_usd=policy.miss_usd,
        change_usd=policy.change_usd,
        most_uncertainty=policy.most_uncertainty,
        most_error=policy.most_error,
    )


def _queueing(policy: QueueingPolicyConfig, config: Config) -> QueueingOptions:
    from policies.planning.queueing import QueueingOptions

    return QueueingOptions(
        window_s=_window_s(policy.window_s, config),
        buffer_limit=policy.buffer_limit,
        probability=policy.probability,
        ahead_s=policy.ahead_s,
        forecast=policy.forecast,
        cycle_s=policy.season_s,
        history=policy.history,
    )


def _auto(name: str, policy: AutoPolicyConfig, query: QueryConfig, config: Config) -> AutoOptions:
    """Return the options of ``auto``: the defaults of the rules that it compares."""
    from policies.auto.policy import AutoOptions

    return AutoOptions(
        planner=_planner(PlannerPolicyConfig(type="planner", miss_usd=policy.miss_usd), config),
        queueing=_queueing(QueueingPolicyConfig(type="queueing"), config),
        cpu=_cpu(CpuPolicyConfig(type="cpu"), config),
        switching=_switching(query.thresholds),
        seed=zlib.crc32(name.encode()),
    )


def unattended_s(config: Config) -> float:
    """Return how long a VM costs money after its gateway is gone; infinite if only a deletion stops the bill."""
    provider = config.cloud.provider
    deletes_itself = config.cloud.self_delete is not None
    stops = provider == "process" or PROFILES[provider].shutdown_stops_bill or deletes_itself
    return config.gateway.orphan_after_s if stops else math.inf
