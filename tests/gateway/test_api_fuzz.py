"""Random requests to the API of a daemon, made by schemathesis from ``/openapi.json``: none is a mistake of ours."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.views.http.access import read_token
from tests.connectors.ports import free_port
from tests.gateway.daemon_site import Site, no_texts
from tests.support.waiting import until

__all__ = ["no_texts"]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 20


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
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {read_token(self._folder / 'state' / 'api-token')}"}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ServedDaemon]:
    with ServedDaemon(tmp_path) as served:
        yield served


def test_no_request_makes_the_api_fail_or_answer_what_it_does_not_promise(daemon: ServedDaemon) -> None:
    with urllib.request.urlopen(f"{daemon.url}/openapi.json", timeout=5) as answer:
        described = json.load(answer)
    # It would end the daemon.
    del described["paths"]["/api/v1/drain"]
    schema = schemathesis.openapi.from_dict(described)
    schema.config.update(base_url=daemon.url)
    names = st.sampled_from(["words", "vm-1", "0"])
    tried = 0
    for found in schema.get_all_operations():
        operation = cast("Any", found).ok()
        cases = operation.as_strategy()

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases, name=st.none() | names, with_token=st.booleans())
        def ask(case: Any, name: str | None, with_token: bool) -> None:
            nonlocal tried
            if name is not None:
                case.path_parameters = dict.fromkeys(case.path_parameters or {}, name)
            headers = daemon.headers if with_token else {}
            response = case.call(headers=headers, timeout=5)
            case.validate_response(response, checks=CHECKS)
            if not with_token and case.method.upper() == "POST":
                assert response.status_code in (401, 404, 405)
            tried += 1

        ask()
    assert tried >= 10 * len(described["paths"])


@pytest.mark.parametrize(
    "body", [b"{", b"[" * 100_000, b'{"to": NaN}', b"\xff", b'{"to": "home", "for": "1h"}' + b" " * 70_000]
)
def test_a_body_that_is_no_order_is_refused(daemon: ServedDaemon, body: bytes) -> None:
    headers = {**daemon.headers, "Content-Type": "application/json"}
    request = urllib.request.Request(f"{daemon.url}/api/v1/queries/words/pin", body, headers, method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=5)
    with refused.value as answer:
        assert answer.code in (413, 422)
        assert json.load(answer)["error"]
