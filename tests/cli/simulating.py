"""A small config, and a helper that calls ``spillway simulate`` with it."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from gateway.cli import main

CONFIG = """\
gateway: {state_dir: state}
cloud:
  provider: process
  max_vms: 1
  boot: 5s
  billing: {period: 30s, minimum: 30s, usd_per_hour: 3.6, usd_per_gb_sent: 0}
  budget: {usd_per_day: 5}
queries:
  words:
    source: {type: file, path: in.jsonl, REPLAY}
    schema: id STRING
    sql: SELECT id FROM events
    sink: {type: file, path: out}
    qos: {latency: 2s}
    runs: {linger: 500ms}
"""


def simulate(tmp_path: Path, *arguments: str, replay: str = "replay: {rate: 150/s}", config: str = CONFIG) -> Result:
    path = tmp_path / "words.yaml"
    path.write_text(config.replace("REPLAY", replay))
    (tmp_path / "in.jsonl").touch()
    return CliRunner().invoke(main, ["simulate", str(path), "--served", "110/s", *arguments])
