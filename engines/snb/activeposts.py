"""Query 1 of SNB2016 as a query with state: the three active posts with the highest scores, whenever they change.

Time is that of the events. A row says what holds after all events of one time, and comes with the first event of a
later time. It is left out if it says the same as the row before it. All events meet in one rank: the query has no key.

The state is one value for each active post, and one for the present time and the last row. So it grows with the active
posts and not with the stream. ``transformWithState`` needs the RocksDB state store, which engine hosts use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import lit, timestamp_millis, unix_millis
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from engines.snb.scores import ActivePost, ActiveScores

BEST = 3
_PLACES = range(1, BEST + 1)
_TOP_DDL = ", ".join(
    f"top{place}_post BIGINT, top{place}_user STRING, top{place}_score INT, top{place}_commenters INT"
    for place in _PLACES
)
RESULT_DDL = f"at TIMESTAMP, {_TOP_DDL}"
_POST_DDL = (
    "at_ms BIGINT, user_id BIGINT, user STRING, comments ARRAY<BIGINT>, comments_ms ARRAY<BIGINT>, "
    "commenters ARRAY<BIGINT>"
)


def active_posts(events: DataFrame) -> DataFrame:
    """Return the top three active posts whenever they change, as ``RESULT_DDL``.

    Args:
        events: the columns of ``engines.snb.events.SCHEMA_DDL``, in the order of ``at``; a comment comes after what it
            replies to. The texts are not needed.
    """
    needed = events.select(
        *("number", unix_millis("at").alias("at_ms"), "kind", "id", "user_id", "user"),
        *("comment_replied", "post_commented", lit(0).alias("network")),
    )
    ranked = needed.groupBy("network").transformWithState(
        statefulProcessor=_Ranker(), outputStructType=f"at_ms BIGINT, {_TOP_DDL}", outputMode="append", timeMode="None"
    )
    return ranked.withColumn("at_ms", timestamp_millis("at_ms")).withColumnRenamed("at_ms", "at")


class _Ranker(StatefulProcessor):
    """Ranks the active posts (ESM, algorithm 1)."""

    _posts: MapState
    _clock: ValueState

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Ask Spark for the active posts, and for the present time with the last row as JSON."""
        self._posts = handle.getMapState("posts", "id BIGINT", _POST_DDL)
        self._clock = handle.getValueState("clock", "now_ms BIGINT, shown STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Yield the rows of all times that end in a micro-batch.

        Raises:
            ValueError: an event is older than one before it.
        """
        now_ms, shown = self._clock.get() or (None, "[]")
        scores = ActiveScores(now_ms or 0, self._kept())
        for row in sorted(rows, key=lambda row: row["number"]):
            if now_ms is not None and row["at_ms"] < now_ms:
                raise ValueError(f"event {row['number']} is {now_ms - row['at_ms']} ms older than one before it")
            if now_ms is not None and row["at_ms"] > now_ms:
                top = scores.top(BEST)
                last, shown = shown, json.dumps(top)
                if shown != last:
                    yield _row(now_ms, top)
            now_ms = row["at_ms"]
            scores.advance(now_ms)
            _apply(row, scores)
        self._keep(scores)
        self._clock.update((now_ms, shown))

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _kept(self) -> Iterator[tuple[int, ActivePost]]:
        if not self._posts.exists():
            return
        for (number,), (at_ms, user_id, user, comments, comments_ms, commenters) in self._posts.iterator():
            written_ms = dict(zip(comments, comments_ms, strict=True))
            yield number, ActivePost(at_ms, user_id, user, written_ms, set(commenters))

    def _keep(self, scores: ActiveScores) -> None:
        for number in sorted(scores.changed):
            post = scores.posts.get(number)
            if post is not None:
                comments, comments_ms = list(post.comments), list(post.comments.values())
                value = (post.at_ms, post.user_id, post.user, comments, comments_ms, sorted(post.commenters))
                self._posts.updateValue((number,), value)
            elif self._posts.containsKey((number,)):
                self._posts.removeKey((number,))


def _apply(row: Row, scores: ActiveScores) -> None:
    if row["kind"] == "post":
        scores.post(row["id"], row["user_id"], row["user"])
    elif row["kind"] == "comment":
        replied, commented = row["comment_replied"], row["post_commented"]
        scores.comment(row["id"], row["user_id"], replied=replied, commented=commented)


def _row(at_ms: int, top: list[tuple[int, str, int, int]]) -> Row:
    named: dict[str, Any] = {"at_ms": at_ms}
    for place in _PLACES:
        best = top[place - 1] if place <= len(top) else (None, None, None, None)
        names = (f"top{place}_post", f"top{place}_user", f"top{place}_score", f"top{place}_commenters")
        named |= dict(zip(names, best, strict=True))
    return Row(**named)
