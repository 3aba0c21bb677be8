"""The Helm chart as Helm renders it. ``python -m tests.docker.helm_chart`` writes rendered.yaml anew, with helm."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.docker.docker_files import DOCKER

CHART = DOCKER / "helm"
HERE = Path(__file__).parent / "helm"
RENDERED = HERE / "rendered.yaml"
VALUES = HERE / "values.yaml"
_NOTE = "# Rendered by Helm from docker/helm and values.yaml, of which this is the SHA-256: "


def has_helm() -> bool:
    """Return whether Helm is installed."""
    return shutil.which("helm") is not None


def fingerprint() -> str:
    """Return a hash of all that the rendered chart is made from."""
    digest = hashlib.sha256()
    for path in [*sorted(CHART.rglob("*.*")), VALUES]:
        digest.update(f"{path.name}\0{path.read_text()}\0".encode())
    return digest.hexdigest()


def rendered_from() -> str:
    """Return the hash that is noted in rendered.yaml."""
    return RENDERED.read_text().splitlines()[0].removeprefix(_NOTE)


def resources(text: str) -> dict[str, dict[str, Any]]:
    """Return the resources in a rendered chart, by kind and name."""
    found = [each for each in YAML(typ="safe").load_all(text) if each]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm."""
    return subprocess.run(["helm", *arguments], capture_output=True, text=True, timeout=120, check=False)


def templated(*options: str) -> subprocess.CompletedProcess[str]:
    """Let Helm render the chart for a release called spillway."""
    return helm("template", "spillway", str(CHART), "--kube-version", "1.33", *options)


def template(*options: str) -> str:
    """Return the chart as Helm renders it."""
    done = templated(*options)
    assert done.returncode == 0, done.stderr
    return done.stdout


if __name__ == "__main__":
    RENDERED.write_text(f"{_NOTE}{fingerprint()}\n{template('--values', str(VALUES))}")
