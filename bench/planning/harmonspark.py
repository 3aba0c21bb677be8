"""Do VMs do harm on real Spark? Worlds drawn at random, played by two gateways at once: with VMs, and with home alone.

The work of each event is a call that waits, so that cores do not decide. A VM's speed is how long its calls wait, its
link is shaped, and its boot is emulated. Both gateways get the same events at the same times. VMs boot for at most a
minute, and links carry at least 1 Mbit/s, as a world lasts three minutes.

``PYTHONPATH=.:bench python -m planning.harmonspark [SEED ...]`` plays these worlds only; ``1w`` moves the query whole.
"""

from __future__ import annotations

import math
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gateway.views.runrecord import GatewayRecord, read_record
from planning.document import table
from policies.arrays import Array
from policies.signals import HOME
from tests.e2e.harness import Gateway, end_hosts

LASTS_S, WARM_UP_S = 180, 30
SEEDS = range(1, 7)
MOST, GRACE_S = 0.03, 0.02
"""What is within the bound, as for the worlds in virtual time (bench/planning/harmless.py)."""
WAIT_S = 0.005
CARRIED_PER_S = 170.0
"""What home carries of 200 events/s that the calls alone would allow; the rest is the cost of micro-batches."""
WHOLE = 1
"""This world is played once more with a function whose plan says nothing, so that the query moves whole."""
FUNCTION = """\
import sys
import time

from pyspark.sql import functions as F


def work(events):
    # Here is the engine host; what waits is a worker of its Spark.
    wait_s = {wait_s} if any("/vms/" in word for word in sys.argv) else {home_wait_s}

    @F.udf("int")
    def length(text):
        time.sleep(wait_s)
        return len(text)

    return events.select("id", length("text").alias("length"))
"""
WHOLE_FUNCTION = """\
import sys
import time


def work(events):
    wait_s = {wait_s} if any("/vms/" in word for word in sys.argv) else {home_wait_s}

    def wait(frames):
        for frame in frames:
            time.sleep(wait_s * len(frame))
            yield frame.assign(length=frame.text.str.len())[["id", "length"]]

    return events.mapInPandas(wait, "id BIGINT, length INT")
"""


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """What is drawn for a world.

    Attributes:
        seed: decides all of it.
        link_mbit_per_s: of each VM, in each direction.
        rtt_s: of the link.
        vm_speed: of a VM, relative to home's.
        boot_s: of a VM.
        event_bytes: of the text that the query needs of each event.
        kind: of the load.
        rates: events/s of each second.
        whole: whether the query can only be moved whole.
    """

    seed: int
    link_mbit_per_s: float
    rtt_s: float
    vm_speed: float
    boot_s: float
    event_bytes: int
    kind: str
    rates: Array
    whole: bool = False

    @property
    def query(self) -> str:
        """A name of its own: the hosts and the state of a gateway serve one world after the other."""
        return f"waiting_{self.seed}{'_whole' if self.whole else ''}"

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events: a Poisson process with these rates, and a text that does not compress well."""
        rng = np.random.default_rng([self.seed, 2])
        begun = datetime(2026, 1, 1, tzinfo=UTC)
        for second, count in enumerate(rng.poisson(self.rates)):
            for at_s in np.sort(rng.uniform(second, second + 1.0, count)):
                text = rng.bytes(self.event_bytes // 2).hex()
                yield {"text": text, "at": begun + timedelta(seconds=float(at_s))}


@dataclass(frozen=True, slots=True)
class Played:
    """What a gateway did.

    Attributes:
        record: its report.
        equal: whether its results are right and in order.
    """

    record: GatewayRecord
    equal: bool

    @property
    def cloud_events(self) -> int:
        """How many events VMs answered."""
        lanes = (slot.completed for slot in self.record.slots)
        return sum(events for completed in lanes for lane, events in completed.items() if lane != HOME)


def drawn(seed: int, lasts_s: int = LASTS_S) -> SmallWorld:
    """Return the world of a seed."""
    draw = random.Random(f"harm on spark {seed}")  # no secret
    kind = draw.choice(["constant", "spikes", "noisy"])
    return SmallWorld(
        seed,
        link_mbit_per_s=_between(draw, 1.0, 1000.0),
        rtt_s=_between(draw, 0.001, 0.3),
        vm_speed=_between(draw, 0.2, 2.0),
        boot_s=_between(draw, 5.0, 60.0),
        event_bytes=draw.choice([200, 1000, 4000]),
        kind=kind,
        rates=CARRIED_PER_S * _levels(draw, kind, np.random.default_rng(seed), lasts_s),
    )


def _levels(draw: random.Random, kind: str, noise: np.random.Generator, lasts_s: int) -> Array:
    """Return a load as parts of what home carries, shape (seconds,)."""
    if kind == "constant":
        return np.full(lasts_s, draw.uniform(0.6, 1.3))
    if kind == "spikes":
        every_s = draw.uniform(60, 120)
        for_s, low, high = every_s * draw.uniform(0.2, 0.5), draw.uniform(0.3, 0.8), draw.uniform(1.2, 2.0)
        return np.where((np.arange(lasts_s) + draw.uniform(0, every_s)) % every_s < for_s, high, low)
    walk = np.cumsum(noise.normal(0.0, draw.choice([0.01, 0.03]), lasts_s))
    level: Array = np.clip(draw.uniform(0.7, 1.2) + walk, 0.6, 1.5)
    return level


def _between(draw: random.Random, least: float, most: float) -> float:
    """Draw a number; its logarithm is equally likely everywhere."""
    return math.exp(draw.uniform(math.log(least), math.log(most)))


def report() -> str:
    """Play all worlds; return the table."""
    return table(HEADER, list(_played([*map(drawn, SEEDS), replace(drawn(WHOLE), whole=True)])))


HEADER = (
    "seed",
    "load",
    "link",
    "VM speed",
    "boot",
    "delivered, home alone",
    "delivered, with VMs",
    "change",
    "within",
    "launches",
    "sent to VMs",
    "results equal",
)


def _played(worlds: Sequence[SmallWorld]) -> Iterator[tuple[str, ...]]:
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder = Path(name)
        try:
            _play(folder, drawn(0, WARM_UP_S))
            for world in worlds:
                row = _row(world, *_play(folder, world))
                print(row, flush=True)
                yield row
        finally:
            for kind in ("alone", "elastic"):
                end_hosts(folder / kind)


def _row(world: SmallWorld, alone: Played, elastic: Played) -> tuple[str, ...]:
    home_s, with_vms_s = (played.record.totals.delivery_ms.mean / 1e3 for played in (alone, elastic))
    within = with_vms_s <= (1.0 + MOST) * home_s + GRACE_S
    return (
        f"{world.seed}{', moved whole' if world.whole else ''}",
        f"{world.kind}, {world.rates.mean() / CARRIED_PER_S:.0%} of home's on average",
        f"{world.link_mbit_per_s:.3g} Mbit/s, RTT {1e3 * world.rtt_s:.0f} ms",
        f"{world.vm_speed:.2f}",
        f"{world.boot_s:.0f} s",
        f"{home_s:.2f} s",
        f"{with_vms_s:.2f} s",
        f"{with_vms_s / home_s - 1:+.1%}",
        "yes" if within else "**no**",
        str(elastic.record.totals.vms.started),
        f"{elastic.cloud_events / elastic.record.totals.events:.0%}",
        "yes" if alone.equal and elastic.equal else "**no**",
    )


def _play(folder: Path, world: SmallWorld) -> tuple[Played, Played]:
    """Run both gateways over a world: with home alone, and with VMs.

    Raises:
        RuntimeError: a gateway did not end well.
    """
    here = folder / world.query
    here.mkdir()
    events = [{"id": number, **event} for number, event in enumerate(world.events())]
    (here / "in.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(events))
    gateways = [_gateway(folder, here / kind, kind, world) for kind in ("alone", "elastic")]
    for gateway in gateways:
        gateway.start("--until-drained")
    try:
        for gateway in gateways:
            if (code := gateway.wait(10 * LASTS_S)) != 0:
                raise RuntimeError(f"the gateway ended with {code}: {gateway.tail()}")
    finally:
        for gateway in gateways:
            if gateway.process is not None and gateway.process.poll() is None:
                gateway.kill()
    right = [{"id": event["id"], "length": len(event["text"])} for event in events]
    alone, elastic = (Played(read_record(gateway.report), gateway.rows(world.query) == right) for gateway in gateways)
    shutil.rmtree(here)
    return alone, elastic


def _gateway(folder: Path, here: Path, kind: str, world: SmallWorld) -> Gateway:
    here.mkdir()
    module, function = f"work_{world.query}", WHOLE_FUNCTION if world.whole else FUNCTION
    (here / f"{module}.py").write_text(function.format(wait_s=WAIT_S / world.vm_speed, home_wait_s=WAIT_S))
    query = {
        "source": {"type": "file", "path": str(here.parent / "in.jsonl"), "replay": {"times": "at"}},
        "schema": "id BIGINT, text STRING, at TIMESTAMP",
        "function": f"{module}:work",
        "sink": {"type": "file", "path": str(here / "out" / world.query)},
        "qos": {"latency": "2s"},
        **({"switching": {"mode": "off"}} if kind == "alone" else {}),
    }
    cloud = {
        "max_vms": 1,
        "boot": f"{world.boot_s:.1f}s",
        "emulate_link": {"delay": f"{500 * world.rtt_s:.1f}ms", "rate": f"{world.link_mbit_per_s:.3f}Mbit/s"},
        "billing": {"period": "60s", "minimum": "60s", "usd_per_hour": 0.36, "usd_per_gb_sent": 0.09},
    }
    return Gateway(here, folder / kind, {world.query: query}, cloud, more={"slot": "1s"})


if __name__ == "__main__":
    chosen = [replace(drawn(int(word.rstrip("w"))), whole=word.endswith("w")) for word in sys.argv[1:]]
    for _ in _played(chosen or list(map(drawn, SEEDS))):
        pass
