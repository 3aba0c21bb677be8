from __future__ import annotations

import asyncio
import json
import socket

import aiohttp
import pytest

from gateway.api import ApiError, serve_api
from gateway.config.models import Api


class Answers:
    def __init__(self) -> None:
        self.phase = "starting"
        self.trouble = ""

    def status(self) -> str:
        return json.dumps({"phase": self.phase})


@pytest.fixture
def api() -> Api:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return Api(listen=f"127.0.0.1:{listener.getsockname()[1]}")


async def asked(api: Api, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{api.listen}{path}") as answer:
        return answer.status, await answer.text()


async def test_status_and_ready_in_each_phase(api: Api) -> None:
    gateway = Answers()
    async with serve_api(gateway, api):
        for phase, code in (("starting", 503), ("running", 200), ("stopping", 503)):
            gateway.phase = phase
            assert await asked(api, "/ready") == (code, phase)
            assert await asked(api, "/status") == (200, f'{{"phase": "{phase}"}}')
        gateway.phase, gateway.trouble = "running", "query q: the sink: no space left"
        assert await asked(api, "/ready") == (503, "query q: the sink: no space left")
        gateway.trouble = ""
        assert await asked(api, "/ready") == (200, "running")
        assert (await asked(api, "/else"))[0] == 404
    with pytest.raises(aiohttp.ClientConnectionError):
        await asked(api, "/status")


async def test_a_port_in_use_is_a_sentence_and_frees_what_was_set_up(api: Api) -> None:
    async with serve_api(Answers(), api):
        before = asyncio.all_tasks()
        with pytest.raises(
            ApiError, match=rf"gateway.api.listen: cannot listen on {api.listen} .*in use.*another port"
        ):
            async with serve_api(Answers(), api):
                pass
        assert asyncio.all_tasks() == before
        assert (await asked(api, "/ready"))[0] == 503
