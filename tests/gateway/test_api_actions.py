"""The API of a daemon whose hosts and query are doubles: what it shows, and what an operator may order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.journal.deadletters import dead_letter
from gateway.query.supervision.supervisor import Supervisor
from infra.rows.base import SourceError
from tests.gateway.daemon_site import no_texts
from tests.gateway.operator_site import Operator, operator
from tests.support.waiting import until

__all__ = ["no_texts", "operator"]


async def test_everything_can_be_seen_without_a_token(operator: Operator) -> None:
    status, whole = await operator.get("/api/v1/status")
    assert status == 200
    assert (whole["phase"], whole["ready"], whole["queries"]) == ("running", True, {"words": "running"})
    _, listed = await operator.get("/api/v1/queries")
    one = listed["queries"][0]
    assert await operator.get("/api/v1/queries/words") == (200, one)
    assert one["thresholds"]["qos_latency_s"] == 2.0
    assert one["thresholds"]["start_vm_above_s"] == pytest.approx(2.4)
    assert (await operator.get("/api/v1/costs"))[1]["usd_per_day"] == 5.0
    assert (await operator.get("/api/v1/lanes")) == (200, {"lanes": []})
    assert (await operator.get("/api/v1/vms")) == (200, {"vms": []})
    assert (await operator.get("/api/v1/queries/verbs"))[0] == 404
    assert (await operator.get("/api/v1/else"))[0] == 404


ACTIONS = [
    "queries/words/pin",
    "queries/words/unpin",
    "queries/words/restart",
    "queries/words/dead-letters/replay",
    "queries/words/dead-letters/drop",
    "vms/vm-1/drain",
    "vms/vm-1/stop",
    "decisions/pause",
    "decisions/resume",
    "reload",
    "drain",
]


async def test_no_action_without_the_token_and_each_attempt_is_noted_once(operator: Operator) -> None:
    _, described = await operator.get("/openapi.json")
    posts = {path.removeprefix("/api/v1/") for path, methods in described["paths"].items() if "post" in methods}
    assert posts == {path.replace("words", "{query}").replace("vm-1", "{vm}") for path in ACTIONS}
    for path in ACTIONS:
        status, said = await operator.post(
            f"/api/v1/{path}", {"to": "home"} if path.endswith("pin") else {}, token=False
        )
        assert (status, "token" in said["error"]) == (401, True), path
    operator.headers = {"Authorization": "Bearer " + "x" * 43}
    assert (await operator.post("/api/v1/drain"))[0] == 401
    assert operator.site.daemon.phase == "running"
    assert not operator.site.daemon.parts.scheduler.pins
    await until(lambda: len(operator.audit()) == 1)
    assert operator.audit()[0]["outcome"].startswith("refused: no token")


async def test_dead_letters_show_users_data_and_need_the_token(operator: Operator) -> None:
    assert (await operator.get("/api/v1/queries/words/dead-letters"))[0] == 401
    assert (await operator.get("/api/v1/queries/words/dead-letters/0"))[0] == 401


async def test_a_pin_is_shown_noted_and_ended(operator: Operator) -> None:
    status, said = await operator.post("/api/v1/queries/words/pin", {"to": 0.25, "for": "10m"})
    assert (status, said) == (200, {"done": "query words is pinned 25.0% to the cloud for 600 s"})
    assert (await operator.get("/api/v1/queries/words"))[1]["pin"]["share"] == 0.25
    assert (await operator.post("/api/v1/queries/words/unpin"))[0] == 200
    assert (await operator.get("/api/v1/queries/words"))[1]["pin"] is None
    assert await operator.post("/api/v1/queries/words/unpin") == (409, {"error": "query words is not pinned"})
    await until(lambda: len(operator.audit()) == 3)
    noted = [(line["action"], line["arguments"], line["from"], line["outcome"]) for line in operator.audit()]
    assert noted == [
        ("POST /api/v1/queries/words/pin", {"to": 0.25, "for": "10m"}, "127.0.0.1", "done"),
        ("POST /api/v1/queries/words/unpin", {}, "127.0.0.1", "done"),
        ("POST /api/v1/queries/words/unpin", {}, "127.0.0.1", "refused: query words is not pinned"),
    ]


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ({}, "to: Field required"),
        ({"to": "moon"}, "to"),
        ({"to": 1.5}, "to"),
        ({"to": "home", "for": "8d"}, "for"),
        ({"to": "home", "for": 60}, "for"),
        ({"to": "home", "why": "because"}, "why"),
        ([1], "body"),
    ],
)
async def test_an_order_that_is_wrong_is_refused_with_its_place(operator: Operator, order: Any, says: str) -> None:
    status, said = await operator.post("/api/v1/queries/words/pin", order)
    assert status == 422
    assert says in said["error"]


async def test_a_query_that_may_not_be_switched_cannot_be_pinned_to_the_cloud(operator: Operator) -> None:
    operator.site.daemon.parts.scheduler.queries["words"].opened(switchable=False, reason="it keeps state")
    refused = (409, {"error": "query words stays home: it keeps state"})
    assert await operator.post("/api/v1/queries/words/pin", {"to": "cloud"}) == refused
    assert (await operator.post("/api/v1/queries/words/pin", {"to": "home"}))[0] == 200


async def test_decisions_are_paused_and_resumed(operator: Operator) -> None:
    assert (await operator.post("/api/v1/decisions/pause", {"for": "5m"}))[0] == 200
    _, whole = await operator.get("/api/v1/status")
    assert whole["paused"]
    assert whole["paused_until"] is not None
    assert (await operator.post("/api/v1/decisions/resume"))[0] == 200
    assert not (await operator.get("/api/v1/status"))[1]["paused"]
    assert (await operator.post("/api/v1/decisions/resume"))[0] == 409


async def test_only_a_vm_that_lives_can_be_stopped(operator: Operator) -> None:
    said = {"error": "there is no VM vm-7; the VMs are none"}
    assert await operator.post("/api/v1/vms/vm-7/stop") == (404, said)


async def test_a_failed_query_is_opened_again_on_an_order(operator: Operator) -> None:
    running = (409, {"error": "query words is running: only one that has failed can be restarted"})
    assert await operator.post("/api/v1/queries/words/restart") == running
    supervisor: Supervisor = operator.site.daemon.parts.supervision.of["words"]
    operator.site.query.fails = SourceError("in.jsonl is damaged")
    await until(lambda: supervisor.state == "failed")
    assert (await operator.get("/api/v1/queries/words"))[1]["reason"] == "in.jsonl is damaged"
    before = operator.site.said.count("start")
    assert (await operator.post("/api/v1/queries/words/restart"))[0] == 200
    await until(lambda: supervisor.state == "running", deadline_s=4.0)
    assert operator.site.said.count("start") == before + 1


async def test_dead_letters_are_listed_page_by_page_looked_at_and_dropped(operator: Operator) -> None:
    folder = operator.folder / "state" / "queries" / "words"
    folder.mkdir(parents=True, exist_ok=True)
    letters = [dead_letter(f"reason {n}", b"<script>" + bytes([0xFF] * (n == 2)), 1.7e9, seq=n) for n in range(5)]
    (folder / "dead-letters.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(letters))
    path, found, after = "/api/v1/queries/words/dead-letters", [], 0
    for _ in range(3):
        status, page = await operator.get(path, token=True, after=after, limit=2)
        assert status == 200
        found += page["letters"]
        after = page["next"] or 0
    assert [letter["reason"] for letter in found] == [f"reason {n}" for n in range(5)]
    assert [letter["encoding"] for letter in found] == ["text", "text", "base64", "text", "text"]
    assert after == 0
    assert await operator.get(f"{path}/{found[3]['position']}", token=True) == (200, found[3])
    for wrong in (1, found[4]["position"] + 1, 10**9, "x", "-1"):
        assert (await operator.get(f"{path}/{wrong}", token=True))[0] == 404
    assert (await operator.get(path, token=True, limit=1000))[0] == 422
    assert await operator.post(f"{path}/drop") == (200, {"count": 3})
    assert operator.site.said[-1] == "drop before 0"


async def test_a_gateway_is_drained_on_an_order_as_by_sigterm(operator: Operator) -> None:
    assert (await operator.post("/api/v1/drain"))[0] == 200
    await until(lambda: operator.site.daemon.phase == "stopping")
    assert (await operator.post("/api/v1/drain"))[0] == 409
