"""The examples that the repository shows work as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engines.buses import traces
from engines.email import queries
from engines.snb import events
from gateway.config import Config, ConfigError, load
from gateway.config.connectors.sinks import FileSinkConfig
from gateway.config.models import QuerySourceConfig

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "mail.jsonl.gz").touch()
    return load(ROOT / "examples" / "email.yaml", {"SPILLWAY_MAIL": str(tmp_path / "mail.jsonl.gz")})


def test_the_example_s_sql_is_the_benchmark_s(config: Config) -> None:
    sql = config.queries["email-processor"].sql
    assert sql is not None
    assert sql.strip() == queries.EMAIL_SQL.strip()
    assert config.queries["email-processor"].schema_ddl == queries.SCHEMA_DDL


def test_the_example_s_second_query_reads_the_first(config: Config) -> None:
    metrics = config.queries["email-metrics"]
    assert isinstance(metrics.source, QuerySourceConfig)
    assert metrics.source.name == "email-processor"
    assert metrics.schema_ddl == queries.Q5_SCHEMA_DDL
    assert metrics.function == "engines.email.running:running_metrics"


def test_the_example_writes_below_the_repository_and_not_into_it(config: Config) -> None:
    assert config.gateway.state_dir.resolve() == ROOT / "state"
    sink = config.queries["email-processor"].sink
    assert isinstance(sink, FileSinkConfig)
    assert sink.path.resolve() == ROOT / "out" / "email-processor"


def test_the_example_of_connectors_is_right() -> None:
    names = {"KAFKA": "127.0.0.1:9092", "MQTT_HOST": "localhost", "BUCKET": "results"}
    connectors = load(ROOT / "examples" / "connectors.yaml", names)
    ends = {(query.source.type, query.sink.type) for query in connectors.queries.values()}
    assert ends == {("kafka", "kafka"), ("mqtt", "s3"), ("http", "file")}


def test_the_example_of_queries_with_state_has_their_schemas(tmp_path: Path) -> None:
    names = {"SPILLWAY_POSTS": tmp_path / "posts.jsonl", "SPILLWAY_BUSES": tmp_path / "buses.jsonl"}
    for path in names.values():
        path.touch()
    found = load(ROOT / "examples" / "stateful.yaml", {name: str(path) for name, path in names.items()}).queries
    assert {name: (query.schema_ddl, query.function) for name, query in found.items()} == {
        "active-posts": (events.SCHEMA_DDL, "engines.snb.activeposts:active_posts"),
        "delayed-areas": (traces.SCHEMA_DDL, "engines.buses.delays:delayed_areas"),
    }


def test_the_readme_s_first_config_is_right(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (tmp_path / "mail.jsonl.gz").touch()
    path = tmp_path / "first.yaml"
    path.write_text(text.split("```yaml\n")[1].split("```")[0])
    assert list(load(path, {}).queries) == ["long-mails"]
    path.write_text(path.read_text().replace("boot: 15s", "boot: 15"))
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert str(caught.value).replace(str(path), "first.yaml") in text


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_links_between_documents_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
