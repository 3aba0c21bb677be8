"""The config of a gateway with one query, from a file to a file."""

from __future__ import annotations

CONFIG = """\
gateway: {state_dir: state}
cloud:
  provider: process
  max_vms: 0
  boot: 10s
  billing: {period: 60s, minimum: 60s, usd_per_hour: 0.1, usd_per_gb_sent: 0.09}
  budget: {usd_per_day: 5}
queries:
  q:
    source: {type: file, path: in.jsonl}
    schema: id BIGINT, text STRING
    sql: SELECT id, text AS lane FROM events
    sink: {type: file, path: out}
    qos: {latency: 2s}
    runs: {max_events: 10}
"""
