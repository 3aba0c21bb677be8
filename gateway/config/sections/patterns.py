"""The config's section about patterns: what is looked for in a stream, over several events (docs/patterns.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gateway.config.connectors.streams import column_problem
from gateway.config.words.fields import Finding, LongerThanZero, Section, StepName, refuse
from gateway.config.words.units import ms_of
from infra.messages import Pattern, PatternStep, SelectionRule

_MOST = 10_000_000
_OPERATORS = ("sequence", "conjunction", "disjunction", "aperiodic", "periodic")
RESERVED = ("selection", "occurrence", "due")
"""The columns of matches besides the steps."""


class PatternStepConfig(Section):
    """One step of a pattern.

    Attributes:
        name: of its event, in conditions of later steps and in the results.
        when: the condition on its event, in SQL. It may read events of earlier steps, as in ``first.price``.
    """

    name: StepName = Field(examples=["first"])
    when: str = Field(min_length=1, examples=["price > 1.01 * first.price"])

    def step(self, times: Literal["one", "many", "none"] = "one", for_s: float | None = None) -> PatternStep:
        """Return it as engine hosts get it."""
        return PatternStep(name=self.name, when=self.when, times=times, for_ms=ms_of(for_s))


class SequenceStepConfig(PatternStepConfig):
    """One step of a sequence.

    Attributes:
        times: one event; many: all events before the next step's event, at least one; none: no such event may come.
        for_s: of a last step with ``none``: how long after the step before no such event may come.
    """

    times: Literal["one", "many", "none"] = "one"
    for_s: LongerThanZero | None = Field(default=None, alias="for", examples=["10s"])


class AperiodicConfig(Section):
    """A result for each event that meets a condition, between two others.

    Attributes:
        begin: the event after which they count.
        each: these events.
        until: the event that ends it.
    """

    begin: PatternStepConfig = Field(alias="from")
    each: PatternStepConfig
    until: PatternStepConfig


class PeriodicConfig(Section):
    """A result at regular times between two events.

    Attributes:
        begin: the event from which the time counts.
        every_s: the time between two results.
        until: the event that ends it.
    """

    begin: PatternStepConfig = Field(alias="from")
    every_s: LongerThanZero = Field(alias="every", examples=["10s"])
    until: PatternStepConfig


Steps = Annotated[list[PatternStepConfig], Field(min_length=2, max_length=20)]


class PatternConfig(Section):
    """What is looked for over several events; give exactly one of the five operators.

    Attributes:
        time: the TIMESTAMP column of the schema with the stream's time; needed if ``within`` is given.
        within_s: the match ends at most so much later than its first event.
        events: or with the so-manieth event, counted from its first one.
        sequence: these events, one after the other.
        conjunction: these events, in any order.
        disjunction: one of these events.
        aperiodic: each event of a kind between two others.
        periodic: regular times between two events.
        consumption: ``restricted``: an event is part of one selection at most, so that none opens while another one is
            open.
        max_events: a selection has at most so many events; then it ends, whatever ``within`` says.
        max_open: at most so many selections may be open; of more, those that opened first end without a result,
            each with a dead letter.
    """

    time: str | None = Field(default=None, examples=["at"])
    within_s: LongerThanZero | None = Field(default=None, alias="within", examples=["60s"])
    events: int | None = Field(default=None, ge=1, le=_MOST, examples=[500])
    sequence: Annotated[list[SequenceStepConfig], Field(min_length=2, max_length=20)] | None = None
    conjunction: Steps | None = None
    disjunction: Steps | None = None
    aperiodic: AperiodicConfig | None = None
    periodic: PeriodicConfig | None = None
    consumption: Literal["unrestricted", "restricted"] = "unrestricted"
    max_events: int = Field(default=100_000, ge=1, le=_MOST)
    max_open: int = Field(default=100_000, ge=1, le=_MOST)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = [name for name in _OPERATORS if getattr(self, name) is not None]
        if len(given) != 1:
            refuse([Finding(key=(), what=f"give exactly one of {', '.join(_OPERATORS)}")])
        refuse([*self._length_findings(given[0]), *self._sequence_findings()])
        return self

    def _length_findings(self, operator: str) -> Iterator[Finding]:
        if operator == "disjunction":
            said = {"within": self.within_s, "events": self.events}
            for name, value in said.items():
                if value is not None:
                    yield Finding(key=(name,), what="a disjunction is one event: remove it")
        elif operator == "periodic" and self.within_s is None:
            yield Finding(key=("within",), what="is missing: else regular times have no end")
        elif self.within_s is None and self.events is None:
            yield Finding(key=(), what="give within, events, or both: else no selection ends")

    def _sequence_findings(self) -> Iterator[Finding]:
        steps = self.sequence or []
        for index, step in enumerate(steps):
            key = ("sequence", str(index))
            if index == 0 and step.times != "one":
                yield Finding(key=(*key, "times"), what="must be one: the first event of a match opens its selection")
            if step.for_s is not None and (step.times != "none" or index < len(steps) - 1):
                yield Finding(key=(*key, "for"), what="is for a last step with times: none; remove it")
            if step.for_s is not None and self.within_s is None:
                yield Finding(key=(*key, "for"), what="needs within, too: give it")

    @property
    def rule(self) -> SelectionRule:
        """Return it as engine hosts get it."""
        pattern = self.pattern
        alone = pattern.operator == "disjunction"
        return SelectionRule(
            column=self.time or "",
            each_ms=0,
            each_events=0,
            after_ms=pattern.within_ms + pattern.steps[-1].for_ms,
            events=1 if alone else self.events or 0,
            most_events=self.max_events,
            most_open=self.max_open,
            disjoint=self.consumption == "restricted",
            pattern=pattern,
        )

    @property
    def pattern(self) -> Pattern:
        """Return what is looked for in each selection."""
        within_ms = ms_of(self.within_s)
        if self.sequence is not None:
            steps = tuple(each.step(each.times, each.for_s) for each in self.sequence)
            return Pattern(operator="sequence", steps=steps, within_ms=within_ms)
        if (found := self.aperiodic) is not None:
            steps = (found.begin.step(), found.each.step("many"), found.until.step())
            return Pattern(operator="aperiodic", steps=steps, within_ms=within_ms)
        if (regular := self.periodic) is not None:
            steps = (regular.begin.step(), regular.until.step())
            return Pattern(operator="periodic", steps=steps, every_ms=ms_of(regular.every_s), within_ms=within_ms)
        if self.conjunction is not None:
            return Pattern(
                operator="conjunction", steps=tuple(each.step() for each in self.conjunction), within_ms=within_ms
            )
        return Pattern(operator="disjunction", steps=tuple(each.step() for each in self.disjunction or ()))

    def findings(self, columns: Mapping[str, str]) -> list[Finding]:
        """Return what does not fit the schema; ``columns`` are its columns, with their types."""
        found = [Finding(key=("pattern",), what=what) for what in self._name_problems(columns)]
        if self.time is None:
            what = "is missing: within needs the TIMESTAMP column with the stream's time" if self.within_s else None
        else:
            what = column_problem(columns, self.time, "TIMESTAMP")
        return [*found, Finding(key=("pattern", "time"), what=what)] if what else found

    def _name_problems(self, columns: Mapping[str, str]) -> Iterator[str]:
        taken = {name.lower(): "a column of schema" for name in columns}
        taken |= dict.fromkeys(RESERVED, "a column of the matches")
        for step in self.pattern.steps:
            if (other := taken.get(step.name.lower())) is not None:
                yield f"step {step.name} has the name of {other}: rename it"
            taken[step.name.lower()] = "another step"
