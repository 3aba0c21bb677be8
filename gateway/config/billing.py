"""The config's sections about money: the provider's prices, and the budget."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gateway.config.rented import Provider, RentedConfig
from gateway.config.words.fields import Duration, Finding, LongerThanZero, QueryName, Section, Usd
from infra.clouds.providers.prices import listed_usd_per_hour
from infra.clouds.providers.profiles import PROFILES
from policies.money.billing import BillingTerms


class BillingConfig(Section):
    """The provider's prices: whole periods, at least ``minimum``, and traffic to and from a VM.

    Attributes:
        period_s: the billing period. Default: the provider's; required for ``process``.
        minimum_s: the shortest time that is billed; default and requirement as for ``period``.
        usd_per_hour: the price of a VM. Default for ``ec2``: each size's list price from libcloud; some are a tenth too
            high.
        usd_per_gb_sent: the price of traffic to a VM; it has no default.
        usd_per_gb_received: the price of traffic from a VM, mostly results.
    """

    period_s: LongerThanZero | None = Field(default=None, alias="period")
    minimum_s: Duration | None = Field(default=None, alias="minimum")
    usd_per_hour: Usd | None = Field(default=None, examples=[0.10])
    usd_per_gb_sent: Usd = Field(examples=[0.09])
    usd_per_gb_received: Usd = Field(default=0.0, examples=[0.09])


class BudgetConfig(Section):
    """The most that may be spent on VMs and egress. A VM that does not fit is not launched or not renewed.

    Hours and days are those of the wall clock in UTC. A billed block counts for the hour and day in which it begins.

    Attributes:
        usd_per_day: by all queries in a day.
        usd_per_hour: by all queries in an hour. Default: no limit.
        usd_per_query_day: by each query in a day: its egress, and its part of the VMs that it requested or kept.
            Default: no limit.
        when_spent: what happens to events that should have gone to the cloud: ``stay_home``, where they may be late, or
            ``shed``: so many new events of each switchable query are discarded, and counted, that the others meet its
            latency target.
    """

    usd_per_day: Usd = Field(examples=[5])
    usd_per_hour: Usd | None = Field(default=None, examples=[1.5])
    usd_per_query_day: Usd | None = Field(default=None, examples=[2])
    when_spent: Literal["stay_home", "shed"] = "stay_home"


class QuotaConfig(Section):
    """Limits of VMs and money that several gateways share, in ``object_store``; each has limits of its own, too.

    Attributes:
        name: gateways with the same name and the same object store share the quota.
        max_vms: VMs of all its gateways at a time.
        usd_per_day: money for all its gateways in a day (UTC). A new limit counts from the next day on. Default: no
            limit.
    """

    name: QueryName = Field(examples=["analytics"])
    max_vms: int = Field(ge=1, le=1000, examples=[20])
    usd_per_day: Annotated[Usd, Field(gt=0)] | None = Field(default=None, examples=[50])


def billing_findings(provider: Provider, billing: BillingConfig, rented: RentedConfig) -> list[Finding]:
    """Return the prices and billing rules that are missing."""
    if provider == "process":
        return [
            Finding(
                key=("billing", key), what=f"is missing; processes have no price of their own, so choose one: {example}"
            )
            for key, given, example in (
                ("period", billing.period_s, "60s"),
                ("minimum", billing.minimum_s, "60s"),
                ("usd_per_hour", billing.usd_per_hour, "0.10"),
            )
            if given is None
        ]
    prices = size_prices(provider, billing, rented)
    unknown = [size for size in rented.sizes if size not in prices]
    if billing.usd_per_hour is not None or not unknown:
        return []
    what = f"is missing; libcloud has no price of {', '.join(unknown)} there: write the highest price of an hour"
    return [Finding(key=("billing", "usd_per_hour"), what=what)]


def size_prices(provider: Provider, billing: BillingConfig, rented: RentedConfig) -> dict[str, float]:
    """Return the known price of an hour of each size; empty if the config gives one price for all.

    A spot VM counts at its highest price here: only the provider knows the real one.
    """
    if provider == "process" or billing.usd_per_hour is not None or rented.endpoint is not None:
        return {}
    found = {size: listed_usd_per_hour(provider, size, rented.region) for size in rented.sizes}
    most_usd = None if rented.spot is None else rented.spot.max_usd_per_hour
    if most_usd is not None:
        found = {size: min(most_usd, usd or most_usd) for size, usd in found.items()}
    return {size: usd for size, usd in found.items() if usd is not None}


def billing_terms(provider: Provider, billing: BillingConfig, rented: RentedConfig) -> BillingTerms:
    """Return the terms, completed by the provider's defaults; their price is that of the most expensive size."""
    usd_per_hour = billing.usd_per_hour
    if usd_per_hour is None:
        usd_per_hour = max(size_prices(provider, billing, rented).values())
    period_s, minimum_s = billing.period_s, billing.minimum_s
    if provider != "process":
        habits = PROFILES[provider]
        period_s = habits.billing_period_s if period_s is None else period_s
        minimum_s = habits.billing_minimum_s if minimum_s is None else minimum_s
    assert period_s is not None, "the config refuses processes without a period"
    assert minimum_s is not None, "the config refuses processes without a minimum"
    return BillingTerms(period_s, minimum_s, usd_per_hour, billing.usd_per_gb_sent, billing.usd_per_gb_received)
