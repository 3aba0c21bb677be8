"""The list price of a size per hour, where libcloud's price data has it.

The data is as old as the installed libcloud and is incomplete. For some sizes it gives the price of dedicated hardware,
a tenth more. It is an upper bound, which suits a budget.
"""

from __future__ import annotations

import functools

from infra.clouds.providers.profiles import Provider


@functools.lru_cache(maxsize=256)
def listed_usd_per_hour(provider: Provider, size: str, region: str | None) -> float | None:
    """Return the list price of an ordinary Linux VM; None if the data does not have it.

    Args:
        provider: the data has whole sizes of EC2 only; for GCE it has prices per core and per gigabyte.
        size: the provider's name of it.
        region: likewise.
    """
    if provider != "ec2" or region is None:
        return None
    # The import is slow, and needed only where the config gives no price.
    from libcloud.pricing import get_size_price

    usd: float | None = get_size_price("compute", "ec2_linux", size, region)
    return usd or None  # the data has 0 for an unknown price
