from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from gateway.config.models import ApiConfig
from gateway.hosts.rotation import RotationRefusedError
from gateway.journal.deadletters import ReplayRefusedError
from gateway.views.api import ApiError, serve_api
from tests.connectors.ports import free_port


class Answers:
    def __init__(self) -> None:
        self.phase = "starting"
        self.trouble = ""

    def trouble_of(self, query: str) -> str:
        return {"good": "", "bad": "failed: its function raises"}[query]

    def status(self) -> str:
        return json.dumps({"phase": self.phase})

    def why(self) -> str:
        return json.dumps({"q": {"verdict": "stays home"}})

    async def replay_dead_letters(self, query: str) -> int:
        if query == "busy":
            raise ReplayRefusedError("3 dead letters are on their way already")
        if query == "broken":
            raise OSError(28, "No space left on device")
        return {"q": 7}[query]

    async def rotate_certificates(self) -> dict[str, list[str]]:
        if self.phase != "running":
            raise RotationRefusedError(f"the gateway is {self.phase}: retry when it is running")
        return {"renewed": ["home-1"], "later": []}


@pytest.fixture
def api() -> ApiConfig:
    return ApiConfig(listen=f"127.0.0.1:{free_port()}")


async def asked(api: ApiConfig, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{api.listen}{path}") as answer:
        return answer.status, await answer.text()


async def test_status_and_ready_in_each_phase(api: ApiConfig) -> None:
    gateway = Answers()
    async with serve_api(gateway, api):
        for phase, code in (("starting", 503), ("running", 200), ("stopping", 503)):
            gateway.phase = phase
            assert await asked(api, "/ready") == (code, phase)
            assert await asked(api, "/status") == (200, f'{{"phase": "{phase}"}}')
            assert await asked(api, "/why") == (200, '{"q": {"verdict": "stays home"}}')
        gateway.phase, gateway.trouble = "running", "query q: the sink: no space left"
        assert await asked(api, "/ready") == (503, "query q: the sink: no space left")
        assert await asked(api, "/ready?query=good") == (200, "running")
        assert await asked(api, "/ready?query=bad") == (503, "failed: its function raises")
        assert await asked(api, "/ready?query=none") == (404, "there is no query none")
        gateway.trouble = ""
        assert await asked(api, "/ready") == (200, "running")
        assert (await asked(api, "/else"))[0] == 404
    with pytest.raises(aiohttp.ClientConnectionError):
        await asked(api, "/status")


@pytest.mark.parametrize(
    ("query", "code", "says"),
    [
        ("q", 200, '{"replayed": 7}'),
        ("else", 404, "there is no query else"),
        ("busy", 409, "on their way already"),
        ("broken", 503, "No space left on device: try again"),
    ],
)
async def test_a_replay_is_asked_for_by_name(api: ApiConfig, query: str, code: int, says: str) -> None:
    url = f"http://{api.listen}/queries/{query}/replay-dead-letters"
    async with serve_api(Answers(), api), aiohttp.ClientSession() as session:
        async with session.post(url, headers={"Content-Type": "application/json"}) as answer:
            assert answer.status == code
            assert says in await answer.text()
        async with session.post(url, data=b"") as answer:
            assert answer.status == 415, "a page of another site could send this"


async def test_new_certificates_are_asked_for_and_may_be_refused(api: ApiConfig) -> None:
    gateway, url = Answers(), f"http://{api.listen}/certificates/rotate"
    async with serve_api(gateway, api), aiohttp.ClientSession() as session:
        for phase, code, says in (
            ("starting", 409, "retry when it is running"),
            ("running", 200, '"renewed": ["home-1"]'),
        ):
            gateway.phase = phase
            async with session.post(url, headers={"Content-Type": "application/json"}) as answer:
                assert answer.status == code
                assert says in await answer.text()
        async with session.post(url, data=b"") as answer:
            assert answer.status == 415, "a page of another site could send this"


async def test_a_port_in_use_is_a_sentence_and_frees_what_was_set_up(api: ApiConfig) -> None:
    async with serve_api(Answers(), api):
        before = asyncio.all_tasks()
        with pytest.raises(
            ApiError, match=rf"gateway.api.listen: cannot listen on {api.listen} .*in use.*another port"
        ):
            async with serve_api(Answers(), api):
                pass
        assert asyncio.all_tasks() == before
        assert (await asked(api, "/ready"))[0] == 503
