"""Checks of the image and the compose file that need no container engine: parsers, a linter, and our own rules."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from compose_spec import PyCompose
from ruamel.yaml import YAML

from gateway.config import load
from tests.connectors.http_data import server_certificate
from tests.docker.docker_files import DOCKER, ROOT, compose, image, instructions, versions
from tests.docker.monitoring import prometheus_program

OURS = f"spillway:{versions()['SPILLWAY_VERSION']}"
SERVICES: dict[str, dict[str, Any]] = compose()["services"]


def linted(path: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("hadolint")
    return subprocess.run([str(program), "--no-color", str(path)], capture_output=True, text=True, check=False)


def test_the_linter_has_nothing_to_say() -> None:
    done = linted(DOCKER / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_linter_would_say_it(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text((DOCKER / "Dockerfile").read_text().replace("-yq", "").replace("USER 10001:10001", "USER root"))
    done = linted(bad)
    assert {"DL3014", "DL3002"} <= set(re.findall(r"DL\d{4}", done.stdout))


def test_every_stage_starts_from_one_image_that_cannot_change() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    assert re.search(r"^ARG DEBIAN=debian:bookworm-\d{8}-slim@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert [value.split()[0] for stage in instructions() for name, value in stage if name == "FROM"] == [
        "${DEBIAN}",
        "${DEBIAN}",
    ]


def test_it_is_nobody_s_root_and_every_process_is_started_without_a_shell() -> None:
    made = image()
    uid, gid = made.user.split(":")
    assert int(uid) > 0
    assert int(gid) > 0
    last = dict(instructions()[-1])
    assert f"useradd --uid {uid} --gid {gid}" in last["RUN"]
    # tini is process 1: it passes the signal on and reaps what engine hosts leave.
    assert made.entrypoint[:2] == ["/usr/bin/tini", "--"]
    assert (made.stop_signal, made.volume) == ("SIGTERM", "/var/lib/spillway")
    assert made.ports == {8088, 7443}


def test_it_installs_the_versions_that_are_tested() -> None:
    installs = [value for stage in instructions() for name, value in stage if name == "RUN" and " pip " in value]
    assert installs
    pips = [part for value in installs for part in value.split("&&") if "pip install" in part or "pip wheel" in part]
    assert [part for part in pips if "constraints.txt" not in part] == []


def test_every_file_that_is_copied_is_there_and_is_not_ignored() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    assert rules[0] == "*"
    copied = {
        source
        for stage in instructions()
        for name, value in stage
        if name == "COPY" and not value.startswith("--from")
        for source in value.split()[:-1]
    }
    assert copied == allowed
    assert [source for source in copied if not (ROOT / source).exists()] == []
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["packages"]) <= copied


def test_the_specification_knows_every_key_of_the_compose_file() -> None:
    text = json.dumps(compose())
    assert PyCompose.from_yaml(text).service_names() == list(SERVICES)
    with pytest.raises(ValueError, match="shm_sise"):
        PyCompose.from_yaml(text.replace("shm_size", "shm_sise"))


def test_images_are_pinned_and_ours_has_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert versions()["SPILLWAY_VERSION"] == project["version"]
    pinned = re.compile(r"[a-z/-]+:v?\d+\.\d+\.\d+")
    assert [name for name, service in SERVICES.items() if not pinned.fullmatch(service["image"])] == []


def test_one_service_builds_our_image_and_nobody_looks_for_it_in_a_registry() -> None:
    ours = {name for name, service in SERVICES.items() if service["image"] == OURS}
    assert ours == {"spark-master", "spark-worker", "prepare", "gateway"}
    assert {SERVICES[name]["pull_policy"] for name in ours} == {"never"}
    (builds,) = [name for name, service in SERVICES.items() if "build" in service]
    build = SERVICES[builds]["build"]
    assert builds in ours
    assert (DOCKER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()


def test_kafka_is_the_one_that_the_connectors_are_tested_with() -> None:
    pom = (ROOT / "tests" / "connectors" / "kafka" / "pom.xml").read_text()
    assert f"<version>{versions()['KAFKA_VERSION']}</version>" in pom


def test_whoever_is_waited_for_can_be_seen_to_be_healthy() -> None:
    waits = [
        (name, on, how["condition"]) for name, s in SERVICES.items() for on, how in s.get("depends_on", {}).items()
    ]
    assert len(waits) > 4
    for name, on, condition in waits:
        health = SERVICES[on].get("healthcheck", {})
        own = health.get("test") or SERVICES[on]["image"] == OURS
        if condition == "service_healthy":
            assert own, (name, on)
            assert not health.get("disable"), (name, on)
        else:
            assert (condition, health.get("disable")) == ("service_completed_successfully", True)


def test_every_volume_is_declared_and_used_and_every_file_that_is_mounted_is_there() -> None:
    sources = {volume.split(":")[0] for s in SERVICES.values() for volume in s.get("volumes", ())}
    named = {source for source in sources if not source.startswith(".")}
    assert named == set(compose()["volumes"])
    assert [source for source in sources - named if not (DOCKER / source).is_file()] == []


def test_ports_are_open_on_loopback_only_and_ours_may_gain_no_rights() -> None:
    ports = [port for s in SERVICES.values() for port in s.get("ports", ())]
    assert len(ports) == 7
    assert [port for port in ports if not fnmatch.fnmatch(port, "127.0.0.1:*:*")] == []
    for service in SERVICES.values():
        if service["image"] == OURS:
            assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])


def test_the_gateway_s_config_is_right_with_the_environment_it_gets() -> None:
    gateway = SERVICES["gateway"]
    (mounted,) = [volume for volume in gateway["volumes"] if volume.startswith("./")]
    source, target, _ = mounted.split(":")
    assert target == image().command[-1]
    config = load(DOCKER / source, gateway["environment"])
    assert {(query.source.type, query.sink.type) for query in config.queries.values()} == {
        ("kafka", "kafka"),
        ("mqtt", "s3"),
    }
    assert config.gateway.state_dir.is_relative_to(image().volume)
    assert config.gateway.api.port in image().ports
    # Whoever is named in an address is a service.
    text = json.dumps([service.get("environment", {}) for service in SERVICES.values()])
    assert set(re.findall(r"(?:://|@|\")([a-z][a-z0-9-]*):\d+", text)) <= set(SERVICES)


@pytest.mark.parametrize("page", ["docker/README.md", "docker/image/README.md", "docs/clouds.md"])
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def mounts(service: str) -> dict[str, str]:
    """Where a service's mounted files are: source by target."""
    pairs = (volume.split(":")[:2] for volume in SERVICES[service]["volumes"])
    return {target: source for source, target in pairs if source.startswith("./")}


