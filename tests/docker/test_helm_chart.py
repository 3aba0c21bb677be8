"""The Helm chart, as Helm rendered it: right for Kubernetes' schemas, for the gateway, and beside compose.yaml."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from gateway.config import load
from tests.docker.docker_files import ROOT, compose, image, versions
from tests.docker.helm_chart import (
    CHART,
    RENDERED,
    VALUES,
    fingerprint,
    has_helm,
    helm,
    rendered_from,
    resources,
    template,
    templated,
)

OURS = resources(RENDERED.read_text())
GATEWAY, MASTER = OURS["StatefulSet/spillway-gateway"], OURS["StatefulSet/spillway-spark-master"]
WORKER = OURS["Deployment/spillway-spark-worker"]
KUBERNETES = ("1.27", "1.33")
needs_helm = pytest.mark.skipif(not has_helm(), reason="helm is not installed: the chart is not rendered anew")


def container(of: dict[str, Any]) -> dict[str, Any]:
    (found,) = of["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_the_rendered_chart_is_that_of_these_files() -> None:
    assert rendered_from() == fingerprint(), "with helm in PATH: python -m tests.docker.helm_chart"


@needs_helm
def test_helm_renders_it_so() -> None:
    assert RENDERED.read_text().partition("\n")[2] == template("--values", str(VALUES))
    linted = helm("lint", "--strict", str(CHART), "--values", str(VALUES))
    assert linted.returncode == 0, linted.stdout + linted.stderr


@needs_helm
def test_helm_asks_for_a_certificate_or_for_a_word_and_leaves_spark_out() -> None:
    refused = templated()
    assert refused.returncode != 0
    assert "the API needs a certificate: set tls.secret" in refused.stderr
    plain = resources(template("--set", "tls.insecure=true", "--set", "spark.enabled=false"))
    assert {name for name in plain if "spark" in name} == set()
    assert "insecure: true" in plain["ConfigMap/spillway-config"]["data"]["config.yaml"]
    assert container(plain["StatefulSet/spillway-gateway"])["readinessProbe"]["httpGet"]["scheme"] == "HTTP"


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", OURS)
def test_kubernetes_knows_every_key(name: str, version: str) -> None:
    kubernetes_validate.validate(OURS[name], version, strict=True)


def test_kubernetes_would_refuse_another_key() -> None:
    wrong = resources(RENDERED.read_text().replace("terminationGracePeriodSeconds", "graceSeconds"))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong["StatefulSet/spillway-gateway"], KUBERNETES[-1], strict=True)


def test_the_versions_are_the_project_s() -> None:
    chart = YAML(typ="safe").load(CHART / "Chart.yaml")
    assert {chart["version"], chart["appVersion"]} == {versions()["SPILLWAY_VERSION"]}
    ours = f"registry.example.org/spillway:{versions()['SPILLWAY_VERSION']}"
    assert {container(each)["image"] for each in (GATEWAY, MASTER, WORKER)} == {ours}


def test_the_gateway_s_config_is_right_and_has_tls(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(OURS["ConfigMap/spillway-config"]["data"]["config.yaml"])
    plain = {each["name"]: each["value"] for each in container(GATEWAY)["env"] if "value" in each}
    config = load(path, plain)
    assert (config.gateway.api.url, config.gateway.slot_s) == ("https://0.0.0.0:8088", 0.5)
    assert config.gateway.traces is not None
    tls, mounts = config.gateway.api.tls, {each["name"]: each for each in container(GATEWAY)["volumeMounts"]}
    assert tls is not None
    assert {tls.certificate.name, tls.key.name} == {"tls.crt", "tls.key"}, "the keys of such a Secret"
    assert {str(tls.certificate.parent), str(tls.key.parent)} == {mounts["tls"]["mountPath"]}
    assert config.gateway.state_dir.is_relative_to(mounts["state"]["mountPath"])
    service = OURS["Service/spillway-spark-master"]
    assert config.private.spark.master == f"spark://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert f"{mounts['config']['mountPath']}/config.yaml" == container(GATEWAY)["args"][-1] == image().command[-1]


def test_another_config_is_a_new_start() -> None:
    text = OURS["ConfigMap/spillway-config"]["data"]["config.yaml"].rstrip("\n")
    noted = GATEWAY["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
    assert noted == hashlib.sha256(text.encode()).hexdigest()


def test_probes_ask_what_the_gateway_answers() -> None:
    probes = {name: container(GATEWAY)[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness", "startup")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "liveness": "/healthz", "readiness": "/readyz", "startup": "/healthz",
    }  # fmt: skip
    assert {(probe["port"], probe["scheme"]) for probe in probes.values()} == {("api", "HTTPS")}
    assert [port for port in container(GATEWAY)["ports"] if port["containerPort"] not in image().ports] == []
    assert f"`{probes['readiness']['path']}`" in (ROOT / "docs" / "metrics.md").read_text()


@pytest.mark.parametrize("of", [GATEWAY, MASTER, WORKER], ids=["gateway", "master", "worker"])
def test_a_pod_may_do_nothing_that_it_need_not(of: dict[str, Any]) -> None:
    pod, own = of["spec"]["template"]["spec"], container(of)["securityContext"]
    uid, gid = (int(number) for number in image().user.split(":"))
    security = pod["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"], security["runAsNonRoot"]) == (uid, gid, True)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    # Otherwise the gateway's keys become readable for the group at each start, and it refuses them.
    assert (security["fsGroup"], security["fsGroupChangePolicy"]) == (gid, "OnRootMismatch")
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    assert own == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    # What is written is on volumes.
    volumes = {each["name"] for each in pod["volumes"]} | {
        each["metadata"]["name"] for each in of["spec"].get("volumeClaimTemplates", ())
    }
    written = {each["mountPath"] for each in container(of)["volumeMounts"] if not each.get("readOnly")}
    assert {image().volume, "/tmp"} <= written
    assert {each["name"] for each in container(of)["volumeMounts"]} == volumes
    assert set(container(of)["resources"]) == {"requests", "limits"}


def options_of(words: list[str]) -> list[str]:
    """The names of options, and the class."""
    return [word for word in words if word.startswith(("--", "org."))]


def test_spark_starts_as_in_the_compose_file() -> None:
    services = compose()["services"]
    for of, name in ((MASTER, "spark-master"), (WORKER, "spark-worker")):
        here, there = container(of), services[name]
        assert here["command"] == there["entrypoint"]
        assert options_of(here["args"]) == options_of(there["command"])
        environment = {each["name"] for each in here["env"]}
        assert environment == set(there["environment"]) - {"SPILLWAY_HEALTH"}


def test_selectors_find_exactly_their_pods() -> None:
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in (GATEWAY, MASTER, WORKER)]
    selectors = [each["spec"]["selector"]["matchLabels"] for each in (GATEWAY, MASTER, WORKER)]
    selectors += [each["spec"]["selector"] for name, each in OURS.items() if name.startswith("Service/")]
    for selector in selectors:
        assert sum(selector.items() <= labels.items() for labels in pods) == 1


def test_a_gateway_that_stops_has_time_to_drain() -> None:
    assert GATEWAY["spec"]["replicas"] == 1, "one gateway at a time owns a state_dir"
    grace_s = int(compose()["services"]["gateway"]["stop_grace_period"].removesuffix("m")) * 60
    assert GATEWAY["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == grace_s
