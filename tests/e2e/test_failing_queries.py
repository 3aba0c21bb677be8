"""Three of ten queries fail in three ways; the other seven are exact and in order, and the failed ones are named."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.failing_queries import BAD, FATAL_ID, GOOD, RATE_PER_S, check_good, play, with_one_that_ends_its_jvm
from tests.e2e.harness import Gateway, end_hosts, rows_in, until

FULL = os.environ.get("SPILLWAY_FAULTS") == "full"
SECONDS = 240 if FULL else 25


@pytest.mark.timeout(1800 if FULL else 900)
def test_three_failing_queries_leave_the_other_seven_alone(tmp_path: Path) -> None:
    # The short form ends sooner with short pauses; the full one measures by the default ones.
    code, gateway, beside = play(tmp_path / "ten", SECONDS, with_bad=True, restart="5s..5m" if FULL else "1s..10s")
    said = gateway.log.read_text()
    assert code == 1, said[-6000:]
    for name in BAD:
        assert f"query {name} failed, its undelivered events are kept: " in said, said[-6000:]
    reasons = {name: [line for line in said.splitlines() if f"query {name} failed: " in line] for name in BAD}
    assert [line for line in reasons["raises"] if "it always raises" in line]
    assert [line for line in said.splitlines() if "query out-of-memory" in line and "OutOfMemoryError" in line]
    assert "is lost" not in said, "the engine host outlives a row that needs too much memory"
    assert "check that this user may write there" in reasons["read-only"][0]
    # A machine that starts a Python worker too late for Spark may refuse any query at first.
    failed = [line for line in said.splitlines() if " failed: " in line and "failed to connect back" not in line]
    assert not [line for line in failed for name in GOOD if f"query {name} " in line]
    print("median latency of the seven beside the three, s:", sorted(round(each, 2) for each in beside.values()))
    if FULL:
        code, _, alone = play(tmp_path / "seven", SECONDS, with_bad=False)
        assert code == 0
        ratios = sorted(beside[name] / alone[name] for name in GOOD)
        print("median latency of the seven alone, s:", sorted(round(each, 2) for each in alone.values()))
        print("beside the three / alone:", [round(ratio, 2) for ratio in ratios])


@pytest.mark.timeout(900)
def test_a_query_that_ends_its_jvm_is_found_alone_and_the_other_goes_on(tmp_path: Path) -> None:
    queries = with_one_that_ends_its_jvm(tmp_path, 15)
    gateway = Gateway(tmp_path, tmp_path / "state", queries, {"max_vms": 0})
    failed = "query exits failed: it ended the engine host on which it ran alone: "
    good = tmp_path / "out" / GOOD[0]
    try:
        gateway.start()
        until(lambda: gateway.log.read_text().count(failed) == 2, "it fails again, alone again", 600)
        until(lambda: len(rows_in(good)) == 15 * RATE_PER_S, "the good query has delivered everything")
        gateway.kill(signal.SIGTERM)
        assert gateway.wait() == 0, gateway.tail()
    finally:
        if gateway.process is not None and gateway.process.poll() is None:
            gateway.kill()
        end_hosts(gateway.state_dir)
    said = gateway.log.read_text()
    assert said.count("the private engine host is lost") == 1, "only once does it end the host of the other"
    assert f"query {GOOD[0]} failed" not in said
    check_good(tmp_path, 15 * RATE_PER_S, GOOD[:1])
    wanted = [{"id": number, "text": f"event {number}"} for number in range(FATAL_ID)]
    assert gateway.rows("exits") == wanted[: len(gateway.rows("exits"))], "what it delivered is right"
