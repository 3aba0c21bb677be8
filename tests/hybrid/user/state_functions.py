"""Queries as users write them in Python, with state of their own for each key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    ValueState,
)

LATENESS = "10 seconds"
TOTALS = "id STRING, total BIGINT"
BEST = 3


def _narrow(events: DataFrame) -> DataFrame:
    return events.select("id", F.coalesce("customer", F.lit("?")).alias("customer"), "shop", "amount", "at")


class _Sums(StatefulProcessor):
    """Sums by rows."""

    _total: ValueState

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        (total,) = self._total.get() or (0,)
        for row in rows:
            total += row["amount"]
            yield Row(id=row["id"], total=total)
        self._total.update((total,))

    def close(self) -> None:
        pass


class _PandasSums(StatefulProcessor):
    """Sums by frames of pandas."""

    _total: ValueState

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        (total,) = self._total.get() or (0,)
        for frame in rows:
            totals = total + frame["amount"].cumsum()
            total = int(totals.iloc[-1])
            yield pd.DataFrame({"id": frame["id"], "total": totals})
        self._total.update((total,))

    def close(self) -> None:
        pass


class _Best(StatefulProcessor):
    """The largest amounts so far, as a list, whenever they change."""

    _best: ListState

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._best = handle.getListState("best", "amount BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        before = [int(amount) for (amount,) in self._best.get()]
        here = [int(amount) for frame in rows for amount in frame["amount"]]
        best = sorted(before + here, reverse=True)[:BEST]
        if best != before:
            self._best.put([(amount,) for amount in best])
            yield pd.DataFrame({"customer": [key[0]], "best": [",".join(map(str, best))]})

    def close(self) -> None:
        pass


class _Shops(StatefulProcessor):
    """How often each customer was in each shop, as a map."""

    _visits: MapState

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._visits = handle.getMapState("visits", "shop INT", "visits INT")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        for frame in rows:
            for shop in frame["shop"].dropna().astype(int):
                (visits,) = self._visits.getValue((shop,)) or (0,)
                self._visits.updateValue((shop,), (visits + 1,))
        held = sorted((shop, visits) for (shop,), (visits,) in self._visits.iterator())
        yield pd.DataFrame({"customer": [key[0]], "visits": [str(held)]})

    def close(self) -> None:
        pass


class _Silence(StatefulProcessor):
    """Says when a key had no event for 40 seconds of event time, by a timer."""

    _seen: ValueState
    _handle: StatefulProcessorHandle

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._seen = handle.getValueState("seen", "at_ms BIGINT, events BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        at_ms, events = self._seen.get() or (0, 0)
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        for frame in rows:
            at_ms = max(at_ms, *(int(at.timestamp() * 1000) for at in frame["at"]))
            events += len(frame)
        self._handle.registerTimer(at_ms + 40_000)
        self._seen.update((at_ms, events))
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        at_ms, events = self._seen.get() or (0, 0)
        self._seen.clear()
        yield pd.DataFrame({"customer": [key[0]], "at_ms": [at_ms], "events": [events]})

    def close(self) -> None:
        pass


class _Alarm(StatefulProcessor):
    """Answers each key a second after its events, by a timer of the machine's clock."""

    _handle: StatefulProcessorHandle

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        for _ in rows:
            self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1_000)
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        yield pd.DataFrame({"customer": [key[0]]})

    def close(self) -> None:
        pass


class _Forgetful(StatefulProcessor):
    """Counts with a value that is forgotten after an hour of the machine's clock."""

    _count: ValueState

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n BIGINT", ttlDurationMs=3_600_000)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        (count,) = self._count.get() or (0,)
        count += sum(len(frame) for frame in rows)
        self._count.update((count,))
        yield pd.DataFrame({"customer": [key[0]], "n": [count]})

    def close(self) -> None:
        pass


def _pandas_state(events: DataFrame, processor: StatefulProcessor, ddl: str, time_mode: str = "None") -> DataFrame:
    return events.groupBy("customer").transformWithStateInPandas(
        statefulProcessor=processor, outputStructType=ddl, outputMode="append", timeMode=time_mode
    )


def running_sums(events: DataFrame) -> DataFrame:
    return (
        _narrow(events)
        .groupBy("customer")
        .transformWithState(statefulProcessor=_Sums(), outputStructType=TOTALS, outputMode="append", timeMode="None")
    )


def running_sum_of_all(events: DataFrame) -> DataFrame:
    keyed = _narrow(events).withColumn("all", F.lit(0)).groupBy("all")
    return keyed.transformWithState(
        statefulProcessor=_Sums(), outputStructType=TOTALS, outputMode="append", timeMode="None"
    )


def running_sums_in_pandas(events: DataFrame) -> DataFrame:
    return _pandas_state(_narrow(events), _PandasSums(), TOTALS)


def best_in_pandas(events: DataFrame) -> DataFrame:
    return _pandas_state(_narrow(events), _Best(), "customer STRING, best STRING")


def visits_in_pandas(events: DataFrame) -> DataFrame:
    return _pandas_state(_narrow(events), _Shops(), "customer STRING, visits STRING")


def silence_in_pandas(events: DataFrame) -> DataFrame:
    timed = _narrow(events.withWatermark("at", LATENESS))
    return _pandas_state(timed, _Silence(), "customer STRING, at_ms BIGINT, events BIGINT", "EventTime")


def alarms_in_pandas(events: DataFrame) -> DataFrame:
    return _pandas_state(_narrow(events), _Alarm(), "customer STRING", "ProcessingTime")


def forgotten_in_pandas(events: DataFrame) -> DataFrame:
    return _pandas_state(_narrow(events), _Forgetful(), "customer STRING, n BIGINT", "ProcessingTime")


def sums_of_what_is_kept_once(events: DataFrame) -> DataFrame:
    once = _narrow(events.withWatermark("at", LATENESS)).dropDuplicates(["id", "at"])
    return _pandas_state(once, _PandasSums(), TOTALS)


def _counts(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    (count,) = state.getOption or (0,)
    count += sum(len(frame) for frame in frames)
    state.update((count,))
    yield pd.DataFrame({"customer": [key[0]], "n": [count]})


def running_counts(events: DataFrame) -> DataFrame:
    return (
        _narrow(events)
        .groupBy("customer")
        .applyInPandasWithState(_counts, "customer STRING, n BIGINT", "n BIGINT", "append", GroupStateTimeout.NoTimeout)
    )


def counts_until_it_is_late(events: DataFrame) -> DataFrame:
    return (
        _narrow(events)
        .groupBy("customer")
        .applyInPandasWithState(
            _counts, "customer STRING, n BIGINT", "n BIGINT", "append", GroupStateTimeout.ProcessingTimeTimeout
        )
    )


def _sessions(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    (count,) = state.getOption or (0,)
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"customer": [key[0]], "n": [count]})
        return
    newest_ms = 0
    for frame in frames:
        count += len(frame)
        newest_ms = max(newest_ms, *(int(at.timestamp() * 1000) for at in frame["at"]))
    state.update((count,))
    state.setTimeoutTimestamp(max(newest_ms, state.getCurrentWatermarkMs()) + 30_000)


def sessions_by_timeout(events: DataFrame) -> DataFrame:
    timed = _narrow(events.withWatermark("at", LATENESS))
    return timed.groupBy("customer").applyInPandasWithState(
        _sessions, "customer STRING, n BIGINT", "n BIGINT", "append", GroupStateTimeout.EventTimeTimeout
    )
