"""A config for tests that change it."""

from __future__ import annotations

from pathlib import Path

from gateway.config import load
from gateway.config.models import Config

BASE = """\
gateway: {state_dir: state}
private: {spark: {master: "local[1]"}}
cloud:
  provider: process
  max_vms: 1
  boot: 10s
  billing: {period: 60s, minimum: 60s, usd_per_hour: 0.1, usd_per_gb_sent: 0.09}
  budget: {usd_per_day: 5}
queries:
  words:
    source: {type: file, path: in.jsonl}
    schema: id STRING, body STRING
    sql: SELECT id FROM events
    sink: {type: file, path: out}
    qos: {latency: 2s}
    switching: {send_above: 1500ms}
  again:
    source: {type: query, name: words}
    schema: id STRING
    sql: SELECT id FROM events
    sink: {type: file, path: again}
    qos: {latency: 2s}
"""
SQL_OF_WORDS = "sql: SELECT id FROM events\n    sink: {type: file, path: out}"
THIRD = """\
  third:
    source: {type: file, path: in.jsonl}
    schema: id STRING
    sql: SELECT id FROM events
    sink: {type: file, path: third}
    qos: {latency: 2s}
"""


def config(folder: Path, text: str) -> Config:
    (folder / "in.jsonl").touch()
    path = folder / "config.yaml"
    path.write_text(text)
    return load(path)
