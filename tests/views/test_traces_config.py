"""Which traces a config may ask for, and what is said where OpenTelemetry is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway import start
from gateway.cli import main
from gateway.config import ConfigError
from gateway.views.traces.otlp import why_not_here
from tests.connectors.ports import free_port
from tests.gateway.daemon_site import configured

TRACES = "}\n  traces: {endpoint: 'http://127.0.0.1:4318'"


def test_the_sample_is_a_share(tmp_path: Path) -> None:
    traces = configured(tmp_path, api=f"{TRACES}, sample: 25%").gateway.traces
    assert traces is not None
    assert (traces.endpoint, traces.sample) == ("http://127.0.0.1:4318", 0.25)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("endpoint: '127.0.0.1:4318'", r"gateway\.traces\.endpoint: "),
        ("endpoint: 'http://127.0.0.1:4318/v1/traces'", r"gateway\.traces\.endpoint: "),
        ("endpoint: 'http://h', sample: 0%", r"gateway\.traces\.sample: .*greater than 0"),
        ("endpoint: 'http://h', sample: 0.1", r"gateway\.traces\.sample: .*is not a share"),
        ("sample: 1%", r"gateway\.traces\.endpoint: .*missing"),
    ],
)
def test_other_traces_are_refused(tmp_path: Path, said: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        configured(tmp_path, api=f"}}\n  traces: {{{said}")


def test_without_the_extra_check_and_run_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert why_not_here() == ""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    config = configured(tmp_path, port=free_port(), api=TRACES)
    says = 'OpenTelemetry is not installed: run pip install "spillway[traces]", or remove traces'
    result = CliRunner().invoke(main, ["check", "--no-plan", str(tmp_path / "config.yaml")])
    assert (result.exit_code, f":5: gateway.traces: {says}" in result.output) == (2, True), result.output
    assert start.run(config, until_drained=True, report=None) == 2
    assert f"gateway.traces: {says}" in caplog.text
