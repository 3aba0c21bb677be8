"""Queries of all kinds over one stream of events, each with the class and the keys that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

Query: TypeAlias = str | Callable[[DataFrame], DataFrame]

DDL = (
    "id STRING, customer STRING, shop INT, amount INT, price DOUBLE, total DECIMAL(10,2), ok BOOLEAN, at TIMESTAMP, "
    "note STRING, tags ARRAY<STRING>, meta STRUCT<a: INT, b: STRING>"
)
STATIC = "(VALUES (1, 'a'), (2, 'b')) v(shop, name)"
WINDOW = "window(at, '1 minute')"


class Case(NamedTuple):
    """A query with its class and keys; ``runs`` is False if Spark runs it on streams only."""

    query: Query
    kind: str
    keys: tuple[str, ...] = ()
    runs: bool = True


def _groups(events: DataFrame) -> DataFrame:
    def count(key: tuple[str | None, ...], rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"customer": [key[0]], "n": [len(rows)]})

    return events.groupBy("customer").applyInPandas(count, "customer STRING, n BIGINT")


def _groups_of_two(events: DataFrame) -> DataFrame:
    def total(key: tuple[object, ...], rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"shop": [key[1]], "total": [int(rows["amount"].fillna(0).sum())]})

    return events.groupBy("customer", "shop").applyInPandas(total, "shop INT, total BIGINT")


def _groups_of_an_expression(events: DataFrame) -> DataFrame:
    def count(rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"n": [len(rows)]})

    return events.groupBy(F.upper("customer")).applyInPandas(count, "n BIGINT")


def _batches(events: DataFrame) -> DataFrame:
    def same(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from batches

    return events.select("id", "amount").mapInPandas(same, "id STRING, amount INT")


def _cogrouped(events: DataFrame) -> DataFrame:
    def both(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"n": [len(left) + len(right)]})

    return events.groupBy("customer").cogroup(events.groupBy("customer")).applyInPandas(both, "n BIGINT")


def _latest(events: DataFrame) -> DataFrame:
    watermarked = events.withWatermark("at", "10 seconds")
    return watermarked.groupBy("customer", F.window("at", "1 minute")).agg(F.max("amount").alias("most"))


_STATELESS: tuple[Query, ...] = (
    "SELECT * FROM events",
    "SELECT id, upper(customer) AS c FROM events",
    "SELECT id FROM events WHERE amount > 3 AND customer LIKE 'c%'",
    "SELECT id, CASE WHEN ok THEN amount ELSE 0 END AS a FROM events",
    "SELECT id, tag FROM events LATERAL VIEW explode(tags) t AS tag",
    "SELECT id, pos, tag FROM events LATERAL VIEW OUTER posexplode(tags) t AS pos, tag",
    "SELECT meta.a, meta.b FROM events",
    "SELECT id, size(tags) AS n FROM events WHERE array_contains(tags, 'x')",
    "SELECT id, transform(tags, t -> upper(t)) AS tags FROM events",
    "SELECT id, date_trunc('hour', at) AS hour FROM events",
    f"SELECT id, name FROM events JOIN {STATIC} USING (shop)",
    f"SELECT id, name FROM events LEFT JOIN {STATIC} USING (shop)",
    f"SELECT id FROM events LEFT SEMI JOIN {STATIC} USING (shop)",
    f"SELECT id FROM events LEFT ANTI JOIN {STATIC} USING (shop)",
    "WITH t AS (SELECT id, amount FROM events) SELECT id, amount * 2 AS a FROM t WHERE amount < 9",
    "SELECT id FROM events WHERE ok UNION ALL SELECT note FROM events WHERE NOT ok",
    "SELECT id, sha2(note, 256) AS hash FROM events",
    "SELECT id, regexp_replace(note, 'a', 'b') AS note FROM events",
    "SELECT id, named_struct('c', customer, 's', shop) AS s FROM events",
    "SELECT id, get_json_object(note, '$.a') AS a FROM events",
    lambda events: events.select("id", (F.col("amount") + 1).alias("a")).where("a > 2"),
    lambda events: events.withColumn("tag", F.explode("tags")).drop("tags"),
    lambda events: events.na.fill({"note": "?"}).select("id", "note"),
)

_KEYED: dict[Query, tuple[str, ...]] = {
    "SELECT customer, count(*) AS n FROM events GROUP BY customer": ("customer",),
    "SELECT customer, shop, sum(amount) AS s FROM events GROUP BY customer, shop": ("customer", "shop"),
    "SELECT customer, shop, sum(amount) AS s FROM events GROUP BY ALL": ("customer", "shop"),
    "SELECT customer, max(amount) AS m FROM events GROUP BY 1": ("customer",),
    "SELECT count(*) AS n FROM events GROUP BY shop": ("shop",),
    "SELECT total, count(*) AS n FROM events GROUP BY total": ("total",),
    "SELECT ok, min(amount) AS m FROM events GROUP BY ok": ("ok",),
    "SELECT at, count(*) AS n FROM events GROUP BY at": ("at",),
    "SELECT customer, price, count(*) AS n FROM events GROUP BY customer, price": ("customer",),
    "SELECT customer, tags, count(*) AS n FROM events GROUP BY customer, tags": ("customer",),
    "SELECT customer, meta, count(*) AS n FROM events GROUP BY customer, meta": ("customer",),
    "SELECT customer, upper(note) AS u, count(*) AS n FROM events GROUP BY customer, upper(note)": ("customer",),
    "SELECT shop, amount % 10 AS d, count(*) AS n FROM events GROUP BY shop, amount % 10": ("shop",),
    "SELECT customer, 'x' AS x, count(*) AS n FROM events GROUP BY customer, 'x'": ("customer",),
    "SELECT customer, count(*) AS n FROM events WHERE amount > 2 GROUP BY customer HAVING count(*) > 1": ("customer",),
    "SELECT customer, count(DISTINCT shop) AS n FROM events GROUP BY customer": ("customer",),
    "SELECT customer, sum(amount) FILTER (WHERE ok) AS s FROM events GROUP BY customer": ("customer",),
    "SELECT customer, array_sort(collect_set(shop)) AS shops FROM events GROUP BY customer": ("customer",),
    "SELECT customer, max_by(id, struct(amount, id)) AS id FROM events GROUP BY customer": ("customer",),
    "SELECT customer, approx_count_distinct(id) AS n FROM events GROUP BY customer": ("customer",),
    "SELECT customer, percentile(amount, 0.5) AS p FROM events GROUP BY customer": ("customer",),
    f"SELECT customer, {WINDOW}.start AS s, avg(amount) AS a FROM events GROUP BY customer, {WINDOW}": ("customer",),
    "SELECT customer, window(at, '1 minute', '20 seconds').end AS e, count(*) AS n FROM events "
    "GROUP BY customer, window(at, '1 minute', '20 seconds')": ("customer",),
    "SELECT customer, session_window(at, '30 seconds').start AS s, count(*) AS n FROM events "
    "GROUP BY customer, session_window(at, '30 seconds')": ("customer",),
    "SELECT DISTINCT customer FROM events": ("customer",),
    "SELECT DISTINCT customer, shop FROM events": ("customer", "shop"),
    "SELECT DISTINCT customer, amount + 1 AS a FROM events": ("customer",),
    "SELECT DISTINCT * FROM events": ("id", "customer", "shop", "amount", "total", "ok", "at", "note"),
    "SELECT c, sum(a) AS s FROM (SELECT customer AS c, amount AS a FROM events) GROUP BY c": ("customer",),
    "SELECT c AS customer, n FROM (SELECT shop AS c, count(*) AS n FROM events GROUP BY shop)": ("shop",),
    "SELECT customer, max(n) AS m FROM (SELECT customer, shop, count(*) AS n FROM events GROUP BY customer, shop) "
    "GROUP BY customer": ("customer",),
    "SELECT shop, sum(n) AS s FROM (SELECT customer, shop, count(*) AS n FROM events GROUP BY customer, shop) "
    "GROUP BY shop": ("shop",),
    "SELECT customer, n, count(*) AS c FROM (SELECT customer, shop, count(*) AS n FROM events GROUP BY ALL) "
    "GROUP BY customer, n": ("customer",),
    "SELECT DISTINCT customer, n FROM (SELECT customer, shop, count(*) AS n FROM events GROUP BY ALL)": ("customer",),
    "WITH t AS (SELECT customer, amount FROM events) SELECT customer, avg(amount) AS a FROM t GROUP BY customer": (
        "customer",
    ),
    "WITH a AS (SELECT customer, shop, amount FROM events), b AS (SELECT shop AS s, sum(amount) AS n FROM a GROUP BY "
    "shop) SELECT s, n FROM b WHERE n > 3": ("shop",),
    "SELECT customer, shop, count(*) AS n FROM events GROUP BY GROUPING SETS ((customer, shop), (customer))": (
        "customer",
    ),
    "SELECT id, row_number() OVER (PARTITION BY customer ORDER BY at, id) AS r FROM events": ("customer",),
    "SELECT id, lag(amount) OVER (PARTITION BY customer, shop ORDER BY at, id) AS l FROM events": ("customer", "shop"),
    "SELECT id, rank() OVER (PARTITION BY customer ORDER BY at) AS r, sum(amount) OVER (PARTITION BY customer, shop) "
    "AS s FROM events": ("customer",),
    "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY shop ORDER BY amount DESC, id) AS r FROM events) "
    "WHERE r <= 3": ("shop",),
    "SELECT customer, tag, count(*) AS n FROM events LATERAL VIEW explode(tags) t AS tag GROUP BY customer, tag": (
        "customer",
    ),
    "SELECT a.id, b.id AS other FROM events a JOIN events b ON a.customer = b.customer AND a.at < b.at": ("customer",),
    "SELECT a.id, b.id AS other FROM events a JOIN events b ON a.customer = b.customer AND a.shop = b.shop": (
        "customer",
        "shop",
    ),
    "SELECT a.id, b.id AS other FROM events a LEFT JOIN events b ON a.customer = b.customer AND b.amount > 8": (
        "customer",
    ),
    "SELECT a.id, b.id AS other FROM (SELECT * FROM events WHERE ok) a FULL OUTER JOIN (SELECT * FROM events WHERE "
    "amount > 4) b ON a.shop = b.shop": ("shop",),
    "SELECT a.id FROM events a LEFT SEMI JOIN events b ON a.customer = b.customer AND b.amount > 5": ("customer",),
    "SELECT a.id FROM events a LEFT ANTI JOIN events b ON a.customer = b.customer AND b.amount > 5": ("customer",),
    "SELECT a.customer, count(*) AS n FROM events a LEFT JOIN events b ON a.customer = b.customer GROUP BY "
    "a.customer": ("customer",),
    "SELECT b.customer, count(*) AS n FROM events a RIGHT JOIN events b ON a.customer = b.customer GROUP BY "
    "b.customer": ("customer",),
    "SELECT a.id, b.id AS other FROM events a JOIN events b ON a.customer <=> b.customer AND a.id < b.id": (
        "customer",
    ),
    lambda events: events.groupBy("customer").count(): ("customer",),
    lambda events: events.groupBy("customer", "shop").agg(F.sum("amount").alias("s")): ("customer", "shop"),
    lambda events: events.dropDuplicates(["customer", "shop"]).select("customer", "shop"): ("customer", "shop"),
    lambda events: events.dropDuplicates(["customer"]).select("customer").distinct(): ("customer",),
    lambda events: events.withColumn("k", F.col("customer")).groupBy("k").agg(F.max("amount").alias("m")): (
        "customer",
    ),
    lambda events: events.repartition(3).groupBy("shop").count(): ("shop",),
    _groups: ("customer",),
    _groups_of_two: ("customer", "shop"),
    _latest: ("customer",),
}

_WHOLE: tuple[Query, ...] = (
    "SELECT count(*) AS n FROM events",
    "SELECT max(amount) AS m, min(amount) AS n FROM events",
    f"SELECT {WINDOW}.start AS s, count(*) AS n FROM events GROUP BY {WINDOW}",
    (
        "SELECT session_window(at, '30 seconds').start AS s, count(*) AS n FROM events GROUP BY "
        "session_window(at, '30 seconds')"
    ),
    "SELECT customer, first(id) AS id FROM events GROUP BY customer",
    "SELECT customer, any_value(id) AS id FROM events GROUP BY customer",
    "SELECT customer, collect_list(id) AS ids FROM events GROUP BY customer",
    "SELECT customer, listagg(id) AS ids FROM events GROUP BY customer",
    "SELECT customer, mode(note) AS m FROM events GROUP BY customer",
    "SELECT upper(customer) AS c, count(*) AS n FROM events GROUP BY upper(customer)",
    "SELECT meta.a, count(*) AS n FROM events GROUP BY meta.a",
    "SELECT meta, count(*) AS n FROM events GROUP BY meta",
    "SELECT price, count(*) AS n FROM events GROUP BY price",
    "SELECT tags, count(*) AS n FROM events GROUP BY tags",
    "SELECT CAST(shop AS STRING) AS s, count(*) AS n FROM events GROUP BY CAST(shop AS STRING)",
    "SELECT CAST(at AS DATE) AS d, count(*) AS n FROM events GROUP BY CAST(at AS DATE)",
    "SELECT coalesce(customer, note) AS c, count(*) AS n FROM events GROUP BY coalesce(customer, note)",
    "SELECT tag, count(*) AS n FROM events LATERAL VIEW explode(tags) t AS tag GROUP BY tag",
    "SELECT max(n) AS m FROM (SELECT customer, count(*) AS n FROM events GROUP BY customer)",
    "SELECT n, count(*) AS c FROM (SELECT customer, count(*) AS n FROM events GROUP BY customer) GROUP BY n",
    (
        "SELECT shop, count(*) AS n FROM (SELECT DISTINCT customer, amount, shop FROM events) t JOIN (SELECT shop AS "
        "s, count(*) AS c FROM events GROUP BY shop) u ON t.amount = u.s GROUP BY shop"
    ),
    "SELECT customer, shop, count(*) AS n FROM events GROUP BY ROLLUP (customer, shop)",
    "SELECT customer, shop, count(*) AS n FROM events GROUP BY CUBE (customer, shop)",
    "SELECT customer, shop, count(*) AS n FROM events GROUP BY GROUPING SETS ((customer), (shop))",
    "SELECT id, row_number() OVER (ORDER BY at, id) AS r FROM events",
    (
        "SELECT id, sum(amount) OVER (PARTITION BY customer ORDER BY at, id) AS s, sum(amount) OVER (PARTITION BY shop "
        "ORDER BY at, id) AS t FROM events"
    ),
    "SELECT id FROM events ORDER BY amount",
    "SELECT id FROM events LIMIT 5",
    "SELECT customer, count(*) AS n FROM events GROUP BY customer ORDER BY n DESC LIMIT 3",
    (
        "SELECT customer, count(*) AS n FROM (SELECT customer FROM events UNION ALL SELECT note FROM events) GROUP BY "
        "customer"
    ),
    "SELECT customer FROM events INTERSECT SELECT note FROM events",
    "SELECT customer FROM events EXCEPT SELECT note FROM events",
    "SELECT a.id, b.id AS other FROM events a JOIN events b ON a.amount > b.amount",
    "SELECT a.id, b.id AS other FROM events a JOIN events b ON a.customer = b.note",
    "SELECT a.id, b.id AS other FROM events a CROSS JOIN events b",
    "SELECT b.customer, count(*) AS n FROM events a LEFT JOIN events b ON a.customer = b.customer GROUP BY b.customer",
    "SELECT a.id, b.id AS other FROM events a JOIN events b ON a.customer = b.customer OR a.shop = b.shop",
    "SELECT id FROM events WHERE amount > (SELECT avg(amount) FROM events)",
    "SELECT id FROM events e WHERE EXISTS (SELECT 1 FROM events b WHERE b.customer = e.customer AND b.ok)",
    "SELECT id FROM events WHERE customer IN (SELECT customer FROM events WHERE amount > 8)",
    "SELECT customer, count(*) AS n FROM events TABLESAMPLE (50 PERCENT) GROUP BY customer",
    "SELECT customer, count(*) AS n FROM events WHERE rand() < 0.5 GROUP BY customer",
    "SELECT customer, max(current_timestamp()) AS m FROM events GROUP BY customer",
    "SELECT customer, uuid() AS u, count(*) AS n FROM events GROUP BY customer",
    f"SELECT name, count(*) AS n FROM events JOIN {STATIC} USING (shop) GROUP BY name",
    f"SELECT customer, count(*) AS n FROM events JOIN {STATIC} USING (shop) GROUP BY customer",
    lambda events: events.groupBy(F.lower("customer")).count(),
    lambda events: events.groupBy().agg(F.sum("amount").alias("s")),
    _groups_of_an_expression,
    _batches,
)

CORPUS: tuple[Case, ...] = (
    *(Case(query, "stateless") for query in _STATELESS),
    *(Case(query, "keyed", keys) for query, keys in _KEYED.items()),
    *(Case(query, "whole") for query in _WHOLE),
    Case(
        lambda events: events.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["customer"]),
        "keyed",
        ("customer",),
        runs=False,
    ),
    Case(_cogrouped, "whole", runs=False),
)


def words(case: Case) -> str:
    """The query as text, for people."""
    return case.query if isinstance(case.query, str) else getattr(case.query, "__name__", "a function")
