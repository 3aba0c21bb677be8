"""A gateway whose disk fails: not ready while nothing can be kept, ready again by itself, the results as ever."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from engines.email.mailbox import Mail
from tests.e2e.harness import Gateway, email_query, until, write_mail
from tests.e2e.test_exactly_once import expected_rows

FAILPOINTS = (
    "runlog.append.written=enospc@3-6 deadletters.append.written=eio@1-2 "
    "sink.commit.prepared=enospc@2-4 runlog.append.before=eio@9-11"
)
COUNT = 1500


def readiness(address: str) -> tuple[int, str]:
    """Return what /ready says; (0, "") while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://{address}/ready", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_it_is_not_ready_while_the_disk_fails_and_then_goes_on(
    tmp_path: Path, state_dir: Path, mails: list[Mail], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = mails[:COUNT]
    write_mail(tmp_path / "mail.jsonl", some)
    with (tmp_path / "mail.jsonl").open("ab") as file:
        file.write(b"no mail\n")
    query = email_query(tmp_path, tmp_path / "mail.jsonl", "disk", replay={"rate": "300/s"})
    gateway = Gateway(tmp_path, state_dir, {"disk": query})
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    gateway.config.write_text(gateway.config.read_text().replace("127.0.0.1:0", address))
    monkeypatch.setenv("SPILLWAY_FAILPOINTS", FAILPOINTS)
    gateway.start("--until-drained")
    seen: list[tuple[int, str]] = []

    def drained() -> bool:
        assert gateway.process is not None
        now = readiness(address)
        if now[0] and (not seen or seen[-1] != now):
            seen.append(now)
        return gateway.process.poll() is not None

    until(drained, "the gateway ends")
    assert gateway.wait() == 0, gateway.tail()
    failed = [i for i, (code, text) in enumerate(seen) if code == 503 and "failpoint" in text]
    assert failed, seen
    assert (200, "running") in seen[failed[0] :], seen
    assert gateway.rows("disk") == expected_rows(some)
    letters = (state_dir / "queries" / "disk" / "dead-letters.jsonl").read_text().splitlines()
    assert len(letters) == 1
