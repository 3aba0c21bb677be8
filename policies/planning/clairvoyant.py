"""The optimum: the best plan for a trace that is known completely.

An exact dynamic programme over windows. Its state is how many VMs have how many paid windows left. So billing in blocks
is exact, unlike in the state graph, whose states are counts. A VM is never terminated within a block, since that would
save nothing. It orders VMs a boot time before they are needed, and pays for that time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.arrays import Array, IntArray, finite

STATES_MOST = 50_000
CHOICES_MOST = 50_000_000
"""One for each window and state, of 8 bytes."""


class TooManyStatesError(ValueError):
    """There are too many ways in which VMs may be paid ahead: use longer windows or fewer VMs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The price of VMs, in windows.

    Attributes:
        first: number of windows in a VM's first block.
        period: windows of each block after it.
        boot: windows of the first block in which it only boots.
        window_usd: price of a window.
        rebalance_usd: RC, the cost of a change of the number of serving VMs.

    Raises:
        ValueError: a VM could never serve within its first block, or a value is negative.
    """

    first: int
    period: int
    boot: int = 0
    window_usd: float = 1.0
    rebalance_usd: float = 0.0

    def __post_init__(self) -> None:
        if self.period < 1 or not 0 <= self.boot < self.first or min(self.window_usd, self.rebalance_usd) < 0:
            raise ValueError(
                f"a VM must serve in its first block, and nothing cost less than nothing: {self.boot} of {self.first} "
                f"windows pass until it serves, a period has {self.period}, a window costs {self.window_usd:g} USD and "
                f"a change {self.rebalance_usd:g} USD"
            )


@dataclass(frozen=True, slots=True)
class Optimum:
    """The cheapest plan.

    Attributes:
        vms: how many serve in each window.
        cost_usd: misses, VMs and changes together.
        renting_usd: VMs alone.
    """

    vms: tuple[int, ...]
    cost_usd: float
    renting_usd: float


@dataclass(frozen=True, slots=True)
class _Moves:
    """All moves of all states, grouped by state: from ``first_of`` of a state to ``first_of`` of the next one.

    ``first_of`` has the shape (states,), all others (moves,).
    """

    first_of: IntArray
    to: IntArray
    serving: IntArray
    usd: Array
    renting_usd: Array


_State = tuple[int, ...]
"""How many VMs have 0, 1, 2 ... paid windows left; those with 0 must be renewed or terminated now."""


def clairvoyant(miss_usd: Array, blocks: Blocks) -> Optimum:
    """Return the cheapest number of VMs in each window of a known trace, starting with none.

    Args:
        miss_usd: the loss in each window with each number of serving VMs, shape (windows, 1 + most VMs); it never grows
            with more VMs.
        blocks: the price of VMs.

    Raises:
        ValueError: ``miss_usd`` is not finite, or has another shape.
        TooManyStatesError: use longer windows or fewer VMs.
    """
    miss_usd = finite("miss_usd", miss_usd, 2)
    windows, counts = miss_usd.shape
    moves = _moves(counts - 1, blocks)
    starts, to, serving = moves.first_of, moves.to, moves.serving
    if windows * len(starts) > CHOICES_MOST:
        raise TooManyStatesError(f"{len(starts)} states in {windows} windows: use longer windows, or fewer VMs")
    to_go = np.zeros(len(starts))
    chosen = np.empty((windows, len(starts)), dtype=np.intp)
    ends = np.append(starts[1:], len(to))
    for window in range(windows - 1, -1, -1):
        costs = moves.usd + miss_usd[window, serving] + to_go[to]
        to_go = np.minimum.reduceat(costs, starts)
        best = np.flatnonzero(costs <= np.repeat(to_go, ends - starts))
        chosen[window] = best[np.searchsorted(best, starts)]
    state, vms, renting_usd = 0, [], 0.0
    for window in range(windows):
        move = chosen[window, state]
        vms.append(int(serving[move]))
        renting_usd += float(moves.renting_usd[move])
        state = int(to[move])
    return Optimum(tuple(vms), float(to_go[0]), renting_usd)


def _moves(most: int, blocks: Blocks) -> _Moves:
    """Find all states that can be reached from no VM at all, and the moves between them."""
    left_most = max(blocks.first - blocks.boot, blocks.period) - 1
    empty: _State = (0,) * (left_most + 1)
    numbers, queue = {empty: 0}, [empty]
    first_of: list[int] = []
    rows: list[tuple[int, int, float, float]] = []
    for state in queue:  # grows during the loop
        first_of.append(len(rows))
        for after, serving, renting_usd in _moves_of(state, most, blocks):
            if after not in numbers:
                numbers[after] = len(queue)
                queue.append(after)
            changed = serving != sum(state)
            usd = renting_usd + (blocks.rebalance_usd if changed else 0.0)
            rows.append((numbers[after], serving, usd, renting_usd))
        if len(queue) > STATES_MOST:
            raise TooManyStatesError(f"more than {STATES_MOST} states: use longer windows, or fewer VMs than {most}")
    to, servings, costs_usd, rents_usd = zip(*rows, strict=True)
    return _Moves(
        first_of=np.array(first_of, dtype=np.intp),
        to=np.array(to, dtype=np.intp),
        serving=np.array(servings, dtype=np.intp),
        usd=np.array(costs_usd),
        renting_usd=np.array(rents_usd),
    )


def _moves_of(state: _State, most: int, blocks: Blocks) -> list[tuple[_State, int, float]]:
    """Return for each move the state after it, the VMs that serve meanwhile, and the rent."""
    expiring, paid = state[0], sum(state[1:])
    found = []
    for renewed in range(expiring + 1):
        for started in range(most - paid - renewed + 1):
            after = [*state[1:], 0]
            after[blocks.period - 1] += renewed
            after[blocks.first - blocks.boot - 1] += started
            rented = renewed * blocks.period + started * blocks.first
            found.append((tuple(after), paid + renewed + started, rented * blocks.window_usd))
    return found
