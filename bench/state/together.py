"""Two queries at once (ESM section 7.3): e-mail and SNB2016 over two spikes, at home only and with a VM.

E-mail has no state, and part of its mails may go to the VM. SNB2016 has state, and may go there as a whole. The rates
are parts of what home serves of each query alone, which is measured first. Their results are compared with the oracles.
The work of both is mostly a waiting call (``state.waiting``), so that home, the VM and the gateway do not compete for
the cores of this machine.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from planning.document import table

from engines.email.generator import generate_mail
from engines.email.queries import SCHEMA_DDL
from engines.snb import events as snb
from engines.snb.generator import generate_events
from gateway.views.runrecord import read_record
from state import waiting
from state.workloads import is_equal, posts, took_s
from tests.e2e.harness import Gateway, counts_by_lane, end_hosts, expected_rows, write_mail

MAILS, POSTS = 5_000, 5_000
# Seconds of usual load and spikes, in turn. As in the paper, a spike lasts much longer than a VM takes until it serves:
# there 10 s of 200 s, here some 25 s of 120 s.
PHASES_S = (30, 120, 60, 120, 60)
LOADED_S = sum(PHASES_S)
# Parts of the rate that home serves of each query alone: usually, and in spikes, where both are more than all of it.
PARTS = {"mail": (0.4, 1.1), "posts": (0.2, 0.5)}
# Small ones: in a home of one core, a query waits while a run of the other one is processed.
RUNS = {"max_events": 500, "linger": "1s"}
DEADLINE_S = 1_200.0
CLOUD = {
    "max_vms": 1,
    "boot": "5s",
    "billing": {"period": "60s", "minimum": "60s", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
    "emulate_link": {"delay": "35ms", "rate": "50Mbit/s"},
}
MEANS = re.compile(r"query (mail|posts)-\S+: [\d,]+ events \((.*?)\), [\d,]+ results, mean latency ([\d.]+) s")
MODES: Mapping[str, Mapping[str, Any]] = {"private only": {"max_vms": 0}, "with a VM": CLOUD}


@dataclass(frozen=True)
class Outcome:
    """What one mode gave.

    Attributes:
        mean_s: mean latency of each query.
        events: of each query.
        away: the part of each query's events that the VM answered.
        usd: what the VM cost.
        equal: whether all results are those of the oracles.
    """

    mean_s: dict[str, float]
    events: dict[str, int]
    away: dict[str, float]
    usd: float
    equal: bool

    @property
    def overall_s(self) -> float:
        """Return the mean latency of all events."""
        return sum(self.mean_s[name] * self.events[name] for name in self.events) / sum(self.events.values())


class Together:
    """Both queries with their input; ``folder`` is new."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mails = list(generate_mail(MAILS, seed=1))
        self.posts = list(islice(generate_events(POSTS * 20, seed=1), POSTS * 20))

    def served_per_s(self) -> dict[str, float]:
        """Return how many events home serves in a second of each query alone."""
        alone = {"mail": self._mail("alone", None), "posts": self._posts("alone", self.posts[:POSTS], None)}
        counts = {"mail": MAILS, "posts": POSTS}
        found = {}
        for query, each in alone.items():
            gateway = self._gateway("alone", {f"{query}-alone": each}, {"max_vms": 0})
            gateway.run_until_drained()
            found[query] = counts[query] / took_s(read_record(gateway.report))
        return found

    def run(self, mode: str, served_per_s: Mapping[str, float]) -> Outcome:
        """Run both queries in one mode."""
        name = mode.replace(" ", "-")
        events = self.posts[: _events("posts", served_per_s["posts"])]
        loops = max(1, round(_events("mail", served_per_s["mail"]) / MAILS))
        # The queries of each mode have state of their own.
        queries = {
            f"mail-{name}": self._mail(name, served_per_s["mail"], loops),
            f"posts-{name}": self._posts(name, events, served_per_s["posts"]),
        }
        gateway = self._gateway(name, queries, MODES[mode])
        gateway.start("--until-drained")
        assert gateway.wait(DEADLINE_S) == 0, gateway.tail()
        found = _said(gateway)
        counts = {query: sum(lanes.values()) for query, (lanes, _) in found.items()}
        return Outcome(
            {query: mean_s for query, (_, mean_s) in found.items()},
            counts,
            {query: 1 - lanes.get("home", 0) / counts[query] for query, (lanes, _) in found.items()},
            read_record(gateway.report).totals.vms.usd,
            self._is_right(gateway, name, events, loops),
        )

    def _gateway(self, name: str, queries: Mapping[str, Any], cloud: Mapping[str, Any]) -> Gateway:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        shutil.copy(waiting.__file__, folder)
        return Gateway(folder, self.folder / "state", queries, cloud)

    def _mail(self, name: str, rate_per_s: float | None, loops: int = 1) -> dict[str, Any]:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        write_mail(folder / "mail.jsonl", self.mails)
        source: dict[str, Any] = {"type": "file", "path": str(folder / "mail.jsonl")}
        if rate_per_s is not None:
            source["replay"] = {"profile": list(_steps("mail", rate_per_s)), "loops": loops, "id": "message_id"}
        return _query(folder / "out" / f"mail-{name}", source, schema=SCHEMA_DDL, function="waiting:mail")

    def _posts(self, name: str, events: Sequence[msgspec.Struct], rate_per_s: float | None) -> dict[str, Any]:
        folder = self.folder / name
        (folder / "posts.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(events))
        source: dict[str, Any] = {"type": "file", "path": str(folder / "posts.jsonl")}
        if rate_per_s is not None:
            source["replay"] = {"profile": list(_steps("posts", rate_per_s))}
        return _query(folder / "out" / f"posts-{name}", source, schema=snb.SCHEMA_DDL, function="waiting:posts")

    def _is_right(self, gateway: Gateway, name: str, events: Sequence[msgspec.Struct], loops: int) -> bool:
        workload = posts("posts", events)
        right = is_equal(workload, gateway.rows(f"posts-{name}"), list(workload.oracle(events)))
        return right and _bodies(gateway.rows(f"mail-{name}")) == _times(_bodies(expected_rows(self.mails)), loops)


def _said(gateway: Gateway) -> dict[str, tuple[dict[str, int], float]]:
    """Return how many events of each query each lane answered, and their mean latency (s), by the log."""
    found = {
        query: (counts_by_lane(lanes), float(mean_s)) for query, lanes, mean_s in MEANS.findall(gateway.log.read_text())
    }
    assert set(found) == {"mail", "posts"}, gateway.tail()
    return found


def _bodies(rows: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """Return the rows without their ids, which differ in each pass over the file."""
    return Counter((row["sender"], row["body_md5"]) for row in rows)


def _times(counts: Counter[tuple[str, str]], loops: int) -> Counter[tuple[str, str]]:
    return Counter({each: count * loops for each, count in counts.items()})


def _rates(query: str) -> Iterator[tuple[int, float]]:
    """Yield the phases: how long each lasts (s), and its rate as a part of what home serves of the query alone."""
    for number, for_s in enumerate(PHASES_S):
        yield for_s, PARTS[query][number % 2]


def _events(query: str, served_per_s: float) -> int:
    return int(sum(for_s * part for for_s, part in _rates(query)) * served_per_s)


def _steps(query: str, served_per_s: float) -> Iterator[dict[str, str]]:
    for for_s, part in _rates(query):
        yield {"for": f"{for_s}s", "rate": f"{part * served_per_s:.0f}/s"}


def _query(sink: Path, source: Mapping[str, Any], **what: str) -> dict[str, Any]:
    return {
        "source": dict(source),
        **what,
        "runs": RUNS,
        "sink": {"type": "file", "path": str(sink)},
        "qos": {"latency": "5s"},
    }


def report() -> str:
    """Run both modes, and return a table.

    Raises:
        RuntimeError: a result is not the oracle's.
    """
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        lab = Together(Path(name))
        try:
            served = lab.served_per_s()
            found = {mode: lab.run(mode, served) for mode in MODES}
        finally:
            end_hosts(lab.folder / "state")
    if wrong := [mode for mode, outcome in found.items() if not outcome.equal]:
        raise RuntimeError(f"{', '.join(wrong)}: the results are not those of the oracles")
    home, away = found["private only"], found["with a VM"]
    rows = [
        (what, f"{before:.2f} s", f"{after:.2f} s", f"{after / before - 1:+.1%}", part)
        for what, before, after, part in (
            *((q, home.mean_s[q], away.mean_s[q], f"{away.away[q]:.0%}") for q in ("mail", "posts")),
            ("all events", home.overall_s, away.overall_s, ""),
        )
    ]
    head = ("query", "mean latency, private only", "with a VM", "change", "answered on the VM")
    rates = ", ".join(f"{per_s:,.0f} a second of {query}" for query, per_s in served.items())
    return (
        f"{table(head, rows)}\n\n"
        f"Home alone served {rates}. {sum(away.events.values()):,} events in {LOADED_S} s; the VM cost "
        f"{away.usd:.4f} USD. All results are those of the oracles."
    )
