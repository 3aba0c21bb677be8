"""A gateway with a stateful query is killed before the first event comes, and while events come."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.ports import free_ports
from tests.e2e.harness import end_hosts
from tests.faults.figures import Figures, Scale
from tests.faults.senders import HttpSender
from tests.faults.town import SCHEMA, TownGateway, account, all_arrived, dead_letters_account, file_rows

PAUSE_S = 0.2
KILLS = 3


def with_total(n: int) -> dict[str, Any]:
    """The row of the event with number n: all numbers up to it came before."""
    return {"id": f"event {n}", "n": n, "total": n * (n + 1) // 2}


def killed(gateway: TownGateway, chance: random.Random) -> None:
    """Kill the gateway at some moment, and start it again."""
    time.sleep(chance.uniform(0, 3))
    gateway.kill()
    gateway.start_ready()


def lived(folder: Path, chance: random.Random) -> int:
    """Let a gateway run from its first start on, and return how many events it processed."""
    api_port, http_port = free_ports(2)
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("summing.py"), folder)
    summed = {
        "source": {"type": "http", "listen": f"127.0.0.1:{http_port}"},
        "schema": SCHEMA,
        "function": "summing:summed",
        "sink": {"type": "file", "path": str(folder / "out")},
        "qos": {"latency": "5s"},
    }
    gateway = TownGateway(folder, {"summed": summed}, api_port)
    sender = HttpSender(http_port, PAUSE_S)
    try:
        gateway.start_ready()
        for _ in range(KILLS):
            killed(gateway, chance)
        sender.start()
        for _ in range(KILLS):
            killed(gateway, chance)
        sender.stop()
        all_arrived({sender: lambda: file_rows(folder / "out")})
        gateway.drain()
        wrong = account(sender, file_rows(folder / "out"), with_total)
        wrong += dead_letters_account(sender, gateway.dead_letters("summed"))
        assert not wrong, wrong
    finally:
        sender.give_up()
        if gateway.runs:
            gateway.kill()
        end_hosts(gateway.state_dir)
    return len(sender.taken)


@pytest.mark.timeout(3600)
def test_the_gateway_killed_over_a_query_with_state(tmp_path: Path, scale: Scale, figures: Figures) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    lives = scale.times(1, 10)
    taken = sum(lived(tmp_path / f"life-{number}", chance) for number in range(lives))
    figures.add(
        "gateway with a stateful query: kill -9 before its first event and after",
        times=2 * KILLS * lives,
        outcome=f"{taken:,} events: 0 lost, 0 twice, 0 out of order, 0 wrong sums",
        figure=f"{lives} queries, none with the state of an earlier one",
        goal="0 lost, 0 twice",
    )
