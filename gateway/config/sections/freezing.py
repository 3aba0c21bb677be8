"""The config's section about times in which VMs are neither launched nor given back."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from gateway.config.words.fields import Section, TimeOfDay, Zone
from policies.vms.freezing import FreezeWindow

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class FreezeConfig(Section):
    """A time of the week in which no VM is launched or given back.

    Attributes:
        days: the days on which it begins.
        begin_s: the time of the day at which it begins.
        end_s: the time at which it ends; on the next day if it is not after ``from``.
        zone: the time zone of days and times, by its IANA name.
    """

    days: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = Field(
        default=_DAYS, examples=[["sat", "sun"]]
    )
    begin_s: TimeOfDay = Field(alias="from", examples=["22:00"])
    end_s: TimeOfDay = Field(alias="to", examples=["06:00"])
    zone: Zone = Field(default="UTC", examples=["Europe/Berlin"])

    @property
    def terms(self) -> FreezeWindow:
        """Return it as the scheduler gets it."""
        days = tuple(number for number, day in enumerate(_DAYS) if day in self.days)
        return FreezeWindow(days=days, begin_s=self.begin_s, end_s=self.end_s, zone=self.zone)
