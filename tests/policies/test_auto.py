"""``auto``: rules in shadows, what they would cost, and what it does with the real scheduler."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.advice import Seen, Site
from policies.auto.policy import AutoPolicy, rules
from policies.auto.shadow import Capacity, Shadow
from policies.lookahead.policy import LookaheadOptions
from policies.money.billing import BillingTerms
from policies.money.pricing import late_usd
from policies.planning.plain import StaticOptions, StaticPolicy
from policies.signals import QuerySlot
from tests.policies.auto_site import AUTO
from tests.policies.policy_play import HOME_PER_S, PERIOD_S, Play, bursts

TERMS = BillingTerms(20.0, 60.0, 3600.0, 0.0)
SITE = Site(max_vms=3, terms=TERMS, boot_s=6.0, slot_s=1.0)
CAPACITY = Capacity(home_rate=1000.0, vm_rate=500.0, late_usd=0.01, sent_usd=0.001, event_bytes=100.0)
TARGET_S = 2.0


def shadow(vms: int) -> Shadow:
    return Shadow(StaticPolicy(StaticOptions(vms)), SITE, TERMS, AUTO.switching, TARGET_S)


def seen(at_s: float, rate: float) -> Seen:
    slot = QuerySlot(query="q", latency_s=0.0, input_rate=rate)
    return Seen(at_s=at_s, wall_s=at_s, slot=slot, boot_s=SITE.boot_s)


@given(st.lists(st.integers(0, 4000), min_size=1, max_size=80), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_an_account_adds_up(rates: list[int], vms: int) -> None:
    """VMs serve after their boot; what home cannot do goes to them while it waits long enough, or would soon."""
    one, backlog, sent = shadow(vms), 0.0, 0.0
    for at_s, rate in enumerate(rates, start=1):
        one.advance(seen(float(at_s), float(rate)), CAPACITY)
        serving = vms if at_s > 1 + SITE.boot_s else 0
        waited_s = backlog / (1000.0 + 500.0 * serving)
        alone_s = (backlog + (rate - 1000.0) * SITE.boot_s) / 1000.0
        cloud = 500.0 * serving if waited_s >= AUTO.switching.send_above_s or alone_s > TARGET_S else 0.0
        moved = min(max(0.0, backlog + rate - 1000.0), cloud)
        backlog, sent = max(0.0, backlog + rate - 1000.0 - cloud), sent + moved
    assert one.account.traffic_usd == pytest.approx(0.001 * sent)
    assert one.account.vms_usd == pytest.approx(vms * (len(rates) - 1))
    assert one.account.late_usd == pytest.approx(0.01 * one.account.late_events)
    assert one.account.late_events <= sum(rates) + 1e-6


def test_events_are_late_once_they_wait_longer_than_the_target() -> None:
    one = shadow(0)
    for at_s in range(1, 5):
        one.advance(seen(float(at_s), 2000.0), CAPACITY)
    # Each second a thousand events more wait than home completes in a second: the third second's events are late.
    assert one.account.late_events == pytest.approx(2 * 2000.0)


def test_a_vm_that_is_not_kept_is_paid_to_the_end_of_its_block() -> None:
    one = Shadow(rules(AUTO, SITE, TARGET_S)["reactive"], SITE, TERMS, AUTO.switching, TARGET_S)
    for at_s in range(1, 200):
        one.advance(seen(float(at_s), 3000.0 if at_s < 20 else 0.0), CAPACITY)
    assert one.vms == 0
    assert one.account.vms_usd > 0
    # Seconds cost a dollar here, and a VM lives for 60 s and then in blocks of 20 s.
    assert one.account.vms_usd % 20.0 == pytest.approx(0.0, abs=1e-6)


def test_equation_1_launches_one_vm_after_the_other() -> None:
    one, counts = Shadow(rules(AUTO, SITE, TARGET_S)["reactive"], SITE, TERMS, AUTO.switching, TARGET_S), []
    for at_s in range(1, 30):
        one.advance(seen(float(at_s), 5000.0), CAPACITY)
        counts.append(one.vms)
    assert counts[-1] == SITE.max_vms
    gaps = [counts.index(vms + 1) - counts.index(vms) for vms in (1, 2)]
    assert min(gaps) >= SITE.boot_s


def test_what_pays_is_followed_and_why_tells_each_account() -> None:
    """If late events cost nothing, no VM pays after the first burst; if they cost a lot, VMs stand by for bursts."""
    load = bursts(every_s=120.0, for_s=20.0, low=400.0, high=2600.0)
    cheap, dear = (
        Play(replace(AUTO, planner=replace(AUTO.planner, miss_usd=usd)), load, max_vms=3).until(360.0)
        for usd in (0.0, 0.01)
    )
    last = cheap.decisions[-1].advice
    assert last.why.startswith("auto: follows home ($0.0000 so far): static: 0 VMs always")
    assert max(at_s for at_s, _ in cheap.started) < 120.0
    assert "auto: follows static: 3" in dear.decisions[-1].advice.why
    assert {"reactive", "lookahead", "planner", "queueing", "cpu", "home", "static: 1", "static: 3"} <= set(last.rules)
    assert "late events $0.0000" in last.rules["home"]
    assert dear.mean_latency_s(240.0) < cheap.mean_latency_s(240.0)


def test_a_steady_overload_costs_at_most_a_little_more_than_the_best_rule() -> None:
    def load(at_s: float) -> float:
        return 700.0 if at_s < 30 else 1500.0

    auto, ahead = (Play(policy, load, max_vms=3).until(300.0) for policy in (AUTO, LookaheadOptions()))
    prices = BillingTerms(PERIOD_S, PERIOD_S, 0.36, 0.0)
    late = late_usd(None, prices, 1.0 / HOME_PER_S, 0.0)
    auto_usd, ahead_usd = (
        played.usd + late * sum(load(at_s) for at_s, latency_s in played.latencies if latency_s > TARGET_S)
        for played in (auto, ahead)
    )
    assert auto_usd <= 1.05 * ahead_usd
    assert auto.mean_latency_s() <= 1.2 * ahead.mean_latency_s()


def test_its_models_are_trained_once_for_both_planners() -> None:
    played = Play(AUTO, lambda at_s: 600.0 + 300.0 * (at_s // 20 % 2), max_vms=2).until(160.0)
    assert len(played.fits) >= 1
    told = played.decisions[-1].advice.rules["planner"]
    assert "so far" in told


def test_the_safety_net_is_that_of_the_followed_rule() -> None:
    policy = AutoPolicy(AUTO, SITE, TARGET_S)
    advice = policy.advise(seen(1.0, 100.0))
    acts = {name: each.phi_starts for name, each in rules(AUTO, SITE, TARGET_S).items()}
    assert advice.phi_starts == acts[policy.followed]
    assert acts["planner"]
    assert not acts["lookahead"]
