"""Random requests to the API of a daemon, made by schemathesis from ``/openapi.json``: none is a mistake of ours."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.views.http.access import read_token
from tests.connectors.ports import free_port
from tests.gateway.daemon_site import Site, no_texts
from tests.support.waiting import until

__all__ = ["no_texts"]
CONFIG = Path(__file__).with_name("schemathesis.toml")
SEED = 20_261_125
"""Of all random requests. Another one may be put here by hand: it is printed with the output."""


class ServedDaemon:
    """A daemon on a thread of its own: schemathesis blocks while it waits for an answer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    async def _run(self) -> None:
        # Signals can only be handled on the main thread.
        self._loop.add_signal_handler = lambda *_: None  # type: ignore[method-assign]
        site = Site(self._folder, port=self._port)
        running = asyncio.create_task(site.daemon.run(False, None))
        await until(lambda: running.done() or site.daemon.phase == "running")
        self._ready.set()
        await self._end.wait()
        assert not running.done(), "the daemon ended"
        site.query.idle = True
        site.daemon.parts.drain()
        await running

    def __enter__(self) -> ServedDaemon:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)
        self._loop.close()

    @property
    def phase(self) -> str:
        with urllib.request.urlopen(f"{self.url}/api/v1/status", timeout=30) as answer:
            return str(json.load(answer)["phase"])

    @property
    def described(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/openapi.json", timeout=30) as answer:
            described: dict[str, Any] = json.load(answer)
        return described

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {read_token(self._folder / 'state' / 'api-token')}"}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ServedDaemon]:
    with ServedDaemon(tmp_path) as served:
        yield served


def fuzzed(daemon: ServedDaemon, folder: Path, *options: str, query: str | None = None) -> tuple[int, str]:
    """What schemathesis says about the API, and how many requests it has made."""
    config = folder / "schemathesis.toml"
    parameters = "" if query is None else f'[parameters]\n"path.query" = "{query}"\n\n'
    config.write_text(parameters + CONFIG.read_text())
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config)),
        *("run", f"{daemon.url}/openapi.json", "--header", f"Authorization: {daemon.headers['Authorization']}"),
        *("--seed", str(SEED), "--generation-database", "none", "--no-shrink", "--continue-on-failure"),
        *("--request-timeout", "30", "--no-color", *options),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    said = done.stdout + done.stderr
    print(f"seed {SEED}\n{said}")
    assert done.returncode == 0, said
    assert f"Seed: {SEED}\n" in said
    (generated,) = re.findall(r"(\d+) generated, \d+ passed", said)
    return int(generated), said


def test_all_answers_about_a_query_are_those_that_are_described(daemon: ServedDaemon, tmp_path: Path) -> None:
    phases = ("--phases", "examples,coverage,fuzzing", "--max-examples", "8")
    generated, said = fuzzed(daemon, tmp_path, *phases, query="words")
    described = len(daemon.described["paths"])
    assert f"Operations:       {described - 2} selected / {described} total" in said
    assert generated > 400


def test_names_of_nothing_are_refused_as_described(daemon: ServedDaemon, tmp_path: Path) -> None:
    generated, _ = fuzzed(daemon, tmp_path, "--phases", "fuzzing", "--max-examples", "6", "--include-path-regex", "{")
    assert generated > 50


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer ", "Bearer nothing", "Basic c3BpbGx3YXk6"])
def test_nothing_acts_without_the_token(daemon: ServedDaemon, authorization: str | None) -> None:
    acting = [
        (method.upper(), path)
        for path, methods in daemon.described["paths"].items()
        for method, described in methods.items()
        if method != "get" or described.get("security")
    ]
    assert len(acting) >= 12
    older = [("POST", "/queries/{query}/replay-dead-letters"), ("POST", "/certificates/rotate")]
    headers = {"Content-Type": "application/json"} | ({} if authorization is None else {"Authorization": authorization})
    for method, path in [*acting, *older]:
        url = daemon.url + path.replace("{query}", "words").replace("{vm}", "vm-1").replace("{position}", "0")
        request = urllib.request.Request(url, b"{}" if method != "GET" else None, headers, method=method)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        with refused.value as answer:
            assert (answer.code, answer.headers["WWW-Authenticate"]) == (401, "Bearer"), (method, path)
    assert daemon.phase == "running"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST"])
def test_what_is_not_described_does_not_act(daemon: ServedDaemon, method: str) -> None:
    """With the token: there is no action besides those whose paths are described."""
    for path, methods in daemon.described["paths"].items():
        if method.lower() in methods:
            continue
        url = daemon.url + path.replace("{query}", "words").replace("{vm}", "vm-1").replace("{position}", "0")
        headers = {**daemon.headers, "Content-Type": "application/json"}
        request = urllib.request.Request(url, b"{}", headers, method=method)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        with refused.value as answer:
            assert answer.code == 405, (method, path)
            assert {*answer.headers["Allow"].lower().split(",")} <= {*methods, "head"}


@pytest.mark.parametrize(
    "body",
    [b"{", b"[" * 100_000, b'{"to": NaN}', b"\xff", b'{"to": "home", "for": "1h"}' + b" " * 70_000],
    ids=["cut", "deep", "no number", "no text", "large"],
)
def test_a_body_that_is_no_order_is_refused(daemon: ServedDaemon, body: bytes) -> None:
    headers = {**daemon.headers, "Content-Type": "application/json"}
    request = urllib.request.Request(f"{daemon.url}/api/v1/queries/words/pin", body, headers, method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=5)
    with refused.value as answer:
        assert answer.code in (413, 422)
        assert json.load(answer)["error"]
