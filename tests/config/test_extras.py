"""A library that is not installed is named with what installs it; the rest of the config is still checked."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gateway.config import ConfigError, load
from gateway.config.sections.extras import EXTRAS

Write = Callable[..., Path]
ROOT = Path(__file__).parents[2]
FILE_SOURCE = "source: {type: file, path: mail.jsonl.gz, replay: {rate: 2000/s}}"
FILE_SINK = "sink: {type: file, path: out/first}"
CLOUD = "provider: process"
EC2 = (
    "provider: ec2\n  region: eu-west-1\n  image: ami-1\n  sizes: [m7i.large]\n"
    "  credentials: {key: a, secret: b}\n  bundle: {bucket: my-code}"
)
KAFKA_SINK = "sink: {type: kafka, brokers: 'b:9092', topic: out}"
SECOND = "    source: {type: query, name: first}\n    schema: id STRING"


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    return [f"{problem.key}: {problem.text}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("gone", "change", "says"),
    [
        (
            "aiokafka",
            (FILE_SOURCE, "source: {type: kafka, brokers: 'b:9092', topics: [in]}"),
            "queries.first.source.type: kafka sources need: pip install 'spillway[kafka]'",
        ),
        (
            "fastavro",
            (FILE_SOURCE, "source: {type: kafka, brokers: 'b:9092', topics: [in]}"),
            "queries.first.source.type: kafka sources need: pip install 'spillway[kafka]'",
        ),
        (
            "aiomqtt",
            (FILE_SOURCE, "source: {type: mqtt, host: b, topics: [in]}"),
            "queries.first.source.type: mqtt sources need: pip install 'spillway[mqtt]'",
        ),
        (
            "boto3",
            ("sink: {type: file, path: out/second}", "sink: {type: s3, bucket: results}"),
            "queries.second.sink.type: s3 sinks need: pip install 'spillway[s3]'",
        ),
        (
            "boto3",
            ("state_dir: ./state", "state_dir: ./state\n  fleet: shop\n  object_store: {bucket: fleets}"),
            "gateway.object_store: buckets need: pip install 'spillway[s3]'",
        ),
        ("libcloud", (CLOUD, EC2), "cloud.provider: rented VMs need: pip install 'spillway[clouds]'"),
    ],
)
def test_a_missing_extra_is_named_at_its_place(
    write: Write, monkeypatch: pytest.MonkeyPatch, gone: str, change: tuple[str, str], says: str
) -> None:
    monkeypatch.setitem(sys.modules, gone, None)  # Python's own way to say that it cannot be imported
    assert problems(write(change)) == [says]


def test_without_extras_a_config_that_needs_none_is_right(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in {module for modules in EXTRAS.values() for module in modules}:
        monkeypatch.setitem(sys.modules, module, None)
    assert list(load(write(), {}).queries) == ["first", "second"]


def test_other_mistakes_are_reported_beside_it(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    path = write(
        (FILE_SOURCE, "source: {type: kafka, brokers: 'b:9092', topics: [in]}"), ("{latency: 3s}", "{latency: 3}")
    )
    assert [text.partition(":")[0] for text in problems(path)] == [
        "queries.first.source.type",
        "queries.second.qos.latency",
    ]


def test_the_modules_are_those_of_the_extras_of_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {"paho-mqtt": "paho", "apache-libcloud": "libcloud", "opentelemetry-sdk": "opentelemetry.sdk"}
    named["opentelemetry-exporter-otlp-proto-http"] = "opentelemetry.exporter.otlp.proto.http"
    named["recurring-ical-events"] = "recurring_ical_events"
    assert {
        extra: sorted(named.get(name, name) for name in (Requirement(text).name for text in texts))
        for extra, texts in extras.items()
        if extra != "all"
    } == {extra: sorted(modules) for extra, modules in EXTRAS.items()}
    assert all(find_spec(module) for modules in EXTRAS.values() for module in modules)


def test_a_gateway_without_them_imports_none_of_them() -> None:
    """Everything that a gateway with files and processes uses is imported where no extra can be."""
    code = (
        "import sys\n"
        "for name in ('aiokafka', 'fastavro', 'aiomqtt', 'paho', 'boto3', 'botocore', 'libcloud', 'opentelemetry'):\n"
        "    sys.modules[name] = None\n"
        "import gateway.start, gateway.daemon, gateway.demo.run, gateway.simulate.command\n"
        "import engines.worker, gateway.cli, gateway.views.check.checkview, gateway.fleet.clouds, gateway.fleet.image\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
