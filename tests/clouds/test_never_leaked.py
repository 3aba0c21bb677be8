"""A gateway that dies by SIGKILL around an order leaves no machine: the next one finds it by its tags.

The whole daemon runs, with an engine host at home that is without Spark, and rents from moto's EC2.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gateway.fleet.books import Books
from infra.clock import SystemClock
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget, Ledger
from tests.clouds.ec2_lab import IMAGE, Ec2Lab
from tests.connectors.s3_server import CREDENTIALS, Fault, FaultProxy, Reply, Request, S3Server
from tests.e2e.harness import EAGER, end_hosts, until
from tests.wan.far_site import FAR_GATEWAY

ROOT = Path(__file__).parents[2]
TERMS = BillingTerms(period_s=60.0, minimum_s=60.0, usd_per_hour=6.0, usd_per_gb_sent=0.0)
ORPHAN_AFTER_S = 60.0
# More than a gateway reads before it is killed.
EVENTS, RATE_PER_S = 60_000, 200
Moment = Callable[[FaultProxy, Request, Callable[[], None]], Fault | Reply]


def orders(request: Request) -> bool:
    return b"Action=RunInstances" in request.body


def before_the_order(proxy: FaultProxy, request: Request, kill: Callable[[], None]) -> Fault | Reply:
    if not orders(request):
        return ""
    kill()
    return "refused"


def before_its_answer(proxy: FaultProxy, request: Request, kill: Callable[[], None]) -> Fault | Reply:
    proxy.kill = kill
    return "answer lost and killed" if orders(request) else ""


def while_it_boots(proxy: FaultProxy, request: Request, kill: Callable[[], None]) -> Fault | Reply:
    proxy.ordered = getattr(proxy, "ordered", False) or orders(request)  # type: ignore[attr-defined]
    if not orders(request) and proxy.ordered:  # type: ignore[attr-defined]
        kill()
        return "refused"
    return ""


class Renting:
    """A gateway that wants a VM of an EC2 behind a proxy, started again and again over the same state."""

    def __init__(self, folder: Path, moto_port: int) -> None:
        self.proxy = FaultProxy(moto_port, lambda _: "")
        self.state_dir = folder / "state"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        lines = (json.dumps({"id": number, "text": f"event {number}"}) for number in range(EVENTS))
        (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
        config = {
            "gateway": {
                "state_dir": "state",
                "slot": "200ms",
                "api": {"listen": "127.0.0.1:0"},
                "orphan_after": f"{ORPHAN_AFTER_S:g}s",
            },
            "cloud": {
                "provider": "ec2",
                "credentials": {"key": "test", "secret": "test"},
                "region": "eu-west-1",
                "image": IMAGE,
                "sizes": ["m5.large"],
                # Nobody answers there, and no stranger is asked.
                "address": "private",
                "endpoint": self.proxy.endpoint,
                "max_vms": 1,
                "billing": {
                    "period": f"{TERMS.period_s:g}s",
                    "minimum": f"{TERMS.minimum_s:g}s",
                    "usd_per_hour": TERMS.usd_per_hour,
                    "usd_per_gb_sent": TERMS.usd_per_gb_sent,
                },
                "budget": {"usd_per_day": 1},
            },
            "queries": {
                "q": {
                    "source": {"type": "file", "path": "in.jsonl", "replay": {"rate": f"{RATE_PER_S}/s"}},
                    "schema": "id BIGINT, text STRING",
                    "sql": "SELECT id, text AS lane FROM events",
                    "sink": {"type": "file", "path": "out"},
                    "qos": {"latency": "1s"},
                    "runs": {"max_events": 20, "linger": "50ms"},
                    "payload": {"compress": "none"},
                    "switching": {**EAGER, "share": "50%"},
                }
            },
        }
        with (folder / "config.yaml").open("w") as file:
            YAML(typ="safe").dump(config, file)

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, FAR_GATEWAY, str(self._folder / "config.yaml"), str(self._folder / "report.json")]
        environment = {**os.environ, **CREDENTIALS, "PYTHONPATH": str(ROOT)}
        with (self._folder / "gateway.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        return self._process

    def killed_at(self, moment: Moment) -> None:
        """Run it until it dies at a moment."""
        process = self.start()

        def kill() -> None:
            process.kill()
            process.wait()

        self.proxy.fault = lambda request: moment(self.proxy, request, kill)
        assert process.wait(120) == -signal.SIGKILL, self.log()
        self.proxy.fault = lambda _: ""

    def log(self) -> str:
        """What its last life has said."""
        return (self._folder / "gateway.log").read_text(errors="replace")

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        end_hosts(self.state_dir)
        self.proxy.stop()


@pytest.fixture
def renting(moto_server: S3Server, tmp_path: Path) -> Iterator[Renting]:
    gateway = Renting(tmp_path, moto_server.port)
    yield gateway
    gateway.close()


@pytest.mark.parametrize(("moment", "ordered"), [(before_the_order, 0), (before_its_answer, 1), (while_it_boots, 1)])
def test_after_kill_9_the_next_gateway_ends_what_was_ordered(
    ec2: Ec2Lab, renting: Renting, moment: Moment, ordered: int
) -> None:
    renting.killed_at(moment)
    left = {instance["InstanceId"] for instance in ec2.instances()}
    assert len(left) == ordered
    clock = SystemClock()
    ledger = Ledger(Budget(usd_per_day=1.0))
    books = Books(
        renting.state_dir / "books.json",
        lambda: ledger.state,
        lambda why: setattr(ledger, "frozen", why),
        TERMS,
        orphan_after_s=ORPHAN_AFTER_S,
        clock=clock,
    )
    ledger.restore(books.restored)
    assert books.inherited == {"vm-1"}
    assert ledger.spent_usd(clock.wall()) == pytest.approx(TERMS.time_usd(60.0))
    process = renting.start()
    # It may order another one at once: it still wants a VM.
    until(lambda: not left & {instance["InstanceId"] for instance in ec2.instances()}, "what was ordered is ended")
    until(lambda: "ready: " in renting.log(), "the next gateway is ready")
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0, renting.log()
    assert ec2.instances() == []
