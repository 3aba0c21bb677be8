"""Events from Kafka's records, and records from results, by Spark's own expressions: no Python touches a row.

Spark's ``from_json`` is more lenient than ``infra.rows``. What it would read differently fails the stream instead: then
the gateway reads that record, and decides (docs/data-path.md).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from infra.messages import NAME_HEADERS, NAME_OFFSET, NAME_PARTITION, NAME_TOPIC, NAMES, RecordFormat

_PLAIN: Final = (StringType, LongType, IntegerType, DoubleType, BooleanType)
_TEXTS: Final = (StringType, LongType, IntegerType, BooleanType)
_WRONG: Final = "_spillway_wrong"
PLAIN: Final = "_spillway_plain"
_MOST_DOUBLE: Final = 1.7976931348623157e308
_STRICT: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _WRONG,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_BEGINS_OBJECT: Final = r"^\s*\{"


def why_not(columns: StructType, results: StructType, form: RecordFormat, texts: Mapping[str, str]) -> str:
    """Return why Spark's expressions cannot do it exactly as the gateway does; empty if they can.

    Args:
        columns: of the events, with ``NAMES`` at their end.
        results: of the results, with ``NAMES`` at their end.
        form: of the records.
        texts: the columns that become the key or a header, by what they become.
    """
    if form.kind != "json" or form.strict:
        return f"its records are {form.kind}{' with drift: strict' if form.strict else ''}, not lenient JSON"
    for what, fields in (("schema", columns), ("results", results)):
        if wrong := next((field for field in fields if not isinstance(field.dataType, _PLAIN)), None):
            kind = wrong.dataType.simpleString()
            return f"column {wrong.name} of its {what} is {kind}, not text, a number or a boolean"
    if any(name in columns.names for name in ("_key", "_timestamp", "_headers", "_topic", "_partition", "_offset")):
        return "its schema has columns of the records' metadata"
    if results.names[-len(NAMES) :] != list(NAMES):
        return "its plan does not tell of which event a result is"
    for what, column in texts.items():
        found = next((field.dataType for field in results if field.name == column), None)
        if not isinstance(found, _TEXTS):
            return f"sink.{what} names {column}, which is not text, a whole number or a boolean"
    return ""


def events_of(records: DataFrame, columns: StructType) -> DataFrame:
    """Return the events of records of Kafka; a record that is none, or is not plainly one, fails the stream.

    Args:
        records: as Spark's Kafka source has them.
        columns: of the events, with ``NAMES`` at their end.
    """
    place = F.concat_ws("", F.lit("the record at "), NAME_TOPIC, F.lit("/"), NAME_PARTITION, F.lit("@"), NAME_OFFSET)
    refused = F.raise_error(F.concat(place, F.lit(" is no plain event")))
    # Each result has the offset, so that no record is left out of the check. Spark would evaluate the conditions of the
    # query first, and drop a record that meets none, but not before an expression that counts as random. (The optimizer
    # knows that rand() is not negative, but not that its double is not.)
    checked = F.when(F.col(PLAIN) & (2 * F.rand(0) >= 0), F.col(NAME_OFFSET)).otherwise(refused)
    return judged(records, columns).select(
        *(_column(name) for name in columns.names if name != NAME_OFFSET), checked.alias(NAME_OFFSET)
    )


def judged(records: DataFrame, columns: StructType) -> DataFrame:
    """Return the events of records, and in the column ``PLAIN`` whether the gateway would read each like this."""
    wanted = [field for field in columns if field.name not in NAMES]
    fields = [StructField(field.name, field.dataType) for field in wanted]
    text = F.col("value").cast("string")
    read = F.from_json(text, StructType([*fields, StructField(_WRONG, StringType())]), _STRICT)
    return records.select("topic", "partition", "offset", text.alias("text"), read.alias("read")).select(
        *(F.col("read").getField(field.name).alias(field.name) for field in wanted),
        F.col("topic").alias(NAME_TOPIC),
        F.col("partition").alias(NAME_PARTITION),
        F.col("offset").alias(NAME_OFFSET),
        _is_plain(wanted).alias(PLAIN),
    )


def _is_plain(wanted: list[StructField]) -> Column:
    text, read = F.col("text"), F.col("read")
    plain = text.isNotNull() & F.is_valid_utf8(text) & text.rlike(_BEGINS_OBJECT) & read.getField(_WRONG).isNull()
    # Spark ignores what follows the first value of a text. In an array, a word that nobody knows shows that the record
    # is one value: whatever follows that takes the word's place.
    word = secrets.token_hex(8)
    parsed = F.try_parse_json(F.concat(F.lit("["), text, F.lit(f',"{word}"]')))
    plain &= F.try_variant_get(parsed, "$[1]", "string") == word
    for field in wanted:
        value = read.getField(field.name)
        if isinstance(field.dataType, StringType):
            # Spark takes any value as text.
            kind = F.schema_of_variant(F.try_variant_get(parsed, f"$[0][{_quoted(field.name)}]", "variant"))
            plain &= F.coalesce(kind, F.lit("VOID")).isin("STRING", "VOID")
        if isinstance(field.dataType, DoubleType):
            plain &= value.isNull() | (F.abs(value) <= F.lit(_MOST_DOUBLE))
        if not field.nullable:
            plain &= value.isNotNull()
    return F.coalesce(plain, F.lit(False))


def _quoted(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def records_of(results: DataFrame, key: str, headers: Mapping[str, str]) -> DataFrame:
    """Return results as records for Spark's Kafka sink, in the gateway's form, with headers that name their events.

    Args:
        results: with ``NAMES`` at their end.
        key: the column whose text is the key; empty: there is none.
        headers: each header, and its column; one without a value is left out.
    """
    columns = [field for field in results.schema if field.name not in NAMES]
    value = F.to_json(
        F.struct(*(_finite(field.name, field.dataType) for field in columns)), {"ignoreNullFields": "false"}
    )
    told = _headers(dict(zip(NAME_HEADERS, NAMES, strict=True)))
    if headers:
        told = F.concat(told, F.filter(_headers(headers), lambda each: each["value"].isNotNull()))
    record = [value.alias("value"), told.alias("headers")]
    return results.select(*([_text(key).alias("key")] if key else []), *record)


def _headers(columns: Mapping[str, str]) -> Column:
    return F.array(
        *(
            F.struct(F.lit(name).alias("key"), _text(column).cast("binary").alias("value"))
            for name, column in columns.items()
        )
    )


def _text(column: str) -> Column:
    return _column(column).cast("string")


def _finite(name: str, kind: DataType) -> Column:
    """Return a column whose numbers are finite or null."""
    value = _column(name)
    return (F.when(F.abs(value) <= F.lit(_MOST_DOUBLE), value) if isinstance(kind, DoubleType) else value).alias(name)


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
