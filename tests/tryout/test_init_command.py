"""``spillway init``: with options, and with answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from typer.testing import CliRunner, Result

from gateway.cli import main
from gateway.config import load
from gateway.views.firstconfig.writing import AnswerError, FirstAnswers, config_text, query_name, source_section
from tests.tryout.try_config import put


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put(tmp_path / "orders 2026.csv", "id,amount", "1,2.5", "2,x", "3,4")
    put(tmp_path / "orders.jsonl", '{"id": 1, "amount": 2.5}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*words: str, answers: str = "") -> Result:
    return CliRunner().invoke(main, ["init", *words], input=answers)


def test_with_options_nothing_is_asked(folder: Path) -> None:
    said = init("sub/first.yaml", "--source", "orders 2026.csv", "--target", "500ms", "--sink", "results", "--yes")
    assert said.exit_code == 0, said.output
    assert "columns of the first 3 records: id BIGINT, amount STRING" in said.output
    query = load(folder / "sub" / "first.yaml").queries["orders-2026"]
    assert query.schema_ddl == "id BIGINT, amount STRING"
    assert (query.sql, query.qos.latency_s) == ("SELECT * FROM events", 0.5)
    assert getattr(query.source, "path").resolve() == folder / "orders 2026.csv"  # noqa: B009 - of all kinds of source
    assert getattr(query.sink, "path").resolve() == folder / "results"  # noqa: B009
    assert [path.name for path in (folder / "sub").iterdir()] == ["first.yaml"]


def test_what_is_not_said_is_asked_until_it_is_right(folder: Path) -> None:
    answers = [
        "gone.csv",
        "orders.jsonl",
        "id",
        "id BIGINT",
        "SELECT 1; DROP TABLE x",
        "SELECT id FROM events",
        "2",
        "3s",
        "",
    ]
    said = init(answers="\n".join(answers) + "\n")
    assert said.exit_code == 0, said.output
    for wrong in ("gone.csv does not exist", '"id" is not a column', "is not a duration", "DROP"):
        assert wrong in said.output
    query = load(folder / "spillway.yaml").queries["orders"]
    assert (query.schema_ddl, query.sql, query.qos.latency_s) == ("id BIGINT", "SELECT id FROM events", 3.0)
    assert "spillway try spillway.yaml" in said.output


def test_a_file_that_exists_stays_unless_the_user_says_otherwise(folder: Path) -> None:
    put(folder / "spillway.yaml", "precious")
    options = ["--source", "orders.jsonl", "--schema", "id INT", "--sql", "SELECT 1", "--target", "1s", "--sink", "out"]
    for words, answers in ((["--yes"], ""), ([], "n\n"), ([], "")):
        said = init(*options, *words, answers=answers)
        assert said.exit_code in (1, 2)
        assert (folder / "spillway.yaml").read_text() == "precious\n"
    assert init(*options, answers="y\n").exit_code == 0
    assert load(folder / "spillway.yaml").queries["orders"].schema_ddl == "id INT"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--yes"], "--yes needs --source"),
        (["--source", "orders.txt", "--yes"], "orders.txt does not exist"),
        (["--source", "http://127.0.0.1:9/in", "--yes"], "give --sample FILE with some events, or --schema"),
        (["--source", "orders.jsonl", "--target", "soon", "--yes"], "is not a duration"),
        (["--source", "orders.jsonl", "--schema", "id", "--yes"], "is not a column"),
        (
            ["--source", "http://nowhere", "--schema", "id INT", "--yes"],
            "would be wrong: queries.events.source",
        ),
    ],
)
def test_what_cannot_be_used_is_said_and_nothing_is_written(folder: Path, words: list[str], says: str) -> None:
    before = sorted(folder.iterdir())
    said = init(*words)
    assert (said.exit_code, says in said.output) == (2, True), said.output
    assert sorted(folder.iterdir()) == before


def test_without_answers_nothing_is_written(folder: Path) -> None:
    said = init("--source", "orders.jsonl")
    assert said.exit_code == 1
    assert "without a terminal, give --source and --yes" in said.output
    assert not (folder / "spillway.yaml").exists()


@pytest.mark.parametrize(
    ("text", "section", "name"),
    [
        ("kafka://b:9092/in", {"type": "kafka", "brokers": "b:9092", "topics": ["in"]}, "in"),
        ("mqtt://b/plant/+/power", {"type": "mqtt", "host": "b", "topics": ["plant/+/power"]}, "power"),
        ("s3://orders/by/day/", {"type": "s3", "bucket": "orders", "prefix": "by/day"}, "day"),
        ("s3://orders", {"type": "s3", "bucket": "orders"}, "orders"),
        ("mqtt://b:1884/plant/#", {"type": "mqtt", "host": "b", "port": 1884, "topics": ["plant/#"]}, "first"),
        ("http://127.0.0.1:80/a/b", {"type": "http", "listen": "127.0.0.1:80", "path": "/a/b"}, "b"),
        ("http://127.0.0.1:80", {"type": "http", "listen": "127.0.0.1:80", "path": "/events"}, "events"),
    ],
)
def test_sources_are_written_as_urls(tmp_path: Path, text: str, section: dict[str, Any], name: str) -> None:
    assert source_section(text, tmp_path) == section
    assert query_name(section) == name


@pytest.mark.parametrize("text", ["kafka://b:9092", "mqtt://b/", "mqtt://b:x/t", "s3:///key", "ftp://x/y", "gone.csv"])
def test_other_sources_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(AnswerError):
        source_section(text, tmp_path)


TEXT = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: text.strip() != "")


@given(TEXT, TEXT, TEXT, st.sampled_from(["off", "1", "a-b", "true", "1e3", "null"]))
def test_every_text_is_read_back_as_it_was_said(ddl: str, sql: str, path: str, name: str) -> None:
    said = FirstAnswers(name, {"type": "file", "path": path}, ddl, sql, "2s", path)
    read = YAML(typ="safe").load(config_text(said, "./state"))["queries"]
    assert list(read) == [name]
    query = read[name]
    assert (query["schema"], query["sql"]) == (ddl, sql.strip())
    assert (query["source"]["path"], query["sink"]["path"], query["qos"]["latency"]) == (path, path, "2s")
