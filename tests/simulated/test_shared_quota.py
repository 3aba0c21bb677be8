"""Gateways that share a quota in a fluid world, with their production schedulers and claims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gateway.simulate.fluid.options import FluidOptions, Spikes
from gateway.simulate.fluid.outcomes import FluidOutcome
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.sharing import QuotaOptions
from policies.money.ledger import day_of
from policies.quota.requests import QuotaLimits
from policies.signals import StartVm
from tests.simulated.fluid_worlds import day

COUNT = 20
BLOCK_USD = 0.006
NOON_S = 1.7e9 // 86_400 * 86_400 + 43_200


def played(limits: QuotaLimits | None, *, unanswered: float = 0.0, together: bool = True) -> FluidOutcome:
    """Twenty gateways that each want a VM in their spikes, for 40 minutes."""
    site = day().sites[0]
    site = replace(site, scheduler=replace(site.scheduler, quota=limits is not None))
    load = Spikes(
        np.full(COUNT, 300.0),
        1.0,
        seed=1,
        day=0.0,
        every_s=1000.0,
        for_s=120.0,
        times=4.0,
        together=np.zeros(COUNT, dtype=np.intp) if together else np.arange(COUNT),
    )
    quota = None if limits is None else QuotaOptions(limits=limits, unanswered=unanswered)
    options = FluidOptions(seed=1, sites=(site,) * COUNT, load=load, slots=2400, begins_wall_s=NOON_S, quota=quota)
    return FluidWorld(options).run()


def test_without_limits_that_matter_a_quota_changes_little() -> None:
    free, shared = played(None), played(QuotaLimits(max_vms=COUNT, usd_per_day=100.0, usd_a_portion=BLOCK_USD))
    assert shared.vms_most == free.vms_most == COUNT
    assert shared.vms == free.vms
    # A permit is claimed while tau passes; what is left of the claim is a part of a slot.
    assert shared.mean_s == pytest.approx(free.mean_s, rel=0.1)
    assert len(shared.quota.waits_s) >= COUNT
    assert np.median(shared.quota.waits_s) < 1.0


@pytest.mark.parametrize("unanswered", [0.0, 0.1])
def test_when_all_want_one_at_once_no_more_vms_live_than_there_are_permits(unanswered: float) -> None:
    outcome = played(QuotaLimits(max_vms=5, usd_per_day=100.0, usd_a_portion=BLOCK_USD), unanswered=unanswered)
    assert outcome.vms_most == 5
    assert outcome.quota.refused >= COUNT - 5
    starts = {command.site for command in outcome.commands if isinstance(command.command, StartVm)}
    assert len(starts) > 5, "permits that are free again go to others"


def test_gateways_with_spikes_of_their_own_need_few_permits() -> None:
    free, shared = played(None, together=False), played(QuotaLimits(max_vms=6), together=False)
    assert shared.vms == free.vms
    assert shared.mean_s < 1.2 * free.mean_s


def test_the_money_of_a_day_is_not_exceeded() -> None:
    limits = QuotaLimits(max_vms=COUNT, usd_per_day=10 * BLOCK_USD, usd_a_portion=BLOCK_USD)
    outcome = played(limits, unanswered=0.1)
    assert day_of(NOON_S) == day_of(NOON_S + outcome.lasted_s)
    assert 0 < outcome.usd <= 10 * BLOCK_USD
