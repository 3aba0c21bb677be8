"""How much a query that always fails slows a good one on the same engine host: python bench/beside_a_failing_query.py.

A good query gets 1,000 events/s. In every second run a query whose Python function always raises gets 20 events/s
beside it. Latency is from when an event was due until the part with its result was in the sink. Results are checked.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.e2e.failing_queries import FUNCTIONS
from tests.e2e.harness import Gateway, end_hosts, parts_in

# In the first 10 s, Spark and its Python workers start: shorter runs measure mostly that.
SECONDS, GOOD_PER_S, BAD_PER_S, ROUNDS = 90, 1000, 20, 2


def _query(folder: Path, name: str, rate_per_s: int, **what: str) -> dict[str, object]:
    source = folder / f"{name}.jsonl"
    lines = (json.dumps({"id": number, "text": f"event {number}"}) for number in range(rate_per_s * SECONDS))
    source.write_text("\n".join(lines) + "\n")
    return {
        "source": {"type": "file", "path": str(source), "replay": {"rate": f"{rate_per_s}/s"}},
        "schema": "id BIGINT, text STRING",
        **what,
        "sink": {"type": "file", "path": str(folder / "out" / name)},
        "qos": {"latency": "2s"},
        "on_failure": {"restart": "5s..5m"},
    }


def play(folder: Path, *, beside: bool) -> list[float]:
    """Return the latency of each event of the good query, in seconds."""
    folder.mkdir()
    (folder / "failing_functions.py").write_text(FUNCTIONS)
    queries = {"good": _query(folder, "good", GOOD_PER_S, sql="SELECT id FROM events")}
    if beside:
        queries["raises"] = _query(folder, "raises", BAD_PER_S, function="failing_functions:raises")
    gateway = Gateway(folder, folder / "state", queries, {"max_vms": 0})
    try:
        gateway.start("--until-drained")
        code = gateway.wait(600)
        assert code == int(beside), gateway.tail()
    finally:
        end_hosts(gateway.state_dir)
    head = json.loads((gateway.state_dir / "queries/good/runs.log").read_bytes().splitlines()[0].partition(b" ")[2])
    found: dict[int, float] = {}
    for part in parts_in(folder / "out" / "good"):
        path = folder / "out" / "good" / str(part)
        there_s = path.stat().st_mtime - head["started_wall_s"]
        found |= {json.loads(line)["id"]: there_s for line in path.read_bytes().splitlines()}
    assert list(found) == list(range(GOOD_PER_S * SECONDS)), "each result once, in order"
    return [there_s - number / GOOD_PER_S for number, there_s in found.items()]


def main() -> None:
    """Run both in turn and print medians, means and their ratios."""
    figures: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder:
        for number in range(ROUNDS):
            for beside in (False, True):
                latencies_s = play(Path(folder) / f"{number}-{beside}", beside=beside)
                median_s, mean_s = statistics.median(latencies_s), statistics.fmean(latencies_s)
                figures[beside].append((median_s, mean_s))
                what = "beside one that always fails" if beside else "alone"
                print(f"{what:30} median {median_s:.2f} s, mean {mean_s:.2f} s", flush=True)
    pairs = list(zip(figures[True], figures[False], strict=True))
    medians, means = ([with_bad[at] / alone[at] for with_bad, alone in pairs] for at in (0, 1))
    print("beside / alone: medians", [round(each, 2) for each in medians], "means", [round(each, 2) for each in means])


main()
