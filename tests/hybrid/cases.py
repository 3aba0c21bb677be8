"""The corpus: queries of all kinds, each with what a batch of the same events says about its results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from tests.engines.query_corpus import CORPUS as OF_CLASSES
from tests.engines.query_corpus import DDL as DDL_OF_CLASSES

DDL: Final = f"{DDL_OF_CLASSES}, sent TIMESTAMP"
LATENESS: Final = "10s"
WINDOW: Final = "window(at, '1 minute')"
KINDS: Final = (
    "filters and projections",
    "UDFs",
    "explode",
    "joins with tables",
    "tumbling windows",
    "sliding windows",
    "session windows",
    "several operators in a row",
    "joins of streams",
    "duplicates",
    "top-k and limits",
    "running aggregates",
    "transformWithState in pandas",
    "many rows at a time",
    "other aggregates",
    "subqueries and set operations",
    "depends on the machine",
    "protected fields",
)
# The first one that is found in a query says of which kind it is.
_KIND_BY_WORDS: Final = (
    (r"rand\(|current_|uuid|TABLESAMPLE|now\(\)|monotonically|input_file", "depends on the machine"),
    (r"EXISTS|\bIN \(SELECT|> \(SELECT|INTERSECT|EXCEPT", "subqueries and set operations"),
    (r"VALUES|JOIN shops", "joins with tables"),
    (r"JOIN", "joins of streams"),
    (r"session_window", "session windows"),
    (r"window\([^,()]+, '[^']+', '[^']+'\)", "sliding windows"),
    (r"window\(", "tumbling windows"),
    (r"LIMIT|ORDER BY|OVER", "top-k and limits"),
    (r"DISTINCT [^)]*FROM", "duplicates"),
    (r"GROUP BY|^SELECT (count|max)\(", "other aggregates"),
    (r"explode|inline|stack\(", "explode"),
    (r"", "filters and projections"),
)

Oracle = Literal["all", "not late", "on time", ""]


@dataclass(frozen=True)
class StreamCase:
    """A query over a stream.

    Attributes:
        name: names its folders and its query in the gateway.
        kind: one of ``KINDS``.
        sql: the query; empty if ``function`` is given.
        function: ``module:name`` in the folder ``user``.
        oracle: over which events a batch has the same rows: all, those that are not late, or of these those whose
            windows are closed at the end. Empty: none, since the rows depend on what came together.
        event_time: whether the config sets a watermark.
        more: further options of the query.
    """

    name: str
    kind: str
    sql: str = ""
    function: str = ""
    oracle: Oracle = ""
    event_time: bool = False
    more: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def text(self) -> str:
        """The query for people."""
        return self.sql or self.function


def kind_of(sql: str) -> str:
    """Return the kind of an SQL query."""
    return next(kind for words, kind in _KIND_BY_WORDS if re.search(words, sql))


_STATELESS: tuple[str, ...] = (
    "SELECT id, upper(trim(customer)) AS c, amount % 3 AS rest FROM events WHERE amount BETWEEN 2 AND 7",
    "SELECT id, tag FROM events LATERAL VIEW explode(tags) t AS tag WHERE tag = 'x' OR amount > 6",
    (
        "SELECT id, n, t FROM events LATERAL VIEW inline(array(named_struct('n', amount, 't', note), "
        "named_struct('n', shop, 't', customer))) v AS n, t"
    ),
    "SELECT id, named, value FROM events LATERAL VIEW stack(2, 'amount', amount, 'shop', shop) t AS named, value",
    "SELECT id, label FROM events JOIN shops USING (shop)",
    "SELECT id, amount, label FROM events LEFT JOIN shops USING (shop) WHERE amount > 1",
    "SELECT id FROM events LEFT ANTI JOIN shops USING (shop)",
    "SELECT id, e.shop FROM events e JOIN shops s ON e.shop <= s.shop",
    "SELECT id, price * amount AS due, CAST(total AS DOUBLE) AS total FROM events",
    "SELECT id, filter(tags, t -> t > 'x') AS tags, map_from_arrays(tags, tags)['x'] AS x FROM events",
)

_DEPENDS: tuple[str, ...] = (
    "SELECT id, rand() AS r FROM events",
    "SELECT id, current_timestamp() AS now FROM events",
    "SELECT id, uuid() AS u FROM events",
    "SELECT id, monotonically_increasing_id() AS n FROM events",
    "SELECT id, input_file_name() AS n FROM events",
    f"SELECT {WINDOW}.start AS s, count(*) AS n FROM events WHERE rand() < 0.5 GROUP BY {WINDOW}",
    f"SELECT {WINDOW}.start AS s, max(current_timestamp()) AS m FROM events GROUP BY {WINDOW}",
)

# What is final once a window is closed.
_WINDOWED: tuple[str, ...] = (
    f"SELECT {WINDOW}.start AS s, customer, sum(amount) AS n, avg(price) AS p FROM events GROUP BY {WINDOW}, customer",
    (
        f"SELECT {WINDOW}.start AS s, shop, sum(total) AS t, max_by(id, struct(amount, id)) AS id FROM events "
        f"GROUP BY {WINDOW}, shop"
    ),
    f"SELECT {WINDOW}.end AS e, customer, approx_count_distinct(shop) AS n FROM events GROUP BY {WINDOW}, customer",
    (
        f"SELECT {WINDOW}.start AS s, array_sort(collect_set(shop)) AS shops, array_sort(collect_list(amount)) AS a "
        f"FROM events GROUP BY {WINDOW}"
    ),
    (
        f"SELECT {WINDOW}.start AS s, customer, count(*) FILTER (WHERE ok) AS n FROM events "
        f"GROUP BY {WINDOW}, customer HAVING count(*) > 2"
    ),
    f"SELECT {WINDOW}.start AS s, percentile(amount, 0.5) AS p, count_if(ok) AS n FROM events GROUP BY {WINDOW}",
    (
        f"SELECT {WINDOW}.start AS s, tag, count(*) AS n FROM events LATERAL VIEW explode(tags) t AS tag "
        f"GROUP BY {WINDOW}, tag"
    ),
    (
        "SELECT window(at, '2 minutes', '30 seconds').start AS s, customer, count(*) AS n, min(amount) AS m "
        "FROM events GROUP BY window(at, '2 minutes', '30 seconds'), customer"
    ),
    (
        "SELECT window(at, '1 minute', '10 seconds').start AS s, sum(amount) AS n FROM events "
        "GROUP BY window(at, '1 minute', '10 seconds')"
    ),
    (
        "SELECT session_window(at, '15 seconds').start AS s, session_window(at, '15 seconds').end AS e, shop, "
        "sum(amount) AS n FROM events GROUP BY session_window(at, '15 seconds'), shop"
    ),
    (
        "SELECT session_window(at, '5 seconds').start AS s, customer, array_sort(collect_list(id)) AS ids FROM events "
        "GROUP BY session_window(at, '5 seconds'), customer"
    ),
    f"SELECT {WINDOW}.start AS s, label, sum(amount) AS n FROM events JOIN shops USING (shop) GROUP BY {WINDOW}, label",
    (
        f"SELECT {WINDOW}.start AS s, label, count(*) AS n FROM events LEFT JOIN shops USING (shop) "
        f"GROUP BY {WINDOW}, label"
    ),
    (
        f"SELECT {WINDOW}.start AS s, customer, slice(sort_array(collect_list(struct(amount, id)), false), 1, 3) "
        f"AS best FROM events GROUP BY {WINDOW}, customer"
    ),
    "SELECT DISTINCT at, customer FROM events",
    (
        f"WITH kept AS (SELECT at, shop, amount FROM events WHERE amount > 1) SELECT {WINDOW}.start AS s, shop, "
        f"max(amount) - min(amount) AS spread FROM kept GROUP BY {WINDOW}, shop"
    ),
    (
        "WITH small AS (SELECT window(at, '20 seconds') AS w, count(*) AS n FROM events "
        "GROUP BY window(at, '20 seconds')) SELECT window(window_time(w), '2 minutes').start AS s, max(n) AS most "
        "FROM small GROUP BY window(window_time(w), '2 minutes')"
    ),
)
_IN_A_ROW: Final = "window_time"
# The rows depend on the order, or on which rows came in one micro-batch.
_BY_ORDER: tuple[str, ...] = (
    f"SELECT {WINDOW}.start AS s, customer, first(id) AS f, last(id) AS l FROM events GROUP BY {WINDOW}, customer",
    f"SELECT {WINDOW}.start AS s, customer, collect_list(id) AS ids FROM events GROUP BY {WINDOW}, customer",
    f"SELECT {WINDOW}.start AS s, stddev(amount) AS d, corr(amount, price) AS c FROM events GROUP BY {WINDOW}",
    "SELECT id, amount FROM events LIMIT 20",
)

# Of `streaming_functions`, and of `state_functions`, by kind and by what a batch says.
_FUNCTIONS: Mapping[str, tuple[tuple[str, Oracle], ...]] = {
    "UDFs": (
        ("python_udf", "all"),
        ("udf_of_a_whole_row", "all"),
        ("udf_in_a_filter", "all"),
        ("pandas_udfs", "all"),
        ("udf_below_a_window", "on time"),
        ("udf_above_a_window", "on time"),
    ),
    "explode": (("udf_then_explode", "all"),),
    "tumbling windows": (("window_with_an_offset", "on time"),),
    "other aggregates": (("windows_of_grouped_pandas", "on time"),),
    "session windows": (("session_with_a_gap_of_its_own", "on time"),),
    "duplicates": (
        ("one_of_each_id", ""),
        ("one_of_each_id_and_time", ""),
        ("one_of_each_customer_within_the_watermark", ""),
    ),
    "joins of streams": (
        ("joined_in_time", "not late"),
        ("left_joined_in_time", ""),
        ("right_joined_in_time", ""),
        ("fully_joined_in_time", ""),
        ("semi_joined_in_time", "not late"),
        ("joined_without_time", "all"),
        ("joined_by_window", "not late"),
    ),
    "several operators in a row": (
        # Spark evaluates each half's condition below its watermark: one without any of the last events stands still.
        ("both_halves", ""),
        ("joined_by_two_clocks", ""),
        ("windows_of_windows", "on time"),
        ("deduped_then_windows", "on time"),
        ("deduped_within_the_watermark_then_windows", ""),
        ("joined_then_windows", "on time"),
        ("sessions_then_windows", "on time"),
        ("windows_three_deep", "on time"),
    ),
    "many rows at a time": (("mapped_in_pandas", "all"), ("grouped_in_pandas", "")),
    "depends on the machine": (
        ("nondeterministic_udf", ""),
        ("random_part_of_windows", ""),
        ("windows_with_the_time_of_day", ""),
        ("reads_a_file", ""),
        ("windows_over_a_file", ""),
    ),
}
_STATE_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "running aggregates": ("running_sums", "running_sum_of_all", "running_counts", "sessions_by_timeout"),
    "top-k and limits": ("best_in_pandas",),
    "transformWithState in pandas": ("running_sums_in_pandas", "visits_in_pandas", "silence_in_pandas"),
    "several operators in a row": ("sums_of_what_is_kept_once",),
    "depends on the machine": ("alarms_in_pandas", "forgotten_in_pandas", "counts_until_it_is_late"),
}
# A private field may not leave, and a state at home holds its values.
_PROTECTED: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("SELECT id, upper(customer) AS c FROM events", {"private": ["customer"]}),
    ("SELECT id, customer FROM events WHERE amount > 2", {"encrypt": ["customer"]}),
    ("SELECT id, amount FROM events WHERE customer LIKE 'c%'", {"tokenize": ["customer"]}),
    (f"SELECT {WINDOW}.start AS s, count(*) AS n FROM events GROUP BY {WINDOW}", {"private": ["customer"]}),
    (f"SELECT {WINDOW}.start AS s, customer FROM events GROUP BY {WINDOW}, customer", {"encrypt": ["customer"]}),
)


def _of_classes() -> list[StreamCase]:
    """Return the SQL queries of the corpus of classes. Spark refuses many of them over a stream."""
    found: list[StreamCase] = []
    for each in OF_CLASSES:
        if not isinstance(each.query, str):
            continue
        kind = kind_of(each.query)
        windowed = "window" in kind or each.query.startswith(("SELECT at,", "SELECT DISTINCT *"))
        oracle: Oracle = "on time" if windowed else "not late" if "a.at" in each.query else "all"
        if "LIMIT" in each.query or kind == "depends on the machine":
            oracle = ""
        found.append(StreamCase(f"class-{len(found):03}", kind, sql=each.query, oracle=oracle, event_time=True))
    return found


def _sql(name: str, queries: tuple[str, ...], oracle: Oracle, *, event_time: bool = True) -> list[StreamCase]:
    return [
        StreamCase(
            f"{name}-{number:02}",
            "several operators in a row" if _IN_A_ROW in sql else kind_of(sql),
            sql=sql,
            oracle=oracle,
            event_time=event_time,
        )
        for number, sql in enumerate(queries)
    ]


def _functions() -> list[StreamCase]:
    found = []
    for kind, functions in _FUNCTIONS.items():
        for name, oracle in functions:
            words = name.replace("_", "-")
            found.append(StreamCase(words, kind, function=f"streaming_functions:{name}", oracle=oracle))
    for kind, names in _STATE_FUNCTIONS.items():
        found += [StreamCase(name.replace("_", "-"), kind, function=f"state_functions:{name}") for name in names]
    return found


def _protected() -> list[StreamCase]:
    return [
        StreamCase(
            f"protected-{number}",
            "protected fields",
            sql=sql,
            oracle="on time" if "window" in sql else "all",
            event_time=True,
            more={"payload": payload},
        )
        for number, (sql, payload) in enumerate(_PROTECTED)
    ]


CASES: Final[tuple[StreamCase, ...]] = (
    *_sql("stateless", _STATELESS, "all"),
    *_sql("windowed", _WINDOWED, "on time"),
    *_sql("by-order", _BY_ORDER, ""),
    *_functions(),
    *_sql("depends", _DEPENDS, ""),
    *_protected(),
    *_of_classes(),
)
