"""A real Prometheus: where its programs are, and what it answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import urllib.parse
import urllib.request
from typing import Any

from tests.docker.docker_files import DOCKER, ROOT

_PLACES = os.pathsep.join([os.environ.get("PATH", ""), str(ROOT / "build" / "prometheus" / "usr" / "bin")])
# What Grafana puts in place of its variables.
_VARIABLES = {"$instance": ".*", "$query": ".*", "$__rate_interval": "1m"}


def prometheus_program(name: str) -> str:
    """Return the path of prometheus or promtool, or fail the test."""
    found = shutil.which(name, path=_PLACES)
    assert found, f"{name} is missing: run .ci/prometheus, or install it (Debian/Ubuntu: apt-get install prometheus)"
    return found


class Prometheus:
    """What a running Prometheus answers; ``address`` is host and port."""

    def __init__(self, address: str) -> None:
        self._base = f"http://{address}/api/v1"

    def rules(self) -> dict[str, str]:
        """Return the health of each alert rule: unknown before it was evaluated, then ok or err."""
        groups = self._get("rules")["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def series(self, expression: str) -> list[dict[str, Any]]:
        """Return what an expression gives now."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def _get(self, what: str, **asked: str) -> Any:
        with urllib.request.urlopen(f"{self._base}/{what}?{urllib.parse.urlencode(asked)}", timeout=30) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]


def dashboard_expressions() -> list[str]:
    """Return the expressions of our dashboard as Grafana sends them."""
    text = (DOCKER / "monitoring" / "dashboard.json").read_text()
    found = [target["expr"] for panel in json.loads(text)["panels"] for target in panel.get("targets", ())]
    variable = re.compile("|".join(map(re.escape, _VARIABLES)))
    return [variable.sub(lambda name: _VARIABLES[name[0]], each) for each in found]
