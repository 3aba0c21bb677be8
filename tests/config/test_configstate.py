from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import Config, load
from gateway.config.configstate import owned_by, why_not_this_config
from infra.statefiles import StateError

CONFIG = """\
gateway: {{state_dir: {state}}}
cloud:
  provider: process
  max_vms: 0
  boot: 10s
  billing: {{period: 60s, minimum: 60s, usd_per_hour: 0.1, usd_per_gb_sent: 0.09}}
  budget: {{usd_per_day: 5}}
queries:
  {name}:
    source: {{type: file, path: {source}}}
    schema: id BIGINT
    sql: SELECT id FROM events
    sink: {{type: file, path: {sink}}}
    qos: {{latency: 2s}}
"""


def write(path: Path, *, name: str = "q", source: str = "in.jsonl", sink: str = "out") -> Config:
    """A config in a separate folder, with the shared state_dir."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for each in (source, "in.jsonl"):
        (path.parent / each).touch()
    state = path.parents[1] / "state"
    path.write_text(CONFIG.format(state=state, name=name, source=source, sink=sink))
    return load(path)


@pytest.fixture
def first(tmp_path: Path) -> Config:
    config = write(tmp_path / "a" / "config.yaml")
    with owned_by(config):
        pass
    return config


def refused(config: Config) -> str:
    said = why_not_this_config(config)
    if not said:
        with owned_by(config):
            return ""
    with pytest.raises(StateError) as caught, owned_by(config):
        pass
    assert str(caught.value) == said
    return said


def test_the_same_file_may_be_edited_whatever_it_says(tmp_path: Path, first: Config) -> None:
    assert first.file == tmp_path / "a" / "config.yaml"
    assert not refused(first)
    assert not refused(write(tmp_path / "a" / "config.yaml", name="renamed", source="other.jsonl", sink="elsewhere"))
    (tmp_path / "link.yaml").symlink_to(tmp_path / "a" / "config.yaml")
    assert not refused(write(tmp_path / "a" / "config.yaml"))


def test_a_file_that_was_moved_is_the_same_config(tmp_path: Path, first: Config) -> None:
    (tmp_path / "a" / "config.yaml").rename(tmp_path / "a" / "moved.yaml")
    assert not refused(write(tmp_path / "a" / "moved.yaml", sink="elsewhere"))


def test_another_config_with_other_queries_is_refused_and_the_remedy_works(tmp_path: Path, first: Config) -> None:
    other = write(tmp_path / "b" / "config.yaml", name="other")
    said = refused(other)
    assert f"holds the state of {first.file}, which has none of these queries" in said
    assert f"remove {tmp_path / 'state' / 'config.json'} first" in said
    assert not refused(first), "the refused one left no trace"
    (tmp_path / "state" / "config.json").unlink()
    assert not refused(other)
    assert "none of these queries" in refused(first)


def test_another_query_of_the_same_name_is_refused(tmp_path: Path, first: Config) -> None:
    said = refused(write(tmp_path / "b" / "config.yaml", source="b.jsonl", sink="b"))
    assert f"query q reads file {tmp_path / 'a' / 'in.jsonl'} and writes file {tmp_path / 'a' / 'out'}" in said
    assert f"reads file {tmp_path / 'b' / 'b.jsonl'}" in said


def test_a_copy_whose_query_writes_what_it_did_goes_on(
    tmp_path: Path, first: Config, caplog: pytest.LogCaptureFixture
) -> None:
    copy = write(tmp_path / "b" / "config.yaml", sink=str(tmp_path / "a" / "out"))
    assert not refused(copy)
    assert f"was used with the config {first.file}" in caplog.text


def test_an_unreadable_record_is_named(tmp_path: Path, first: Config) -> None:
    (tmp_path / "state" / "config.json").write_text("{")
    with pytest.raises(StateError, match=r"config\.json cannot be read"):
        why_not_this_config(first)
