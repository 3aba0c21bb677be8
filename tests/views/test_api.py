from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import pytest

from gateway.config.models import ApiConfig
from gateway.hosts.rotation import RotationRefusedError
from gateway.journal.deadletters import ReplayRefusedError
from gateway.views.http.access import ApiToken, TokenError, open_token, read_token
from gateway.views.http.probes.metrics import MeasuredGateway
from gateway.views.http.probes.probing import Probed
from gateway.views.http.serving import ApiError, ServedGateway, serve_api
from gateway.views.live.history import History
from infra.clock import SystemClock
from tests.connectors.ports import free_port

Serve = Callable[["Answers"], AbstractAsyncContextManager[str]]


class Answers:
    def __init__(self) -> None:
        self.phase = "starting"
        self.trouble = ""

    def trouble_of(self, query: str) -> str:
        return {"good": "", "bad": "failed: its function raises"}[query]

    def troubles(self) -> dict[str, str]:
        return {"query q": self.trouble} if self.trouble else {}

    def measured(self) -> MeasuredGateway:
        raise AssertionError("nobody asks for metrics here")

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


@pytest.fixture
def serve(tmp_path: Path, api: ApiConfig) -> Serve:
    def served(gateway: Answers) -> AbstractAsyncContextManager[str]:
        history = History(tmp_path / "history", 1.7e9)
        parts = ServedGateway(
            answers=gateway,
            rotate=gateway.rotate_certificates,
            replay=gateway.replay_dead_letters,
            operations=(),
            history=history,
            probed=Probed(lambda: gateway.phase, gateway.troubles, gateway.measured),
            state_dir=tmp_path,
            clock=SystemClock(),
        )
        return serve_api(parts, api)

    return served


def with_token(folder: Path) -> dict[str, str]:
    return {"Content-Type": "application/json", "Authorization": f"Bearer {read_token(folder / 'api-token')}"}


async def asked(api: ApiConfig, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{api.listen}{path}") as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("api", [ApiConfig(listen="127.0.0.1:0")])
async def test_port_0_becomes_the_port_on_which_it_listens(serve: Serve) -> None:
    gateway = Answers()
    gateway.phase = "running"
    async with serve(gateway) as url:
        assert not url.endswith(":0")
        assert await asked(ApiConfig(listen=url.removeprefix("http://")), "/ready") == (200, "running")


async def test_status_and_ready_in_each_phase(api: ApiConfig, serve: Serve) -> None:
    gateway = Answers()
    async with serve(gateway) as url:
        assert url == f"http://{api.listen}"
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
async def test_a_replay_is_asked_for_by_name(
    api: ApiConfig, serve: Serve, tmp_path: Path, query: str, code: int, says: str
) -> None:
    url = f"http://{api.listen}/queries/{query}/replay-dead-letters"
    async with serve(Answers()), aiohttp.ClientSession() as session:
        as_text = {**with_token(tmp_path), "Content-Type": "text/plain"}
        async with session.post(url, headers=with_token(tmp_path)) as answer:
            assert answer.status == code
            assert says in await answer.text()
        async with session.post(url, data=b"", headers=as_text) as answer:
            assert answer.status == 415, "a page of another site could send this"
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            async with session.post(url, json={}, headers=headers) as answer:
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"] == "Bearer"
                assert "token" in await answer.text()


async def test_new_certificates_are_asked_for_and_may_be_refused(api: ApiConfig, serve: Serve, tmp_path: Path) -> None:
    gateway, url = Answers(), f"http://{api.listen}/certificates/rotate"
    async with serve(gateway), aiohttp.ClientSession() as session:
        as_text = {**with_token(tmp_path), "Content-Type": "text/plain"}
        for phase, code, says in (
            ("starting", 409, "retry when it is running"),
            ("running", 200, '"renewed": ["home-1"]'),
        ):
            gateway.phase = phase
            async with session.post(url, headers=with_token(tmp_path)) as answer:
                assert answer.status == code
                assert says in await answer.text()
        async with session.post(url, data=b"", headers=as_text) as answer:
            assert answer.status == 415, "a page of another site could send this"
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            async with session.post(url, json={}, headers=headers) as answer:
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"] == "Bearer"
                assert "token" in await answer.text()


async def test_a_port_in_use_is_a_sentence_and_frees_what_was_set_up(
    api: ApiConfig, serve: Serve, tmp_path: Path
) -> None:
    async with serve(Answers()):
        before = asyncio.all_tasks()
        with pytest.raises(
            ApiError, match=rf"gateway.api.listen: cannot listen on {api.listen} .*in use.*another port"
        ):
            async with serve(Answers()):
                pass
        assert asyncio.all_tasks() == before
        assert (await asked(api, "/ready"))[0] == 503


# ---------------------------------------------------------------------------------------------------------------- token


def test_the_token_is_made_once_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "api-token"
    open_token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    first = read_token(path)
    assert len(first) >= 32
    open_token(path)
    assert read_token(path) == first


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (None, "needs the gateway's token"),
        ("Bearer", "not the gateway's token"),
        ("Basic abcdefghijklmnop", "send the token as"),
        ("Bearer abcdefghijklmnoq", "not the gateway's token"),
        ("Bearer abcdefghijklmnopq", "not the gateway's token"),
        ("Bearer \udcff", "not the gateway's token"),
        ("bearer abcdefghijklmnop", ""),
    ],
)
def test_only_the_right_token_is_accepted(header: str | None, says: str) -> None:
    refusal = ApiToken("abcdefghijklmnop").refusal(header)
    assert says in refusal
    assert bool(refusal) == bool(says)


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        (b"abcdefghijklmnop", 0o640, "other users can read it: chmod 600"),
        (b"short", 0o600, "at least 16 letters"),
        (b"with a space in the middle", 0o600, "at least 16 letters"),
        (b"x" * 5000, 0o600, "at least 16 letters"),
        (b"\xff" * 32, 0o600, "at least 16 letters"),
    ],
)
def test_a_token_file_that_is_unsafe_or_empty_is_refused(tmp_path: Path, content: bytes, mode: int, says: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(TokenError, match=says):
        open_token(path)
