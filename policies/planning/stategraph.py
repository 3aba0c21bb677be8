"""Planning as a shortest path through a graph of states, after Zacheilas et al., section III-C.

A state is a number of VMs that serve besides the private cluster, from 0 to the maximum; a column of the graph is a
window of time. Arcs lead from each state of a window to each state of the next, and cost what the next window costs
there (equation 11): missed events, VMs, traffic, and the change itself. The cost of an arc is a sum of terms that each
depend on one of its ends, so running minima find the cheapest of all arcs from all states of a window. A shortest path
takes time in proportion to windows times states, and needs no matrix of arcs.

Two things differ from the paper, as in real clouds. A VM that is ordered now serves only when it has booted: states
count serving VMs, and states with VMs that cannot be ready yet cannot be reached. And a VM is billed in blocks: see
``_renting_usd``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from policies.arrays import Array, IntArray, finite
from policies.money.billing import BillingTerms

_DENSITY_AT_0 = 1.0 / math.sqrt(2 * math.pi)

_SURE = 1e-9
"""A standard deviation below this part of its mean counts as none."""

_SAME = 1e-12
"""Costs that differ by less than this part are equal: sums of the same numbers in another order differ so."""

_FAR = 37.0
"""In floating point a normal variable is never this many standard deviations from its mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSettings:
    """The costs.

    Attributes:
        miss_usd: MC, the worth of an event that is not processed in its window.
        rebalance_usd: RC, the worth of the disturbance when the number of VMs changes (equation 12).
        terms: the cloud's prices of VMs and traffic: EC.
        boot_s: from the order of a VM until it serves; it is paid for from the start.
        selectivity: sel, results per event (equation 1).
        home_engines: how many VMs the private cluster is worth.
        sent_bytes_per_event: bytes over the WAN for an event processed in the cloud.

    Raises:
        ValueError: a value is negative.
    """

    miss_usd: float
    rebalance_usd: float
    terms: BillingTerms
    boot_s: float = 0.0
    selectivity: float = 1.0
    home_engines: float = 1.0
    sent_bytes_per_event: float = 0.0

    def __post_init__(self) -> None:
        values = (self.miss_usd, self.rebalance_usd, self.boot_s, self.selectivity, self.home_engines)
        if not min(*values, self.sent_bytes_per_event) >= 0:
            raise ValueError(f"costs must not be negative: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The forecast of the windows ahead.

    Attributes:
        window_s: length of a window.
        input_rate: events per second in each window, shape (windows,).
        input_std: their standard deviation, shape (windows,).
        busy_s: Lat of equation 9: how long an engine is busy with one event when this many VMs serve, shape (windows,
            states); the states are 0 to the most VMs.
        busy_std_s: their standard deviation, the same shape.

    Raises:
        ValueError: shapes do not match, or a value is impossible.
    """

    window_s: float
    input_rate: Array
    input_std: Array
    busy_s: Array
    busy_std_s: Array

    def __post_init__(self) -> None:
        rate, rate_std = finite("input_rate", self.input_rate, 1), finite("input_std", self.input_std, 1)
        busy, busy_std = finite("busy_s", self.busy_s, 2), finite("busy_std_s", self.busy_std_s, 2)
        if rate.shape != rate_std.shape or busy.shape != busy_std.shape or len(rate) != len(busy):
            shapes = [array.shape for array in (rate, rate_std, busy, busy_std)]
            raise ValueError(f"a horizon's rates and busy times must fit together, not have the shapes {shapes}")
        if not busy.size or not self.window_s > 0 or not busy.min() > 0:
            raise ValueError("a horizon needs a window, windows longer than 0 s and busy times longer than 0 s")
        if min(rate.min(), rate_std.min(), busy_std.min()) < 0:
            raise ValueError("rates and standard deviations must not be negative")

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of windows and states."""
        windows, states = self.busy_s.shape
        return windows, states


@dataclass(frozen=True, slots=True)
class RentedVm:
    """A VM that exists or was ordered.

    Attributes:
        ready_in_s: seconds until it serves; 0 or less if it serves already.
        paid_for_s: from now until the end of the billing block that is paid for.
    """

    ready_in_s: float
    paid_for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Equation 11 for every arc, in USD, by its parts.

    Attributes:
        miss: expected cost of missed events with this many VMs, shape (windows, states).
        egress: of traffic, the same shape.
        kept: of VMs that serve, the same shape.
        entered: cost when this many VMs begin to serve, all at once; never less for more of them, the same shape.
        rebalance_usd: of a change (equation 12).
        rise_most: how many VMs more than in the window before can serve, shape (windows,), integers.
        std: standard deviation of ``miss`` (equation 13).
    """

    miss: Array
    egress: Array
    kept: Array
    entered: Array
    rebalance_usd: float
    rise_most: IntArray
    std: Array

    @property
    def window_usd(self) -> Array:
        """Return the cost of a window, whatever the number of VMs before, shape (windows, states)."""
        usd: Array = self.miss + self.egress + self.kept
        return usd

    @property
    def renting(self) -> Array:
        """Return the cost of VMs on each arc, shape (windows, states before, states after)."""
        entering = np.maximum(self.entered[:, None, :] - self.entered[:, :, None], 0.0)
        renting: Array = self.kept[:, None, :] + entering
        return renting

    @property
    def arcs(self) -> Array:
        """Return the cost of each arc, shape (windows, states before, states after); infinite if impossible."""
        return np.stack([self.window_arcs(window) for window in range(len(self.miss))])

    def window_arcs(self, window: int) -> Array:
        """Return the cost of the arcs into a window, shape (states before, states after)."""
        return np.stack([self.arcs_from(window, before) for before in range(self.miss.shape[1])])

    def arcs_from(self, window: int, before: int) -> Array:
        """Return the cost of the arcs from one state into a window, shape (states,)."""
        arcs: Array = self.entered[window] - self.entered[window, before]
        np.maximum(arcs, 0.0, out=arcs)
        arcs += self.miss[window] + self.egress[window] + self.kept[window]
        staying = arcs[before]
        arcs += self.rebalance_usd
        arcs[before] = staying
        arcs[before + 1 + int(self.rise_most[window]) :] = np.inf
        return arcs


@dataclass(frozen=True, slots=True)
class Path:
    """A sequence of states.

    Attributes:
        states: number of serving VMs in each window.
        cost_usd: expected cost of all windows together.
        arc_usd: expected cost of each window.
        arc_std_usd: its standard deviation.
        alternatives_usd: for each state of one window, the least cost of a path through it (the cost of the rejected
            options); infinite if there is none.
    """

    states: tuple[int, ...]
    cost_usd: float
    arc_usd: tuple[float, ...]
    arc_std_usd: tuple[float, ...]
    alternatives_usd: tuple[float, ...]


def missed_events(horizon: Horizon, settings: CostSettings) -> tuple[Array, Array]:
    """Return mean and standard deviation of Miss by window and state, each of shape (windows, states).

    Equations 9 and 10 say Miss = sel max(0, In - capacity), with capacity = window / Lat x engines. In and Lat are
    normal, so their difference D is too, to first order in Lat; the result is the moments of max(0, D). Without
    uncertainty this is the paper's formula; with it, a window whose capacity is expected to be just enough costs
    something too.
    uncertainty this is the paper's formula; with it, a window that is expected to be just enough costs something too.
    """
    capacity = _capacity(horizon, settings)
    capacity_std = capacity * horizon.busy_std_s / horizon.busy_s
    mean = horizon.input_rate[:, None] * horizon.window_s - capacity
    std = np.hypot(horizon.input_std[:, None] * horizon.window_s, capacity_std)
    unsure = std > _SURE * np.maximum(np.abs(mean), 1.0)
    z = np.clip(np.divide(mean, std, out=np.zeros_like(mean), where=unsure), -_FAR, _FAR)
    below, density = ndtr(z), _DENSITY_AT_0 * np.exp(-0.5 * z**2)
    positive = np.where(unsure, np.maximum(mean * below + std * density, 0.0), np.maximum(mean, 0.0))
    # Moments of a normal variable cut off below 0; written without differences of large numbers.
    variance = (mean - positive) * positive + std**2 * below
    variance = np.where(unsure, np.maximum(variance, 0.0), 0.0)
    return settings.selectivity * positive, settings.selectivity * np.sqrt(variance)


def costs(horizon: Horizon, settings: CostSettings, fleet: Sequence[RentedVm]) -> Costs:
    """Return the cost of each arc (equation 11).

    Args:
        horizon: the forecast.
        settings: the prices.
        fleet: VMs that serve, or boot, now.
    """
    _, states = horizon.shape
    if len(fleet) >= states:
        raise ValueError(f"{len(fleet)} VMs are there, but the states only go up to {states - 1}")
    missed, missed_std = missed_events(horizon, settings)
    kept, entered = _renting_usd(horizon, settings, fleet)
    return Costs(
        miss=missed * settings.miss_usd,
        egress=_egress_usd(horizon, settings),
        kept=kept,
        entered=entered,
        rebalance_usd=settings.rebalance_usd,
        rise_most=_rise_most(horizon, settings, fleet),
        std=missed_std * settings.miss_usd,
    )


def shortest_path(found: Costs, start: int, at: int = 0) -> Path:
    """Return the cheapest path from a state; among equals the one with fewer VMs.

    Args:
        found: the cost of each arc.
        start: number of VMs that serve now.
        at: the window whose states' alternatives are priced.

    Raises:
        ValueError: the state or the window does not exist.
    """
    windows, states = found.miss.shape
    if not 0 <= start < states:
        raise ValueError(f"there is no state {start!r}: states are 0 to {states - 1}")
    if not 0 <= at < windows:
        raise ValueError(f"there is no window {at!r}: windows are 0 to {windows - 1}")
    window_usd = found.window_usd
    to_go = np.zeros((windows + 1, states))
    for window in range(windows - 1, -1, -1):
        to_go[window] = _cheapest(window_usd[window] + to_go[window + 1], found, window)
    path, arc_usd, state = [], [], start
    for window in range(windows):
        arcs = found.arcs_from(window, state)
        usd = arcs + to_go[window + 1]
        state = int((usd <= (1 + _SAME) * usd.min()).argmax())  # the first: the one with the fewest VMs
        arc_usd.append(float(arcs[state]))
        path.append(state)
    arc_std_usd = tuple(found.std[np.arange(windows), path].tolist())
    alternatives = _usd_until(found, start, at) + to_go[at + 1]
    return Path(tuple(path), float(to_go[0, start]), tuple(arc_usd), arc_std_usd, tuple(alternatives.tolist()))


def _cheapest(to_go: Array, found: Costs, window: int) -> Array:
    """Return the cost of the cheapest arc from each state, with everything after it, shape (states,).

    Args:
        to_go: the cost from each state after it, with that window, shape (states,).
        found: the other costs of arcs.
        window: the window that the arcs lead into.
    """
    usd = to_go.copy()
    # Down: to the cheapest state below, at the cost of the change alone.
    below = np.minimum.accumulate(to_go)[:-1] + found.rebalance_usd
    np.minimum(usd[1:], below, out=usd[1:])
    rise_most, entered = int(found.rise_most[window]), found.entered[window]
    up = to_go + entered + found.rebalance_usd
    if rise_most >= len(to_go) - 1:
        above = np.minimum.accumulate(up[::-1])[::-1]
        np.minimum(usd[:-1], above[1:] - entered[:-1], out=usd[:-1])
        return usd
    for rise in range(1, rise_most + 1):
        np.minimum(usd[:-rise], up[rise:] - entered[:-rise], out=usd[:-rise])
    return usd


def _usd_until(found: Costs, start: int, at: int) -> Array:
    """Return the least cost from a state to each state of a window, with that window, shape (states,)."""
    usd = found.arcs_from(0, start)
    for window in range(1, at + 1):
        usd = (usd[:, None] + found.window_arcs(window)).min(axis=0)
    return usd


def vms_to_start(path: Path, window_s: float, boot_s: float, fleet_size: int) -> int:
    """Return how many VMs to order now, so that the path can be followed.

    A VM that is ordered now serves from the first window that begins after its boot; later rises can be ordered later.

    Args:
        path: the plan.
        window_s: length of a window.
        boot_s: from the order of a VM until it serves.
        fleet_size: VMs that serve or boot already.
    """
    first = math.ceil(boot_s / window_s - 1e-9)
    return max(0, path.states[first] - fleet_size) if first < len(path.states) else 0


def _capacity(horizon: Horizon, settings: CostSettings) -> Array:
    """Return window / Lat x engines, shape (windows, states)."""
    engines = settings.home_engines + np.arange(horizon.shape[1])
    capacity: Array = horizon.window_s / horizon.busy_s * engines
    return capacity


def _egress_usd(horizon: Horizon, settings: CostSettings) -> Array:
    """Return the cost of traffic: VMs get their share of the engines, or nothing if home can carry everything."""
    capacity = _capacity(horizon, settings)
    arriving = horizon.input_rate[:, None] * horizon.window_s
    vms = np.arange(horizon.shape[1])
    share = np.divide(vms, settings.home_engines + vms, out=np.zeros(len(vms)), where=vms > 0)
    needed = arriving > capacity[:, :1]
    sent = np.where(needed, np.minimum(arriving, capacity) * share, 0.0)
    usd_per_event = settings.terms.egress_usd(settings.sent_bytes_per_event)
    egress: Array = sent * usd_per_event
    return egress


def _renting_usd(horizon: Horizon, settings: CostSettings, fleet: Sequence[RentedVm]) -> tuple[Array, Array]:
    """Return the cost of serving VMs, and the cost of starting them: ``Costs.kept`` and ``Costs.entered``.

    An existing VM costs nothing while it is paid for, and a whole period in each window in which the paid time ends and
    it is kept: exactly what the cloud will charge. VMs that are paid for longest are kept longest.

    The blocks of a VM that is not started yet depend on its start, which a state does not contain. So it costs the boot
    time, half a period, and the excess of a minimum over a period when it begins to serve, and then time in proportion.
    That is the average cost of its blocks over all possible ends; without a longer minimum, the error is at most half a
    period.
    """
    windows, states = horizon.shape
    terms = settings.terms
    keeping, entering = np.zeros((windows, states)), np.zeros((windows, states))  # by VM; column 0 is no VM
    keeping[:, 1:] = terms.time_usd(horizon.window_s)
    entering[:, 1:] = terms.time_usd(settings.boot_s + terms.first_block_s - terms.period_s / 2)
    for level, vm in enumerate(sorted(fleet, key=_by_use), start=1):
        keeping[:, level] = terms.time_usd(terms.period_s) * _renewals(vm, horizon, terms)
        ready = _ready_window(vm, horizon)
        if 0 < ready < windows:
            entering[ready, level] = 0.0  # started and paid for already
    return np.cumsum(keeping, axis=1), np.cumsum(entering, axis=1)


def _by_use(vm: RentedVm) -> tuple[float, float]:
    """Order VMs so that serving ones come first, and among them those paid for longest."""
    return max(vm.ready_in_s, 0.0), -vm.paid_for_s


def _ready_window(vm: RentedVm, horizon: Horizon) -> int:
    """Return the first window that the VM serves from its beginning."""
    return max(0, math.ceil(vm.ready_in_s / horizon.window_s - 1e-9))


def _renewals(vm: RentedVm, horizon: Horizon, terms: BillingTerms) -> Array:
    """Return how many billing periods of a VM begin in each window, shape (windows,)."""
    starts_s = horizon.window_s * np.arange(horizon.shape[0] + 1)
    begun = np.maximum(np.ceil((starts_s - max(vm.paid_for_s, 0.0)) / terms.period_s - 1e-9), 0.0)
    renewals: Array = np.diff(begun)
    return renewals


def _rise_most(horizon: Horizon, settings: CostSettings, fleet: Sequence[RentedVm]) -> IntArray:
    """Return how many VMs can have booted by each window, of those that did not serve before it, shape (windows,)."""
    windows, states = horizon.shape
    arriving = np.bincount([_ready_window(vm, horizon) for vm in fleet], minlength=windows)[:windows]
    arriving[:1] = 0  # those that are ready now serve already
    first = math.ceil(settings.boot_s / horizon.window_s - 1e-9)
    arriving[first:] = states  # any VM that is ordered now
    return arriving.astype(np.intp)
