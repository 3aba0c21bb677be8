"""Which traces a config may ask for, and what is said where OpenTelemetry is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gateway.config import ConfigError
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


@pytest.mark.parametrize("gone", ["opentelemetry", "opentelemetry.exporter.otlp.proto.http"])
def test_without_the_extra_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    for module in [name for name in sys.modules if name.startswith(gone)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, gone, None)
    with pytest.raises(
        ConfigError, match=r"config.yaml:5: gateway.traces: traces need: pip install 'spillway\[traces\]'"
    ):
        configured(tmp_path, api=TRACES)
