"""From the config to the scheduler's settings."""

from __future__ import annotations

from gateway.config.models import Cloud, Config
from gateway.scheduler import SchedulerSettings
from policies.billing import BillingTerms
from policies.ledger import Budget
from policies.query import QuerySettings
from policies.switching import SwitchingSettings


def scheduler_settings(config: Config) -> SchedulerSettings:
    """Return what the scheduler decides by, from what the user wrote."""
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
            )
            for name, query in config.queries.items()
        ),
        max_vms=config.cloud.max_vms,
        billing=_terms(config.cloud),
        budget=Budget(budget.usd_per_day, budget.usd_per_hour, budget.usd_per_query_day),
        boot_s=config.cloud.boot_s,
        slot_s=config.gateway.slot_s,
    )


def _terms(cloud: Cloud) -> BillingTerms:
    billing = cloud.billing
    return BillingTerms(billing.period_s, billing.minimum_s, billing.usd_per_hour, billing.usd_per_gb_sent)
