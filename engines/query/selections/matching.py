"""Finds a pattern in each selection, in Spark: the events of a selection become an array, and steps filter it.

Each step takes the first event after that of the step before that meets its condition. Nothing is tried again if a
later step finds none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import MapType, StructType, VariantType

from engines.query.parts.heartbeats import Build, quoted
from engines.query.reasons import why
from engines.query.selections.bindings import Binding, BindingError, with_each
from engines.query.selections.stepsql import ConditionError, StepCondition, parsed
from infra.messages import POSITION, SELECTION, Pattern, PatternStep

MATCHES = "matches"
"""The view of the matches of a pattern: the selection, and for each step the event that it has found."""
OCCURRENCE = "occurrence"
"""The column that counts the results of one selection from 1, of ``aperiodic`` and ``periodic``."""
DUE = "due"
"""The column with the time of each result of ``periodic``."""
_EVENTS, _MATCH = "_events", "_match"


class StepError(ValueError):
    """A step of a pattern cannot be used; the message names it and says why."""


class Matcher:
    """A pattern over events with the columns ``SELECTION`` and ``POSITION``.

    Args:
        session: parses the conditions.
        pattern: what is looked for.
        time: the TIMESTAMP column of events; empty if no time counts.
        columns: of events.

    Raises:
        StepError: a condition cannot be read, or a column cannot be part of a match.
    """

    def __init__(self, session: SparkSession, pattern: Pattern, time: str, columns: StructType) -> None:
        self.pattern = pattern
        self._time = time
        self._columns = tuple(columns.names)
        if maps := [each.name for each in columns if isinstance(each.dataType, MapType | VariantType)]:
            raise StepError(f'a match cannot have column "{maps[0]}", which is a MAP or VARIANT: remove it from schema')
        self.conditions = {step.name: _parsed(session, step) for step in pattern.steps}
        for step in pattern.steps:
            self._check_names(step)

    def reads_others(self, step: PatternStep) -> bool:
        """Return whether the condition of a step reads the events of other steps."""
        return bool(self.conditions[step.name].others(step.name, self._columns))

    def _check_names(self, step: PatternStep) -> None:
        earlier = _readable(self.pattern, step)
        for name in self.conditions[step.name].others(step.name, self._columns):
            if name.lower() in earlier:
                continue
            steps = f", or of the steps {', '.join(earlier)}" if earlier else ""
            raise StepError(
                f'step {step.name}: its condition reads "{name}", which is no column of events '
                f"({', '.join(self._columns)}){steps}"
            )

    def over(self, build: Build) -> Build:
        """Return a function that finds the matches, and then builds a query over them."""

        def build_over_matches(events: DataFrame) -> DataFrame:
            return build(self.matches(events))

        return build_over_matches

    def matches(self, events: DataFrame) -> DataFrame:
        """Return the matches: ``SELECTION``, and for each step that is not ``none`` its event or its events."""
        if self.pattern.operator == "disjunction":
            return self._any_of(events)
        every: Mapping[str, Callable[[DataFrame], DataFrame]] = {
            "sequence": self._sequence,
            "conjunction": self._conjunction,
            "aperiodic": self._aperiodic,
            "periodic": self._periodic,
        }
        # One aggregation by selection; all that follows looks at one row.
        event = sf.struct(POSITION, *(quoted(name) for name in self._columns))
        arrays = events.groupBy(SELECTION).agg(sf.sort_array(sf.collect_list(event)).alias(_EVENTS))
        return every[self.pattern.operator](arrays)

    # ------------------------------------------------------------------------------------------------- the operators

    def _sequence(self, arrays: DataFrame) -> DataFrame:
        first, *steps = self.pattern.steps
        found, before, absent = [self._first(first)], first, list[PatternStep]()
        for step in steps:
            if step.times == "none":
                absent.append(step)
                continue
            found.append(self._next(step, f"_e.{POSITION} > {_first(before)}{self._in_time(first)}"))
            if before.times == "many":
                found.append(Binding(before, f"filter({quoted(before.name)}, _e -> _e.{POSITION} < {_first(step)})"))
            between = f"_e.{POSITION} > {_last(before)} AND _e.{POSITION} < {_first(step)}"
            found += [self._without(each, between) for each in absent]
            before, absent = step, []
        found += [self._without(each, self._afterwards(before, each)) for each in absent]
        return self._results(arrays, found, [step for step in self.pattern.steps if step.times != "none"])

    def _conjunction(self, arrays: DataFrame) -> DataFrame:
        found = [self._next(step, "TRUE") for step in self.pattern.steps]
        positions = ", ".join(map(_first, self.pattern.steps))
        # The opening event is one of the match; else an earlier selection has the same match.
        found.append(Binding(self.pattern.steps[-1], where=f"least({positions}) = get({_EVENTS}, 0).{POSITION}"))
        return self._results(arrays, found, self.pattern.steps)

    def _any_of(self, events: DataFrame) -> DataFrame:
        steps, found = self.pattern.steps, events
        for step in steps:
            found = found.withColumn(step.name, sf.struct(*(quoted(name) for name in self._columns)))
        for step in steps:
            found = _naming(step, found.withColumn, f"_is_{step.name}", sf.expr(self._condition(step, step.name)))
        found = found.where(
            reduce(Column.__or__, (sf.coalesce(sf.col(f"_is_{step.name}"), sf.lit(False)) for step in steps))
        )
        for step in steps:
            found = found.withColumn(step.name, sf.when(sf.col(f"_is_{step.name}"), sf.col(quoted(step.name))))
        return found.select(SELECTION, *(quoted(step.name) for step in steps))

    def _aperiodic(self, arrays: DataFrame) -> DataFrame:
        begin, each, until = self.pattern.steps
        inside = f"_e.{POSITION} > {_first(begin)} AND {_is_before(until)}"
        found = [self._first(begin), self._end(begin, until), self._next(each, inside)]
        one = f"named_struct('{begin.name}', {quoted(begin.name)}, '{each.name}', _x, '{OCCURRENCE}', _i + 1L)"
        results = f"transform({quoted(each.name)}, (_x, _i) -> {one})"
        return self._each_result(arrays, found, results, (begin, each), OCCURRENCE)

    def _periodic(self, arrays: DataFrame) -> DataFrame:
        begin, until = self.pattern.steps
        found = [self._first(begin), self._end(begin, until)]
        time, every = quoted(self._time), _seconds(self.pattern.every_ms)
        begun, limit = f"{quoted(begin.name)}.{time}", _seconds(self.pattern.within_ms)
        # A result is due before the closing event comes, and in any case within the pattern's time.
        end = f"least({quoted(until.name)}.{time} - INTERVAL '0.000001' SECOND, {begun} + {limit})"
        dues = f"CASE WHEN {end} >= {begun} + {every} THEN sequence({begun} + {every}, {end}, {every}) END"
        one = f"named_struct('{begin.name}', {quoted(begin.name)}, '{DUE}', _x, '{OCCURRENCE}', _i + 1L)"
        return self._each_result(arrays, found, f"transform({dues}, (_x, _i) -> {one})", (begin,), OCCURRENCE, DUE)

    # ------------------------------------------------------------------------------------------------------- the steps

    def _first(self, first: PatternStep) -> Binding:
        """Return the first event, if it really meets the condition: the gateway may evaluate a part of it."""
        return Binding(first, f"get({_EVENTS}, 0)", self._condition(first, first.name))

    def _end(self, begin: PatternStep, until: PatternStep) -> Binding:
        return Binding(until, f"get({self._chosen(until, f'_e.{POSITION} > {_first(begin)}')}, 0)")

    def _next(self, step: PatternStep, where: str) -> Binding:
        """Return the first event of a step, or all of ``many``; without any there is no match."""
        chosen, name = self._chosen(step, where), quoted(step.name)
        if step.times == "many":
            return Binding(step, chosen, f"size({name}) > 0")
        return Binding(step, f"get({chosen}, 0)", f"{name} IS NOT NULL")

    def _without(self, step: PatternStep, where: str) -> Binding:
        return Binding(step, where=f"size({self._chosen(step, where)}) = 0")

    def _chosen(self, step: PatternStep, where: str) -> str:
        return f"filter({_EVENTS}, _e -> {where} AND ({self._condition(step, '_e')}))"

    def _condition(self, step: PatternStep, event: str) -> str:
        return self.conditions[step.name].of(step.name, self._columns, event)

    def _in_time(self, first: PatternStep) -> str:
        """Return a condition on the time of a step, if selections last longer than the pattern itself."""
        if not self.pattern.steps[-1].for_ms or not self.pattern.within_ms:
            return ""
        time = quoted(self._time)
        return f" AND _e.{time} <= {quoted(first.name)}.{time} + {_seconds(self.pattern.within_ms)}"

    def _afterwards(self, before: PatternStep, absent: PatternStep) -> str:
        after = f"_e.{POSITION} > {_last(before)}"
        if not absent.for_ms:
            return after
        time = quoted(self._time)
        return f"{after} AND _e.{time} <= {_last(before, time)} + {_seconds(absent.for_ms)}"

    def _results(self, arrays: DataFrame, found: Sequence[Binding], steps: Sequence[PatternStep]) -> DataFrame:
        """Return a row with the events of the steps for each selection that has a match."""
        events = ", ".join(f"'{step.name}', {quoted(step.name)}" for step in steps)
        return self._each_result(arrays, found, f"array(named_struct({events}))", steps)

    def _each_result(
        self, arrays: DataFrame, found: Sequence[Binding], results: str, steps: Sequence[PatternStep], *others: str
    ) -> DataFrame:
        """Return a row for each of some results; ``others`` are their columns beside the events of steps."""
        try:
            rows = with_each(arrays, SELECTION, found, results, _MATCH)
        except BindingError as error:
            raise StepError(str(error)) from error
        columns = [sf.col(f"{_MATCH}.{name}") for name in others]
        for step in steps:
            event = sf.col(f"{_MATCH}.{quoted(step.name)}")
            columns.append(_event(event, many=step.times == "many" and not others).alias(step.name))
        return rows.select(SELECTION, *columns)


def _event(event: Column, *, many: bool) -> Column:
    """Return an event, or an array of them, without its position."""
    return sf.transform(event, lambda one: one.dropFields(POSITION)) if many else event.dropFields(POSITION)


def _readable(pattern: Pattern, step: PatternStep) -> tuple[str, ...]:
    """Return the steps whose events are known when the condition of a step is evaluated, in lower case."""
    before = pattern.steps[: pattern.steps.index(step)]
    if pattern.operator == "disjunction":
        return ()
    if pattern.operator in ("aperiodic", "periodic"):
        before = before[:1]
    elif before and before[-1].times == "many":
        # Which of its events belong to it is known only when this step has found its own.
        before = before[:-1]
    return tuple(each.name.lower() for each in before if each.times != "none")


def _first(step: PatternStep, field: str = POSITION) -> str:
    """Return a field of the first event of a step."""
    name = quoted(step.name)
    return f"get({name}, 0).{field}" if step.times == "many" else f"{name}.{field}"


def _last(step: PatternStep, field: str = POSITION) -> str:
    """Return a field of the last event of a step."""
    name = quoted(step.name)
    return f"get({name}, size({name}) - 1).{field}" if step.times == "many" else f"{name}.{field}"


def _is_before(until: PatternStep) -> str:
    return f"({quoted(until.name)} IS NULL OR _e.{POSITION} < {_first(until)})"


def _seconds(ms: int) -> str:
    return f"INTERVAL '{ms // 1000}.{ms % 1000:03}' SECOND"


def _parsed(session: SparkSession, step: PatternStep) -> StepCondition:
    try:
        return parsed(session, step.when)
    except ConditionError as error:
        raise StepError(f"step {step.name}: {error}") from error


def _naming(step: PatternStep, apply: Callable[..., DataFrame], *args: str | Column) -> DataFrame:
    """Return ``apply(*args)``, which has the condition of a step in it; an error names the step."""
    try:
        return apply(*args)
    except PySparkException as error:
        raise StepError(f"step {step.name}: {why(error)}") from error
