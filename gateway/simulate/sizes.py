"""The sizes of VMs of a simulated cloud: which one a launch gets, and its price."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from policies.money.billing import BillingTerms


@dataclass(frozen=True, slots=True)
class VmSize:
    """A size that the config names.

    Attributes:
        name: the provider's.
        usd_per_hour: its price; None: that of the terms.
    """

    name: str
    usd_per_hour: float | None = None


ANY_SIZE = VmSize("")
"""That of a VM if the config names no sizes."""


class Picked(NamedTuple):
    """The size of a launch; None if every size is sold out. ``setbacks`` are those that were, in words."""

    size: VmSize | None
    setbacks: tuple[str, ...]


def picked(sizes: Sequence[VmSize], sold_out: Mapping[str, float], draw: random.Random) -> Picked:
    """Return the first size that is not sold out, as a gateway orders them.

    Args:
        sizes: in the order in which they are tried; none: there is only ``ANY_SIZE``.
        sold_out: the probability that a size is, by its name.
        draw: randomness; unused for sizes that are never sold out.
    """
    setbacks: list[str] = []
    for size in sizes or (ANY_SIZE,):
        part = sold_out.get(size.name, 0.0)
        if part == 0 or draw.random() >= part:
            return Picked(size, tuple(setbacks))
        setbacks.append(f"{size.name}: sold out")
    return Picked(None, tuple(setbacks))


def least_usd_per_hour(sizes: Sequence[VmSize], sold_out: Mapping[str, float], terms: BillingTerms) -> float:
    """Return the lowest price of the sizes that a launch may get.

    Args:
        sizes: see ``picked``.
        sold_out: see ``picked``.
        terms: the price of sizes without one of their own.
    """
    # After a size that is never sold out no other one is tried.
    tried = accumulate((sold_out.get(size.name, 0.0) > 0 for size in sizes), initial=True, func=lambda a, b: a and b)
    prices = [terms.at_price(size.usd_per_hour).usd_per_hour for size, may in zip(sizes, tried, strict=False) if may]
    return min(prices, default=terms.usd_per_hour)


@dataclass(frozen=True, slots=True)
class SizeLaunches:
    """How many VMs of a size were launched, at which price of an hour."""

    size: str
    usd_per_hour: float
    vms: int


def launches_of(
    sizes: Iterable[VmSize], launched: Mapping[VmSize, int], terms: BillingTerms
) -> tuple[SizeLaunches, ...]:
    """Return the VMs of each size; also of those of which there were none.

    Args:
        sizes: all, in their order.
        launched: how many VMs of each were launched.
        terms: the price of sizes without one of their own.
    """
    return tuple(
        SizeLaunches(size.name, terms.at_price(size.usd_per_hour).usd_per_hour, launched.get(size, 0)) for size in sizes
    )


def together(sites: Iterable[tuple[SizeLaunches, ...]]) -> tuple[SizeLaunches, ...]:
    """Return the VMs of each size and price over several gateways."""
    counts: Counter[tuple[str, float]] = Counter()
    for site in sites:
        for one in site:
            counts[one.size, one.usd_per_hour] += one.vms
    return tuple(SizeLaunches(size, usd_per_hour, vms) for (size, usd_per_hour), vms in counts.items())
