"""VMs boot twelve times as long as the config says: from the first boot on, decisions use what was seen."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest

from engines.simulated.boot import MeasuredTimes
from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from gateway.simulate.fluid.options import FluidOptions
from gateway.simulate.fluid.world import FluidWorld
from policies.announcement import Announcement
from policies.money.billing import BillingTerms
from policies.signals import Ask, Command, Event
from policies.switching.switching import SwitchingSettings
from tests.simulated.fluid_worlds import Steps, one_query

CONFIGURED_S = 5.0
REAL_S = 60.0
EVERY_S, LASTS_S, BURSTS = 360, 120, 3
CALM, BURST = 400.0, 1300.0
ANNOUNCED = Announcement(name="batch", every="*/6 * * * *", lasts_s=LASTS_S, rate=BURST)


class Watched(Scheduler):
    """Notes what the policies are told: (now, how long a VM is expected to boot)."""

    def __init__(self, settings: SchedulerSettings) -> None:
        super().__init__(settings)
        self.told: list[tuple[float, float]] = []

    def handle(self, event: Event) -> list[Command]:
        commands = super().handle(event)
        asks = [command for command in commands if isinstance(command, Ask)]
        self.told += [(event.at_s, ask.questions[0].seen.boot_s) for ask in asks]
        return commands


class Unlearned(Scheduler):
    """Tells the policies what the config says, whatever was seen."""

    def handle(self, event: Event) -> list[Command]:
        return [_as_configured(each) if isinstance(each, Ask) else each for each in super().handle(event)]


def _as_configured(ask: Ask) -> Ask:
    return replace(ask, questions=tuple(replace(q, seen=replace(q.seen, boot_s=CONFIGURED_S)) for q in ask.questions))


def world(make: type[Scheduler]) -> FluidOptions:
    """Announced bursts of 1.6 times what home serves; VMs boot for a minute."""
    lengths = [EVERY_S, *[LASTS_S, EVERY_S - LASTS_S] * BURSTS]
    ends = list(accumulate(lengths))
    steps = [(end, BURST if at % 2 else CALM) for at, end in enumerate(ends)]
    options = one_query(Steps(*steps), ends[-1], terms=BillingTerms(60.0, 60.0, 0.36, 0.09), usd=None)
    (site,) = options.sites
    # Events are sent below the target: otherwise many are a little late although a VM serves.
    switching = SwitchingSettings(2.4, 1.0, 1.0, 1000, 1.0)
    query = replace(site.scheduler.queries[0], switching=switching, announced=(ANNOUNCED,))
    scheduler = replace(site.scheduler, queries=(query,), boot_s=CONFIGURED_S)
    machines = replace(site.machines, boot=MeasuredTimes((REAL_S,)))
    return replace(options, sites=(replace(site, scheduler=scheduler, machines=machines),), make_scheduler=make)


def test_policies_decide_by_the_boots_that_were_seen_so_that_vms_come_in_time() -> None:
    made: list[Watched] = []

    def watched(settings: SchedulerSettings) -> Scheduler:
        made.append(Watched(settings))
        return made[0]

    learned = FluidWorld(replace(world(Scheduler), make_scheduler=watched)).run()
    starts_s, readies_s = ([at_s for at_s, _, what in learned.vm_marks if what == kind] for kind in ("start", "ready"))
    told = made[0].told
    assert {boot_s for at_s, boot_s in told if at_s <= starts_s[0]} == {CONFIGURED_S}
    growing = [boot_s for at_s, boot_s in told if starts_s[0] < at_s < readies_s[0]]
    assert growing == sorted(growing), "an order that is late already is evidence"
    assert growing[-1] > 0.9 * REAL_S
    later = [boot_s for at_s, boot_s in told if at_s >= readies_s[0]]
    assert min(later) == max(later) == pytest.approx(REAL_S)
    begins_s = [EVERY_S * (1 + burst) for burst in range(BURSTS)]
    late = [sum(begin_s - REAL_S < start_s < begin_s for begin_s in begins_s) for start_s in starts_s]
    assert late[0] == 1, "the first order trusts the config"
    assert len(late) >= BURSTS
    assert not any(late[1:])
    unlearned = FluidWorld(world(Unlearned)).run()
    assert learned.queries[0].missed < 0.5 * unlearned.queries[0].missed
