from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from engines.email import oracle
from engines.email.generator import generate_mail
from engines.email.mailbox import Mail, read_mail
from engines.email.queries import EMAIL_SQL, Q5_RESULT_DDL, Q5_SCHEMA_DDL, RESULT_DDL, SCHEMA_DDL
from engines.email.running import running_metrics

pytestmark = pytest.mark.spark

SHARED_MAIL = Path(__file__).parents[3] / "shared" / "data" / "enron" / "2000-09.mbox.gz"


def make_mail(body: str, **changes: object) -> Mail:
    return msgspec.structs.replace(next(generate_mail(1, seed=1)), sender="a@enron.com", body=body, **changes)


def nasty_mails() -> list[Mail]:
    bodies = [
        "",
        " ",
        "\n\n\n",
        "a b c",
        "bb aa bb aa cc",
        "cc cc bb bb aa",
        "Aa aA zz",
        "  two  two   three\n\n \t\nfour\r\n\r\nfive\n",
        "\n\nKenneth Lay met Jeffrey Skilling and Andrew Fastow. kenneth lay Kenneth Lay",
        "KENNETH LAY is not named",
        "naïve naïve ÉCOLE école 日本 日本 \U0001f600\U0001f600 \U0001f600\U0001f600",
        "x\x0cy\n\x0c\nz\n\x0b\n\x0c",
        "%_'\\n \\n \\n",
        "same" + " same" * 5000,
    ]
    mails = [make_mail(body, message_id=f"<{number}@x>") for number, body in enumerate(bodies)]
    mails.append(make_mail("none", message_id="<to>", to=[], subject=""))
    mails.append(
        make_mail("mixed", message_id="<mixed>", to=["a@b.example", "c@mail.enron.com.example", "d@enron.com"])
    )
    outside = ("a@enron.com.example", "a@ENRON.COM", "enron.com", "a@enronxcom")
    mails.extend(msgspec.structs.replace(mails[3], sender=sender) for sender in outside)
    return mails


def real_or_generated() -> list[Mail]:
    """Real mail if this machine has some, else more generated mail."""
    named = os.environ.get("SPILLWAY_MAIL")
    path = Path(named) if named else SHARED_MAIL
    return list(read_mail(path)) if path.exists() else list(generate_mail(4_000, seed=11))


def spark_answers(spark: SparkSession, mails: list[Mail]) -> list[oracle.MailAnswer]:
    rows = [tuple(getattr(mail, name) for name in Mail.__struct_fields__) for mail in mails]
    spark.createDataFrame(rows, SCHEMA_DDL).createOrReplaceTempView("events")
    result = spark.sql(EMAIL_SQL)
    declared = spark.createDataFrame([], RESULT_DDL).schema
    assert [(field.name, field.dataType) for field in result.schema] == [
        (field.name, field.dataType) for field in declared
    ]
    return msgspec.convert(result.toArrow().to_pylist(), list[oracle.MailAnswer])


@pytest.mark.parametrize(
    "mails",
    [nasty_mails(), list(generate_mail(2_000, seed=5)), real_or_generated()],
    ids=["nasty", "generated", "real"],
)
def test_spark_gives_the_oracles_answers(spark: SparkSession, mails: list[Mail]) -> None:
    wanted = [one for mail in mails if (one := oracle.answer(mail))]
    assert 0 < len(wanted) < len(mails)
    assert sorted(spark_answers(spark, mails), key=order) == sorted(wanted, key=order)


def order(answer: oracle.MailAnswer) -> str:
    return f"{answer.message_id} {answer.body_md5}"


def test_the_plan_is_narrow_reads_five_columns_and_filters_early(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "mail.parquet")
    spark.createDataFrame([], SCHEMA_DDL).write.parquet(path)
    spark.read.schema(SCHEMA_DDL).parquet(path).createOrReplaceTempView("events")
    plan = spark.sql(f"EXPLAIN {EMAIL_SQL}").collect()[0][0]
    assert "ReadSchema: struct<message_id:string,sender:string,to:array<string>,subject:string,body:string>" in plan
    assert "StringEndsWith(sender,@enron.com)" in plan
    assert not any(operator in plan for operator in ("Exchange", "Sort ", "Aggregate", "Python"))


