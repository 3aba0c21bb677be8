"""What a size costs by the hour, as far as libcloud's price data know it.

They are as old as the libcloud that is installed, have holes, and give for some sizes the price on dedicated hardware,
a tenth more: an upper bound, as a budget wants it.
"""

from __future__ import annotations

import functools

from infra.clouds.providers.profiles import Provider


@functools.lru_cache(maxsize=256)
def listed_usd_per_hour(provider: Provider, size: str, region: str | None) -> float | None:
    """Return the list price of an ordinary Linux machine; None where nobody knows it.

    Args:
        provider: the data hold whole sizes of EC2 only; those of GCE are by core and by gigabyte.
        size: the provider's word.
        region: likewise.
    """
    if provider != "ec2" or region is None:
        return None
    # Heavy, and wanted only where the config gives no price.
    from libcloud.pricing import get_size_price

    usd: float | None = get_size_price("compute", "ec2_linux", size, region)
    return usd or None  # the data say 0 of what they do not know
