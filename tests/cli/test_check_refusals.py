"""``spillway check`` reports everything that ``spillway run`` would refuse, all at once, with exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import main

BEGIN = """\
gateway: {state_dir: state, fleet: town, object_store: {folder: store}, lease: 8s}
private: {spark: {master: "%s"}}
cloud:
  provider: process
  max_vms: 0
  boot: 10s
  billing: {period: 60s, minimum: 60s, usd_per_hour: 0.1, usd_per_gb_sent: 0.09}
  budget: {usd_per_day: 5}
queries:
"""
OBJECTS = {"type": "s3", "bucket": "town", "prefix": "mails", "follow": True}
WATERMARKED = (
    "SELECT window(sent, '1 minute') AS minute, count(*) AS n FROM events "
    "WATERMARK sent DELAY OF INTERVAL 10 MINUTES GROUP BY window(sent, '1 minute')"
)

BY_SENDER = "SELECT sender, count(*) AS n FROM events GROUP BY sender, window(sent, '1 minute')"
LATENESS = {"column": "sent", "lateness": "10s"}


def written(folder: Path, queries: dict[str, dict[str, Any]], master: str = "local[1]") -> Path:
    """A config with one line for each query; the first one is line 10."""
    (folder / "in.jsonl").touch()
    path = folder / "config.yaml"
    lines = []
    for name, said in queries.items():
        query = {
            "source": {"type": "file", "path": "in.jsonl"},
            "schema": "id BIGINT, sender STRING, sent TIMESTAMP",
            "sql": "SELECT id FROM events",
            "sink": {"type": "file", "path": f"out-{name}"},
            "qos": {"latency": "2s"},
            **said,
        }
        lines.append(f"  {name}: {json.dumps(query)}\n")
    path.write_text(BEGIN % master + "".join(lines))
    return path


def test_mistakes_of_two_queries_are_both_said_without_spark(tmp_path: Path) -> None:
    path = written(tmp_path, {"a": {"qos": {"latency": 2}}, "b": {"schema": "id"}, "c": {}})
    result = CliRunner().invoke(main, ["check", str(path), "--no-plan"])
    assert result.exit_code == 2
    assert f"{path}:10: queries.a.qos.latency: " in result.output
    assert f"{path}:11: queries.b.schema" in result.output
    assert "ok (" not in result.output


def test_objects_that_a_query_writes_are_no_source(tmp_path: Path) -> None:
    place = {"type": "s3", "bucket": "town"}
    said = {
        "a": {"sink": {**place, "prefix": "out"}},
        "b": {"source": {**place, "prefix": "out/parts"}},
        "c": {"source": {**place, "prefix": "output"}},
        "d": {"source": {**place, "prefix": "output/2026"}},
    }
    path = written(tmp_path, said)
    result = CliRunner().invoke(main, ["check", str(path), "--no-plan"])
    assert result.exit_code == 2
    assert f'{path}:11: queries.b.source.prefix: query "a" writes there, also parts that do not count' in result.output
    assert "queries.c" not in result.output
    assert "queries.d" not in result.output
    del said["b"]
    result = CliRunner().invoke(main, ["check", str(written(tmp_path, said)), "--no-plan"])
    assert (result.exit_code, result.output) == (0, f"{path}: ok (3 queries)\n")


def test_a_state_dir_of_another_config_is_refused(tmp_path: Path) -> None:
    other = written(tmp_path, {"a": {}}).rename(tmp_path / "other.yaml")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "config.json").write_text(json.dumps({"file": str(other), "queries": {}}))
    result = CliRunner().invoke(main, ["check", str(written(tmp_path, {"b": {}})), "--no-plan"])
    assert result.exit_code == 2
    assert f"config.yaml:1: gateway.state_dir: {tmp_path / 'state'} holds the state of {other}" in result.output


def test_an_unreadable_state_sets_its_query_aside(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "queries" / "b"
    folder.mkdir(parents=True)
    (folder / "query.json").write_text("{")
    path = written(tmp_path, {"a": {}, "b": {}})
    result = CliRunner().invoke(main, ["check", str(path), "--no-plan"])
    assert result.exit_code == 2
    assert f"{path}:11: queries.b: this query would not be opened, and the others run: {folder}" in result.output
    assert list(tmp_path.joinpath("state").rglob("*")) == [folder.parent, folder, folder / "query.json"]


@pytest.mark.spark
def test_all_that_spark_finds_is_said_and_the_good_query_is_explained(tmp_path: Path) -> None:
    (tmp_path / "names.json").write_text('{"id": 1, "name": "one"}\n')
    joined = f"SELECT e.id, n.name FROM events e JOIN json.`{tmp_path}/names.json` n ON e.id = n.id"
    queries: dict[str, dict[str, Any]] = {
        "good": {"sql": joined},
        "typo": {"sql": "SELECT sendr FROM events"},
        "endless": {"sql": "SELECT count(*) AS n FROM events"},
        "stateful": {"sql": WATERMARKED},
        "wrong": {"qos": {"latency": 2}},
        "mails": {"source": OBJECTS, "sink": {"type": "kafka", "brokers": "b:9092", "topic": "out"}},
        "recent": {"source": {**OBJECTS, "prefix": "mails/2026"}},
        "divided": {"sql": BY_SENDER, "event_time": LATENESS, "switching": {"mode": "keys", "key": "id"}},
    }
    path = written(tmp_path, queries, "spark://nowhere:7077")
    command = [sys.executable, "-m", "gateway", "check", str(path)]
    wide = {**os.environ, "COLUMNS": "1000"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=wide)
    assert done.returncode == 2
    aside = "this query would not be opened, and the others run: query"
    nearest = 'there is no column "sendr" in the view events; the nearest is "sender"'
    assert f"{path}:11: queries.typo.sql: {aside} typo: {nearest}" in done.stderr
    assert f"{path}:12: queries.endless.sql: {aside} endless: it aggregates without a watermark" in done.stderr
    assert f"{path}:13: queries.stateful.sql: {aside} stateful holds state (it aggregates over many" in done.stderr
    assert "executors of spark://nowhere:7077 do not see the state_dir: set private.spark.checkpoints" in done.stderr
    assert f"{path}:17: queries.divided.sql: {aside} divided: it cannot be divided by id, because events" in done.stderr
    assert f"{path}:14: queries.wrong.qos.latency: " in done.stderr
    said = " ".join(done.stdout.split())
    assert said.startswith("good ")
    mails, recent = (said[said.index(f" {name} source") :] for name in ("mails", "recent"))
    assert mails.startswith(
        " mails source s3://town/mails, its objects and those that appear later also read by recent"
    )
    assert "fail-over each gateway of fleet town continues it, once this one is silent for 8 s" in mails
    assert "also read by mails (s3://town/mails): each query processes every object below its own prefix" in recent
    assert "fail-over refused without this state_dir: a file sink does not store where the query stands" in recent
    assert "names.json must lie at the same path on each executor of spark://nowhere:7077" in said