def mounted(service: str, target: str) -> dict[str, Any]:
    return dict(YAML(typ="safe").load(DOCKER / mounts(service)[target]))


def test_prometheus_scrapes_the_gateway_under_the_name_that_the_alerts_expect() -> None:
    (path,) = [word.partition("=")[2] for word in SERVICES["prometheus"]["command"] if word.startswith("--config.file")]
    settings = mounted("prometheus", path)
    for rules in settings["rule_files"]:
        assert str(Path(path).parent / rules) in mounts("prometheus")
    (job,) = settings["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    config = load(DOCKER / "spillway.yaml", SERVICES["gateway"]["environment"])
    assert (host in SERVICES, int(port), config.gateway.api.tls) == (True, config.gateway.api.port, None)
    alerts = (DOCKER / "monitoring" / "alerts.yaml").read_text()
    assert set(re.findall(r'job="(\w+)"', alerts)) == {job["job_name"]}


def test_grafana_reads_that_prometheus_and_has_the_dashboard() -> None:
    folder = "/etc/grafana/provisioning"
    (source,) = mounted("grafana", f"{folder}/datasources/spillway.yaml")["datasources"]
    ports = SERVICES["prometheus"]["ports"]
    assert source["url"] == f"http://prometheus:{ports[0].split(':')[-1]}"
    (provider,) = mounted("grafana", f"{folder}/dashboards/spillway.yaml")["providers"]
    (board,) = [target for target in mounts("grafana") if target.startswith(provider["options"]["path"])]
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == board
    described = json.loads((DOCKER / mounts("grafana")[board]).read_text())
    # The dashboard asks for a data source of this kind, and takes the default one.
    assert described["templating"]["list"][0]["query"] == source["type"]
    assert source["isDefault"]


def test_prometheus_own_tool_accepts_settings_and_rules(tmp_path: Path) -> None:
    for name in ("prometheus.yaml", "alerts.yaml"):
        shutil.copy(DOCKER / "monitoring" / name, tmp_path)
    command = [
        prometheus_program("promtool"),
        "check",
        "config",
        "--lint=all",
        "--lint-fatal",
        str(tmp_path / "prometheus.yaml"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_topics_are_those_of_the_queries() -> None:
    text = (DOCKER / "spillway.yaml").read_text()
    asked = {word for found in re.findall(r"topics: \[(\w+)\]|topic: ([\w-]+)", text) for word in found if word}
    assert set(SERVICES["prepare"]["command"]) == asked


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/well" else 503)
        self.end_headers()
        self.wfile.write(b"the disk is full")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        ("http://127.0.0.1:{port}/well", 0, "the disk is full"),
        ("http://127.0.0.1:{port}/ready", 1, "503: the disk is full"),
        ("tcp://127.0.0.1:{port}", 0, "accepts connections"),
        ("tcp://127.0.0.1:1", 1, "refused"),
        ("http://127.0.0.1:1/ready", 1, "refused"),
        ("", 1, "write http://"),
    ],
)
def test_the_health_check_says_what_is_wrong(server: int, url: str, code: int, says: str) -> None:
    environ = {"SPILLWAY_HEALTH": url.format(port=server)}
    command = [sys.executable, "-I", str(DOCKER / "healthy.py")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, says in done.stdout, done.stderr) == (code, True, ""), done.stdout


def test_the_health_check_accepts_one_certificate_only(tmp_path: Path) -> None:
    certificate, key = server_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other, _ = server_certificate(tmp_path / "other")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            for path, code, says in (
                (str(certificate), 0, "the disk is full"),
                (str(other), 1, "CERTIFICATE_VERIFY_FAILED"),
                (str(key), 1, "has no certificate in PEM"),
                ("", 1, "https needs SPILLWAY_CERTIFICATE"),
            ):
                environ = {"SPILLWAY_CERTIFICATE": path}
                url = f"https://127.0.0.1:{server.server_port}/well"
                command = [sys.executable, "-I", str(DOCKER / "healthy.py"), url]
                done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
                assert (done.returncode, says in done.stdout) == (code, True), done.stdout + done.stderr
        finally:
            server.shutdown()
            thread.join()


def engine(folder: Path, name: str, *, works: bool) -> None:
    """A program that has the name of a container engine."""
    program = folder / name
    program.write_text(f'#!/bin/bash\n[ "$1" != info ] || exit {0 if works else 1}\necho {name} "$@"\n')
    program.chmod(0o755)


def build(tmp_path: Path, **engines: bool) -> subprocess.CompletedProcess[str]:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "env", "sed", "dirname"):
        (tools / name).symlink_to(str(shutil.which(name)))
    for name, works in engines.items():
        engine(tools, name, works=works)
    environ = {"PATH": str(tools)}
    return subprocess.run([str(DOCKER / "build")], env=environ, capture_output=True, text=True, check=False)


def test_the_image_is_built_by_the_engine_that_answers(tmp_path: Path) -> None:
    done = build(tmp_path, docker=False, podman=True)
    assert done.returncode == 0
    assert done.stdout.split() == f"podman build --format docker --file docker/Dockerfile --tag {OURS} .".split()


@pytest.mark.parametrize("engines", [{}, {"docker": False}])
def test_without_an_engine_it_says_so(tmp_path: Path, engines: dict[str, bool]) -> None:
    done = build(tmp_path, **engines)
    assert (done.returncode, done.stdout) == (1, "")
    assert "neither Docker nor Podman" in done.stderr
    assert os.access(DOCKER / "build", os.X_OK)
