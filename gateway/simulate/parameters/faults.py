"""The faults that a user wants to be simulated: a section of the parameters' file."""

from __future__ import annotations

from pydantic import Field, model_validator

from gateway.config.words.fields import Duration, LongerThanZero, Section, Share
from gateway.simulate.options import Faults


class FaultsSection(Section):
    """Faults at random times, exponentially distributed; none by default.

    Attributes:
        launches_fail: the part of all launches for which the cloud has no VM.
        sold_out: by size, the part of all launches for which the cloud has no VM of this size.
        launches_hang: the part of the others whose VM is billed but never ready.
        hosts_die_every_s: the mean time until an engine host dies, at home and on a VM.
        reclaimed_every_s: the mean time until the cloud reclaims a ready VM, as it may with a spot VM.
        notice_s: how long before that it says so. Default: not at all.
    """

    launches_fail: Share = 0.0
    sold_out: dict[str, Share] = Field(default_factory=dict)
    launches_hang: Share = 0.0
    hosts_die_every_s: LongerThanZero | None = Field(default=None, alias="hosts_die_every")
    reclaimed_every_s: LongerThanZero | None = Field(default=None, alias="reclaimed_every")
    notice_s: Duration = Field(default=0.0, alias="notice")

    @model_validator(mode="after")
    def _something_is_announced(self) -> FaultsSection:
        if self.notice_s and self.reclaimed_every_s is None:
            raise ValueError("notice: without reclaimed_every nothing is announced; add it, as in reclaimed_every: 2h")
        return self

    @property
    def faults(self) -> Faults:
        """Return them as a world gets them."""
        return Faults(
            failed_launch=self.launches_fail,
            sold_out=self.sold_out,
            stuck_boot=self.launches_hang,
            crash_per_s=_per_s(self.hosts_die_every_s),
            reclaim_per_s=_per_s(self.reclaimed_every_s),
            notice_s=self.notice_s,
        )

    @property
    def only_in_runs(self) -> list[str]:
        """Return the keys of those that the fluid model does not simulate."""
        keys = {"launches_hang": self.launches_hang, "hosts_die_every": self.hosts_die_every_s}
        return [key for key, given in keys.items() if given]


def _per_s(every_s: float | None) -> float:
    return 0.0 if every_s is None else 1.0 / every_s
