"""What else could have been decided in a slot where a policy does not say it: plain rules and other numbers of VMs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from policies.advice import ENGINES_HOME, Option, Site
from policies.lookahead.fluid import Fluid
from policies.money.pricing import late_usd, priced
from policies.planning.rules import Observation, plain_verdicts
from policies.slot import HOME, QuerySlot

_PARTS = 60
"""A billing period is looked at in so many parts."""


class Standing(NamedTuple):
    """The VMs that there are.

    Attributes:
        ready: names of those that serve.
        booting: how many do not serve yet.
        boot_s: how long a VM that is ordered now takes until it serves.
    """

    ready: Sequence[str]
    booting: int
    boot_s: float

    @property
    def vms(self) -> int:
        """Return how many there are."""
        return len(self.ready) + self.booting


class Alternatives(NamedTuple):
    """What else there was.

    Attributes:
        rules: what each plain rule would want, by its name.
        options: what no VM, one fewer, as many as now and one more would cost in a billing period.
    """

    rules: dict[str, str]
    options: tuple[Option, ...]


def alternatives(
    slot: QuerySlot, site: Site, standing: Standing, *, latency_s: float, sent_part: float
) -> Alternatives | None:
    """Return what else there was after a slot; None before home has processed anything.

    The options assume that the present load goes on for a billing period, and price late events as the planner does.

    Args:
        slot: the measurements.
        site: the settings that all queries share.
        standing: the VMs.
        latency_s: the promised latency: an event that would take longer is late.
        sent_part: bytes over the WAN per raw byte.
    """
    home_rate = slot.rates.get(HOME, 0.0)
    if not home_rate > 0:
        return None
    of_vms = [rate for lane, rate in slot.rates.items() if lane in standing.ready and rate > 0]
    waiting = slot.backlog_events + sum(slot.open_events.values())
    fluid = Fluid(slot.input_rate, waiting, home_rate, fmean(of_vms) if of_vms else home_rate)
    observation = Observation(
        at_s=0.0,
        engines=ENGINES_HOME + len(standing.ready),
        input_rate=slot.input_rate,
        busy_s=1.0 / fluid.vm_rate,
        limit_broken=slot.latency_s >= latency_s,
    )
    event_bytes = slot.input_bytes_per_s / slot.input_rate * sent_part if slot.input_rate > 0 else 0.0
    most = max(site.max_vms, standing.vms)
    counts = sorted({0, standing.vms - 1, standing.vms, standing.vms + 1} & set(range(most + 1)))
    options = tuple(Option(vms, _usd(fluid, site, standing, vms, latency_s, event_bytes)) for vms in counts)
    return Alternatives(plain_verdicts(observation, most, latency_s), options)


def _usd(fluid: Fluid, site: Site, standing: Standing, vms: int, latency_s: float, event_bytes: float) -> float:
    """Return what so many VMs cost in a billing period: their time, the traffic, and late events."""
    terms, period_s = priced(site.terms), site.terms.period_s
    ready = min(vms, len(standing.ready))
    ready_in_s = (0.0,) * ready + (standing.boot_s,) * (vms - ready)
    part_s = period_s / _PARTS
    middles = [(part + 0.5) * part_s for part in range(_PARTS)]
    late = sum(each > latency_s for each in fluid.latencies_s(middles, ready_in_s)) * part_s * fluid.rate
    served_s = sum(max(0.0, period_s - ready_s) for ready_s in ready_in_s)
    beyond_home = max(0.0, fluid.waiting + (fluid.rate - fluid.home_rate) * period_s)
    sent = min(beyond_home, served_s * fluid.vm_rate)
    price_usd = late_usd(None, terms, 1.0 / fluid.vm_rate, event_bytes)
    return vms * terms.time_usd(period_s) + sent * terms.egress_usd(event_bytes) + late * price_usd
