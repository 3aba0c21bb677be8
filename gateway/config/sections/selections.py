"""The config's section about selections: which event opens one, and which closes it (docs/selections.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from gateway.config.connectors.streams import column_problem
from gateway.config.words.fields import Finding, LongerThanZero, Section, refuse
from gateway.config.words.units import ms_of
from infra.messages import SelectionRule

_MOST = 10_000_000
_KEY_TYPES = ("STRING", "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG")


class OpensConfig(Section):
    """Which event opens a selection: exactly one of these.

    Attributes:
        every_s: the first event of each such stretch of the stream's time.
        every_events: each so-manieth event, beginning with the first.
        when: each event that meets this condition, in SQL.
    """

    every_s: LongerThanZero | None = Field(default=None, alias="every", examples=["10s"])
    every_events: int | None = Field(default=None, ge=1, le=_MOST, examples=[100])
    when: str | None = Field(default=None, min_length=1, examples=["shares >= 1000"])

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.every_s, self.every_events, self.when].count(None) != 2:
            refuse([Finding(key=(), what="give exactly one of every, every_events and when")])
        return self


class ClosesConfig(Section):
    """Which event closes a selection: the first for which one of these holds.

    Attributes:
        after_s: it comes more than this after the opening event; it is no part of the selection.
        events: it is the so-manieth of the selection.
        when: it comes after the opening event, and meets this condition, in SQL; it is part of the selection.
        same: the condition closes only selections whose opening event has the same value in this column.
    """

    after_s: LongerThanZero | None = Field(default=None, alias="after", examples=["60s"])
    events: int | None = Field(default=None, ge=1, le=_MOST, examples=[500])
    when: str | None = Field(default=None, min_length=1, examples=["kind = 'closed'"])
    same: str | None = Field(default=None, min_length=1, examples=["vehicle"])

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.after_s is None and self.events is None and self.when is None:
            refuse([Finding(key=(), what="give at least one of after, events and when: else no selection ends")])
        if self.same is not None and self.when is None:
            refuse([Finding(key=("same",), what="needs when, too: the condition that closes a selection")])
        return self


class SelectionsConfig(Section):
    """How the events of a query become selections, each of which the query processes by itself.

    Attributes:
        time: the TIMESTAMP column of the schema with the stream's time; needed if ``every`` or ``after`` is given.
        opens: which event opens a selection.
        closes: which event closes it.
        max_events: a selection has at most so many events; then it ends, whatever ``closes`` says.
        max_open: at most so many selections may be open; of more, those that opened first end without a result,
            each with a dead letter.
    """

    time: str | None = Field(default=None, examples=["at"])
    opens: OpensConfig
    closes: ClosesConfig
    max_events: int = Field(default=100_000, ge=1, le=_MOST)
    max_open: int = Field(default=100_000, ge=1, le=_MOST)

    @property
    def rule(self) -> SelectionRule:
        """Return it as engine hosts get it."""
        return SelectionRule(
            column=self.time or "",
            each_ms=ms_of(self.opens.every_s),
            each_events=self.opens.every_events or 0,
            after_ms=ms_of(self.closes.after_s),
            events=self.closes.events or 0,
            most_events=self.max_events,
            most_open=self.max_open,
            opens_when=self.opens.when or "",
            closes_when=self.closes.when or "",
            closes_same=self.closes.same or "",
        )

    def findings(self, columns: Mapping[str, str]) -> list[Finding]:
        """Return what is wrong with the column; ``columns`` are those of the schema, with their types."""
        timed = self.opens.every_s is not None or self.closes.after_s is not None
        if self.time is None:
            what = "is missing: every and after need the TIMESTAMP column with the stream's time" if timed else None
        else:
            what = column_problem(columns, self.time, "TIMESTAMP")
        found = [Finding(key=("selections", "time"), what=what)] if what else []
        same = self.closes.same
        if same is not None and (what := _key_problem(columns, same)):
            found.append(Finding(key=("selections", "closes", "same"), what=what))
        return found


def _key_problem(columns: Mapping[str, str], name: str) -> str | None:
    if name in columns and columns[name].split()[0] not in _KEY_TYPES:
        return f'column "{name}" is {columns[name]}, but must be STRING, BOOLEAN or a whole number'
    return column_problem(columns, name, "")
