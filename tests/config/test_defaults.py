"""The promised defaults. A change of a default also changes this file and the changelog."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config import Config, load
from gateway.config.connectors.sinks import FileSinkConfig
from gateway.config.models import FileSourceConfig
from gateway.config.sites import TracesConfig

Write = Callable[..., Path]


@pytest.fixture
def config(write: Write) -> Config:
    return load(write(), {})


def test_gateway_defaults(config: Config, tmp_path: Path) -> None:
    assert config.gateway.state_dir == tmp_path / "state"
    assert config.gateway.slot_s == 1.0
    assert config.gateway.orphan_after_s == 60.0
    assert (config.gateway.api.host, config.gateway.api.port) == ("127.0.0.1", 8088)
    assert config.gateway.api.token_file is None
    assert (config.gateway.api.tls, config.gateway.api.insecure) == (None, False)
    assert config.gateway.traces is None
    assert TracesConfig(endpoint="http://127.0.0.1:4318").sample == 0.01
    assert config.gateway.log_file == tmp_path / "state" / "log" / "gateway.log"
    assert config.gateway.log.rotate_bytes == 10_000_000


def test_private_and_cloud_defaults(config: Config) -> None:
    assert config.private.spark.master == "local[1]"
    assert config.private.spark.checkpoints is None
    assert config.private.cpus is None
    assert config.cloud.warm is False
    assert config.cloud.emulate_link is None
    assert config.cloud.namespaces == {}


def test_query_defaults(config: Config) -> None:
    query = config.queries["first"]
    assert query.qos.statistic == "mean"
    assert isinstance(query.sink, FileSinkConfig)
    assert query.sink.format == "jsonl"
    assert (query.switching.mode, query.switching.share) == ("auto", "auto")
    assert (query.payload.trim, query.payload.filter, query.payload.compress) == (True, True, "auto")
    assert (query.payload.private, query.payload.tokenize, query.payload.encrypt) == ((), (), ())
    assert query.order is not None
    assert (query.order.by, query.order.flush_s) == ("arrival", 30.0)
    assert query.policy.type == "reactive"
    assert (query.runs.max_events, query.runs.max_bytes, query.runs.linger_s) == (2000, 2**20, 0.1)
    assert isinstance(query.source, FileSourceConfig)
    assert query.source.replay is not None
    assert query.source.replay.loops == 1
    assert query.output.mode == "append"
    assert query.keep_late == ()


def test_thresholds_follow_the_promised_latency(config: Config) -> None:
    limits = config.queries["first"].thresholds
    assert limits.start_vm_above_s == pytest.approx(2.4)
    assert limits.send_above_s == 2.0
    assert limits.keep_vm_above_s == 1.0
    assert limits.keep_vm_bytes == 1_000_000
    assert limits.tolerance_s == 1.0


def test_what_is_said_wins_over_the_default(write: Write) -> None:
    said = "qos: {latency: 2s}\n    switching: {start_vm_above: 3s, keep_vm_above: 0s}"
    limits = load(write(("qos: {latency: 2s}", said)), {}).queries["first"].thresholds
    assert (limits.start_vm_above_s, limits.send_above_s, limits.keep_vm_above_s) == (3.0, 2.0, 0.0)
