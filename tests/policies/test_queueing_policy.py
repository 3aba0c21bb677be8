"""The queueing policy decides for the time at which a VM that is ordered now serves."""

from __future__ import annotations

import itertools

import pytest

from policies.advice import Advice, Seen, Site
from policies.money.billing import BillingTerms
from policies.planning.queueing import QueueingOptions, QueueingPolicy
from policies.signals import HOME, QuerySlot

WINDOW_S = 5.0
SITE = Site(max_vms=4, terms=BillingTerms(60.0, 60.0, 0.36, 0.0), boot_s=5.0, slot_s=WINDOW_S)


class Asked:
    """A policy that is asked in each window, while home completes 1,000 events a second."""

    def __init__(self, ahead_s: float | None = None) -> None:
        self.policy = QueueingPolicy(QueueingOptions(window_s=WINDOW_S, ahead_s=ahead_s), SITE, latency_s=2.0)
        self._at_s = 0.0

    def window(self, boot_s: float, rate: float = 500.0) -> Advice:
        self._at_s += WINDOW_S
        events = int(min(rate, 1000.0) * WINDOW_S)
        slot = QuerySlot(
            query="q",
            latency_s=0.1,
            input_rate=rate,
            batches={HOME: 10},
            completed_events={HOME: events},
            busy_s={HOME: events / 1000.0},
        )
        return self.policy.advise(Seen(at_s=self._at_s, wall_s=self._at_s, slot=slot, boot_s=boot_s))


def in_s(advice: Advice) -> float:
    assert advice.expected is not None
    return advice.expected.in_s


def test_the_horizon_follows_the_boot_time_that_is_expected() -> None:
    asked = Asked()
    assert in_s(asked.window(5.0)) == pytest.approx(2.5)
    assert in_s(asked.window(60.0)) == pytest.approx(57.5)
    assert in_s(asked.window(5.0)) == pytest.approx(2.5)


def test_an_engine_is_cancelled_once_another_could_have_replaced_it() -> None:
    """What is no longer wanted is kept for a time horizon (section V-D): for as long as VMs really boot."""
    kept: dict[float, int] = {}
    for boot_s in (5.0, 60.0):
        asked = Asked()
        for _ in range(4):
            asked.window(boot_s, 1800.0)
        kept[boot_s] = sum(asked.window(boot_s, 300.0).kept > 0 for _ in range(30))
    assert kept[5.0] < 3
    assert 10 <= kept[60.0] <= 13


def test_a_horizon_of_the_config_stays() -> None:
    asked = Asked(ahead_s=20.0)
    assert in_s(asked.window(5.0)) == in_s(asked.window(60.0)) == pytest.approx(17.5)


def test_a_table_that_cannot_be_computed_is_ordered_ever_more_rarely() -> None:
    asked, ordered_at = Asked(), []
    for window in range(60):
        asked.window(5.0)
        if asked.policy.fit_order() is not None:
            ordered_at.append(window)
            asked.policy.fitted((), "no memory")
    gaps = [later - earlier for earlier, later in itertools.pairwise(ordered_at)]
    assert gaps[:4] == [2, 4, 8, 16]