def test_the_answers_rules_by_hand() -> None:
    mail = make_mail(
        "Kenneth Lay saw us.\n\nHe saw it, Saw me a he", subject="hi", to=["x@enron.com", "y@other.example"]
    )
    got = oracle.answer(mail)
    assert got is not None
    assert got.subject == "saw hi"
    assert got.recipients == ("x@enron.com",)
    # The line break does not split words: "us.\n\nhe" is one of them.
    assert (got.characters, got.words, got.paragraphs) == (39, 8, 2)
    assert oracle.most_frequent(["b", "a", "b", "a", "c"]) == "a"
    assert oracle.most_frequent(["b", "a"]) == "NONE"
    assert oracle.most_frequent([]) == "NONE"


@given(st.lists(st.sampled_from(["", " ", "\t", "x", " y"]), max_size=12))
def test_paragraphs_do_not_change_when_blank_lines_are_doubled(lines: list[str]) -> None:
    doubled = [piece for line in lines for piece in ([line, ""] if not line.strip() else [line])]
    assert oracle.paragraphs("\n".join(doubled)) == oracle.paragraphs("\n".join(lines))


def metrics_rows(count: int) -> list[dict[str, object]]:
    answers = [one for mail in generate_mail(count * 2, seed=2) if (one := oracle.answer(mail))][:count]
    return [{**msgspec.structs.asdict(one), "recipients": [], "_seq": seq} for seq, one in enumerate(answers)]


def streamed_windows(spark: SparkSession, folder: Path, cuts: list[int]) -> Iterator[oracle.WindowAnswer]:
    """Run Q5 as a stream with one micro-batch for each range between ``cuts``; a batch's rows are in reverse order."""
    rows = metrics_rows(cuts[-1])
    source = folder / "source"
    for number, (first, last) in enumerate(pairwise(cuts)):
        frame = spark.createDataFrame(rows[first:last][::-1], Q5_SCHEMA_DDL)
        frame.coalesce(1).write.parquet(str(folder / "made" / str(number)))
        (part,) = (folder / "made" / str(number)).glob("*.parquet")
        source.mkdir(exist_ok=True)
        part.rename(source / f"{number:03d}.parquet")
        os.utime(source / f"{number:03d}.parquet", (number + 1, number + 1))
    events = spark.readStream.schema(Q5_SCHEMA_DDL).option("maxFilesPerTrigger", 1).parquet(str(source))
    windows = (
        running_metrics(events)
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert windows.awaitTermination(120)
    assert len([progress for progress in windows.recentProgress if progress.numInputRows]) == len(cuts) - 1
    result = spark.read.parquet(str(folder / "out"))
    assert result.schema.simpleString() == spark.createDataFrame([], Q5_RESULT_DDL).schema.simpleString()
    yield from msgspec.convert(result.orderBy("window").toArrow().to_pylist(), list[oracle.WindowAnswer])


@pytest.mark.parametrize("cuts", [[0, 30, 31, 500, 1250], [0, 1100, 1250]], ids=["many", "few"])
def test_q5_does_not_depend_on_how_its_input_is_cut(spark: SparkSession, tmp_path: Path, cuts: list[int]) -> None:
    answers = [one for mail in generate_mail(2500, seed=2) if (one := oracle.answer(mail))][:1250]
    wanted = list(oracle.windows(answers))
    assert len(wanted) == 12
    assert list(streamed_windows(spark, tmp_path, cuts)) == wanted


def test_q5_keeps_order_within_a_batch_larger_than_an_arrow_batch(spark: SparkSession, tmp_path: Path) -> None:
    previous = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "64")
    try:
        got = list(streamed_windows(spark, tmp_path, [0, 1000]))
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(previous))
    answers = [one for mail in generate_mail(2000, seed=2) if (one := oracle.answer(mail))][:1000]
    assert got == list(oracle.windows(answers))
