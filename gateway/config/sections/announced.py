"""The config's section about load that is known in advance (docs/announced-load.md)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Self

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, AwareDatetime, Field, PrivateAttr, model_validator

from gateway.config.sections.calendars import occurrences_of
from gateway.config.sections.extras import why_missing
from gateway.config.words.fields import AnyPath, Finding, LongerThanZero, Rate, Section, Zone, refuse
from policies.announcement import Announcement, Occurrence

_ANY_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)


def _cron(text: str) -> str:
    try:
        CronSim(text, _ANY_TIME)
    except CronSimError as error:
        why = f"{text!r} is no cron expression ({error}); write five fields, as in 0 21 * * sat"
        raise ValueError(why) from error
    return text


class AnnouncedConfig(Section):
    """Load that will come at times which are known.

    Attributes:
        name: as ``spillway why`` shows it.
        every: a cron expression of five fields for when it begins.
        at: in place of ``every``: the time at which it begins once, with its zone.
        calendar: in place of ``every``: an iCalendar file whose events are the times. ``gateway: {watch: true}``
            follows it.
        zone: the time zone of ``every``, and of times in ``calendar`` without one, by its IANA name.
        lasts_s: how long it lasts; not with ``calendar``.
        rate: events per second at its height.
        factor: in place of ``rate``: its height as a multiple of the rate before.
    """

    name: str = Field(min_length=1, max_length=64, examples=["evening match"])
    every: Annotated[str, AfterValidator(_cron)] | None = Field(default=None, examples=["0 21 * * sat"])
    at: AwareDatetime | None = Field(default=None, examples=["2026-12-24T18:00:00+01:00"])
    calendar: AnyPath | None = Field(default=None, examples=["matches.ics"])
    zone: Zone = Field(default="UTC", examples=["Europe/Paris"])
    lasts_s: LongerThanZero | None = Field(default=None, alias="for", examples=["2h"])
    rate: Rate | None = Field(default=None, examples=["5000/s"])
    factor: float | None = Field(default=None, gt=1, le=1e6, examples=[4])
    _times: tuple[Occurrence, ...] = PrivateAttr(default=())

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        findings = [
            Finding(key=(names[0],), what=f"give exactly one of {', '.join(names)}")
            for names in (("every", "at", "calendar"), ("rate", "factor"))
            if sum(getattr(self, name) is not None for name in names) != 1
        ]
        if self.at is not None and "zone" in self.model_fields_set:
            findings.append(Finding(key=("zone",), what="is not used with at, which has its own zone; remove it"))
        if (self.lasts_s is None) != (self.calendar is not None):
            what = (
                "is missing; write how long it lasts, as in 2h" if self.lasts_s is None else "is not used with calendar"
            )
            findings.append(Finding(key=("for",), what=what))
        refuse(findings or self._calendar_findings())
        if self.at is not None and self.lasts_s is not None:
            begins_s = self.at.timestamp()
            self._times = (Occurrence(begins_s, begins_s + self.lasts_s),)
        return self

    def _calendar_findings(self) -> list[Finding]:
        if self.calendar is None:
            return []
        if (what := why_missing("calendars", "calendar")) is not None:
            return [Finding(key=("calendar",), what=what)]
        try:
            self._times = occurrences_of(self.calendar, self.zone, datetime.now(UTC))
        except ValueError as error:
            return [Finding(key=("calendar",), what=str(error))]
        return []

    @property
    def announcement(self) -> Announcement:
        """Return it as policies get it."""
        return Announcement(
            name=self.name,
            occurrences=self._times,
            every=self.every or "",
            zone=self.zone,
            lasts_s=self.lasts_s or 0.0,
            rate=self.rate,
            factor=self.factor or 1.0,
        )
