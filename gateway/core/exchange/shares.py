"""The effective shares, given the open lanes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from policies.signals import HOME

# By how much shares may sum to more than 1, as they are rounded; less than the router's tolerance.
_ROUNDING = 5e-7


def check_shares(shares: Mapping[str, float]) -> None:
    """Check that shares are valid.

    Raises:
        ValueError: one is not in [0, 1], or those of the cloud lanes sum to more than 1.
    """
    in_cloud = sum(share for lane, share in shares.items() if lane != HOME)
    if any(not 0 <= share <= 1 for share in shares.values()) or in_cloud > 1 + _ROUNDING:
        raise ValueError(f"shares must be in [0, 1] and not sum to more than 1, not {dict(shares)}")


def shares_of(named: Mapping[str, float], there: Collection[str]) -> dict[str, float]:
    """Return the effective shares. They sum to 1, and name HOME and those of the named cloud lanes that are open.

    The share of a cloud lane that is not open goes to home. While home is not open, the cloud lanes with shares get its
    part too: only runs that must stay at home wait for its return.

    Args:
        named: the scheduler's shares.
        there: the lanes that take runs.
    """
    cloud = {lane: share for lane, share in named.items() if lane in there and lane != HOME}
    in_cloud = sum(cloud.values())
    if HOME not in there and in_cloud > 0:
        cloud = {lane: share / in_cloud for lane, share in cloud.items()}
        in_cloud = 1.0
    return {HOME: max(0.0, 1.0 - in_cloud), **cloud}
