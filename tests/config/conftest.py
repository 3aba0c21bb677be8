from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[..., Path]

GOOD = """\
gateway:
  state_dir: ./state
cloud:
  provider: process
  max_vms: 2
  boot: 10s
  billing: {period: 60s, minimum: 60s, usd_per_hour: 0.10, usd_per_gb_sent: 0.09}
  budget: {usd_per_day: 5}
queries:
  first:
    source: {type: file, path: mail.jsonl.gz, replay: {rate: 2000/s}}
    schema: "id STRING, sent TIMESTAMP, `to` ARRAY<STRING>, body STRING"
    sql: SELECT id FROM events
    sink: {type: file, path: out/first}
    qos: {latency: 2s}
  second:
    source: {type: query, name: first}
    schema: id STRING
    function: engines.email.running:running_metrics
    sink: {type: file, path: out/second}
    qos: {latency: 3s}
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the valid config with replacements, beside an empty input file."""
    (tmp_path / "mail.jsonl.gz").touch()
    (tmp_path / "empty").mkdir()

    def written(*changes: tuple[str, str]) -> Path:
        text = GOOD
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return written
