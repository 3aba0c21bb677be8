"""Which lane gets the next run: pure, by shares and by free room."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from policies.signals import HOME

# A lane that could not take its part for a while gets at most this many events more later, not all that it missed.
_CATCH_UP_EVENTS = 2_000.0


class Router:
    """Assigns runs to lanes so that each lane's part of the events follows its share.

    Cloud lanes never get more than their share; home takes what they cannot take now, unless its share is 0.
    """

    def __init__(self) -> None:
        self._shares: dict[str, float] = {HOME: 1.0}
        self._owed: dict[str, float] = {HOME: 0.0}

    @property
    def shares(self) -> Mapping[str, float]:
        """The share of each lane; they sum to 1."""
        return self._shares

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Use these shares from now on.

        Raises:
            ValueError: they are not in [0, 1] or do not sum to 1.
        """
        if any(not 0 <= share <= 1 for share in shares.values()) or abs(sum(shares.values()) - 1) > 1e-6:
            raise ValueError(f"shares must be in [0, 1] and sum to 1, not {dict(shares)}")
        self._owed = {lane: self._owed.get(lane, 0.0) for lane in shares}
        self._shares = dict(shares)

    def pick(self, events: int, with_room: Collection[str], *, home_only: bool = False) -> str | None:
        """Return the lane for a run of ``events`` events, None if it must wait. Then call ``dispatched``."""
        if home_only:
            return HOME if HOME in with_room else None
        owed = {
            lane: self._owed[lane] + share * events
            for lane, share in self._shares.items()
            if lane in with_room and share > 0
        }
        if self._shares.get(HOME, 0.0) == 0:
            # There is no home to fall back to: the lane furthest below its share takes it.
            return max(owed, key=lambda lane: owed[lane], default=None)
        cloud = {lane: amount for lane, amount in owed.items() if lane != HOME and amount >= events / 2}
        if cloud and (HOME not in owed or max(cloud.values()) >= owed[HOME]):
            return max(cloud, key=lambda lane: cloud[lane])
        return HOME if HOME in owed else max(cloud, key=lambda lane: cloud[lane], default=None)

    def pick_again(
        self, events: int, with_room: Collection[str], tried: Collection[str], *, home_only: bool = False
    ) -> str | None:
        """Return the lane for a run that is overdue in the lanes ``tried``: another one, else one of these again.

        It ignores the shares: the runs after it must not wait until a lane is below its share again. The caller then
        calls ``dispatched``.
        """
        others = {HOME, *(lane for lane, share in self._shares.items() if share > 0)}.difference(tried)
        if home_only or not others:
            return self.pick(events, with_room, home_only=home_only)
        return max(sorted(others.intersection(with_room)), key=lambda lane: self._owed.get(lane, 0.0), default=None)

    def dispatched(self, lane: str, events: int) -> None:
        """Note that a run of ``events`` events went to ``lane``."""
        limit = max(_CATCH_UP_EVENTS, 2.0 * events)
        for name, share in self._shares.items():
            owed = self._owed[name] + share * events - (events if name == lane else 0)
            self._owed[name] = min(max(owed, -limit), limit)
