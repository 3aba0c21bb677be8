"""The probes of a daemon whose hosts and query are doubles: whether it lives and is ready, and its metrics."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from tests.connectors.ports import free_port
from tests.gateway.daemon_site import no_texts
from tests.page.burst_site import BurstSite, running
from tests.support.waiting import until

__all__ = ["no_texts"]
NAME = re.compile(r"spillway_[a-z][a-z0-9_]*|process_[a-z0-9_]+")
MONITORING = Path(__file__).parents[2] / "docker" / "monitoring"
LABELS = {"query", "lane", "place", "phase", "state", "per", "event", "threshold", "version", "le", "outcome"}


@pytest.fixture
async def burst(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BurstSite]:
    async with running(tmp_path, monkeypatch, free_port()) as site:
        yield site


class Answer(NamedTuple):
    status: int
    text: str
    content_type: str


async def asked(site: BurstSite, path: str, **headers: str) -> Answer:
    async with aiohttp.ClientSession() as session, session.get(f"{site.url}{path}", headers=headers) as answer:
        return Answer(answer.status, await answer.text(), answer.headers["Content-Type"])


async def scraped(site: BurstSite) -> dict[str, Metric]:
    answer = await asked(site, "/metrics")
    assert answer.status == 200
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    found = [
        sample.value
        for family in families.values()
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    assert len(found) == 1, (name, labels, found)
    return float(found[0])


async def test_metrics_follow_a_burst(burst: BurstSite) -> None:
    tally = burst.site.query.tally
    tally.arrived(0, 99)
    tally.completed("home", 0.3, 60)
    tally.completed("vm-1", 0.02, 30)
    tally.completed("vm-2", 40.0, 10)
    tally.released(0.5, 60, 60, late=False)
    before = await scraped(burst)
    assert value(before, "spillway_info", version=burst.site.seeing.overview().version) == 1
    assert value(before, "spillway_query_events_total", query="words") == 100
    assert value(before, "spillway_query_completed_events_total", query="words", place="home") == 60
    assert value(before, "spillway_query_completed_events_total", query="words", place="vms") == 40
    counted = "spillway_query_processing_latency_seconds"
    bounds = ("0.01", "0.025", "0.5", "30.0", "+Inf")
    below = [value(before, f"{counted}_bucket", query="words", le=bound) for bound in bounds]
    assert below == [0, 30, 90, 90, 100]
    assert value(before, f"{counted}_sum", query="words") == pytest.approx(60 * 0.3 + 30 * 0.02 + 10 * 40.0)
    assert value(before, "spillway_query_delivery_latency_seconds_count", query="words") == 60
    assert value(before, "spillway_query_threshold_seconds", query="words", threshold="start_vm_above") == 2.4
    assert value(before, "spillway_vm_events_total", event="launched") == 0
    assert value(before, "spillway_budget_limit_usd", per="day") == 5
    assert value(before, "process_resident_memory_bytes") > 1e7

    burst.latency_s = 5.0
    await until(lambda: burst.site.query.cloud_share > 0)
    after = await scraped(burst)
    assert value(after, "spillway_query_latency_seconds", query="words") == 5
    assert value(after, "spillway_vm_events_total", event="launched") == 1
    assert sum(sample.value for sample in after["spillway_vms"].samples) == 1
    assert value(after, "spillway_vm_cost_usd_total") > 0
    assert value(after, "spillway_query_cloud_share_ratio", query="words") > 0


async def test_names_keep_to_the_conventions_and_are_documented(burst: BurstSite) -> None:
    families = await scraped(burst)
    ours = {name: family for name, family in families.items() if name.startswith("spillway")}
    assert len(ours) > 30
    assert [name for name in families if not NAME.fullmatch(name) and name != "spillway"] == []
    for name, family in ours.items():
        assert family.documentation.endswith("."), name
        assert re.search(r"_(ms|minutes|hours|percent|kb|mb|milliseconds)(_|$)", name) is None, name
        assert family.type in ("gauge", "counter", "histogram"), name
        assert {label for sample in family.samples for label in sample.labels} <= LABELS, name
    described = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    names = {sample.name for family in ours.values() for sample in family.samples} | {
        name for name, family in ours.items() if family.type == "gauge"
    }
    short = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
    assert {name for name in short if f"`{name}`" not in described} == set()
    assert set(re.findall(r"`(spillway_\w+)`", described)) <= short


async def test_alerts_and_the_dashboard_use_only_metrics_and_labels_that_exist(burst: BurstSite) -> None:
    families = await scraped(burst)
    samples = {name: family for name, family in families.items() if family.type == "gauge"}
    samples |= {sample.name: family for family in families.values() for sample in family.samples}
    # A histogram has samples once something was measured, and its names are known before.
    samples |= {f"{name}_bucket": family for name, family in families.items() if family.type == "histogram"}
    rules = YAML(typ="safe").load(MONITORING / "alerts.yaml")["groups"][0]["rules"]
    board = json.loads((MONITORING / "dashboard.json").read_text())
    asked = [rule["expr"] for rule in rules]
    asked += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [variable["query"]["query"] for variable in board["templating"]["list"][1:]]
    assert len(asked) > 20
    for expression in asked:
        named = re.findall(r"\bspillway_\w+", expression)
        assert named or expression.startswith("up{"), expression
        assert [name for name in named if name not in samples] == [], expression
        for name, matchers in re.findall(r"\b(spillway_\w+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)(?:=|!=)", matchers)) - {"instance"}
            exist = {label for sample in samples[name].samples for label in sample.labels}
            # Where nothing is measured yet, no label is known.
            assert labels <= (exist or LABELS), expression
    assert [rule["alert"] for rule in rules if rule["annotations"].keys() != {"summary", "action"}] == []


async def test_openmetrics_is_spoken_to_those_who_ask_for_it(burst: BurstSite) -> None:
    answer = await asked(burst, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert answer.content_type.startswith("application/openmetrics-text")
    families = {family.name for family in openmetrics_parser.text_string_to_metric_families(answer.text)}
    assert {"spillway_query_events", "spillway_ready", "spillway"} <= families


async def test_probes_say_whether_it_lives_and_why_it_is_not_ready(burst: BurstSite) -> None:
    async def said(path: str) -> tuple[int, Any]:
        async with aiohttp.ClientSession() as session, session.get(f"{burst.url}{path}") as answer:
            return answer.status, await answer.json()

    assert await said("/healthz") == (200, {"alive": True, "phase": "running"})
    assert await said("/readyz") == (200, {"ready": True, "reasons": []})
    burst.site.query.trouble = "the sink: no space left"
    reasons = [{"what": "query words", "why": "the sink: no space left"}]
    assert await said("/readyz") == (503, {"ready": False, "reasons": reasons})
    assert (await said("/healthz"))[0] == 200
    assert value(await scraped(burst), "spillway_ready") == 0
    assert value(await scraped(burst), "spillway_query_troubled", query="words") == 1
    burst.site.query.trouble = ""
    assert (await said("/readyz"))[0] == 200


async def test_a_gateway_that_is_not_running_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, monkeypatch, free_port()) as site:
        site.site.daemon.phase = "stopping"
        answer = await asked(site, "/readyz")
        assert (answer.status, '"why": "it is stopping"' in answer.text) == (503, True)
        assert value(await scraped(site), "spillway_phase", phase="stopping") == 1
        site.site.daemon.phase = "running"
