"""examples/outages.yaml: an operator whose predicates and results are a Python class."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.e2e.harness import Gateway

EXAMPLE = Path(__file__).parents[2] / "examples" / "outages.yaml"
TEXTS = (
    "{} is down",
    "{}: connection timed out after 5 s",
    "{} recovered",
    "{} is up again, load 3",
    "{}: countdown begins",
    "{}: uptime 7 days",
    "{} answered in 3 ms",
)
LINES = 400


def log() -> list[dict[str, Any]]:
    chance, at = random.Random(3), datetime(2026, 1, 5, 14, tzinfo=UTC)
    lines = []
    for _ in range(LINES):
        at += timedelta(seconds=chance.randint(1, 20))
        service = chance.choice(("search", "cart", "mail"))
        text = chance.choices(TEXTS, (1, 1, 1, 1, 3, 3, 3))[0].format(service)
        lines.append({"service": service, "text": text, "at": at.isoformat()})
    return lines


def expected(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Look at each line that fails by itself: the next line of its service that works ends it."""
    closed = []
    for begin, line in enumerate(lines):
        if not re.search(r" is down$|timed out", line["text"]):
            continue
        began = datetime.fromisoformat(line["at"])
        for end in range(begin + 1, len(lines)):
            now, lasted = lines[end], datetime.fromisoformat(lines[end]["at"]) - began
            if lasted > timedelta(hours=1):
                rest = lines[begin:end]
                lasted = datetime.fromisoformat(rest[-1]["at"]) - began
            elif now["service"] == line["service"] and re.search(r"recovered| is up ", now["text"]):
                rest = lines[begin : end + 1]
            else:
                continue
            own = sum(each["service"] == line["service"] for each in rest)
            closed.append((end, begin, line["service"], began, lasted.total_seconds(), own))
            break
    closed.sort()
    return [
        {"selection": number, "service": service, "began": began, "lasted_s": lasted_s, "lines": own}
        for number, (_, _, service, began, lasted_s, own) in enumerate(closed)
    ]


def test_a_class_says_where_selections_open_and_close(tmp_path: Path, state_dir: Path) -> None:
    lines = log()
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    (tmp_path / "outages.py").write_text(EXAMPLE.with_suffix(".py").read_text())
    queries = YAML(typ="safe").load(EXAMPLE.read_text())["queries"]
    queries["marked"]["source"]["path"] = str(tmp_path / "log.jsonl")
    for name, each in queries.items():
        each["sink"]["path"] = str(tmp_path / "out" / name)
    gateway = Gateway(tmp_path, state_dir, queries)
    gateway.run_until_drained()
    found = [{**row, "began": datetime.fromisoformat(row["began"])} for row in gateway.rows("outages")]
    wanted = expected(lines)
    assert len(wanted) > 20
    assert found == wanted
