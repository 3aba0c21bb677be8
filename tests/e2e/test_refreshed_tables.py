"""A table that is refreshed while its queries run at home and on a VM: each event meets one version, none is lost."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from gateway.config import ConfigError, load
from tests.e2e.harness import EAGER, Gateway, until

EVENTS = 40_000
VERSIONS = ("first", "second", "third")
REFUSED = "the query continues with the content that its tables had before"


def put(path: Path, content: str) -> None:
    """Replace the file at once, as users are told to."""
    new = path.with_suffix(".new")
    new.write_text(content)
    new.rename(path)


def prices(version: str) -> str:
    return "".join(f"{product},{version}\n" for product in range(5))


def query(folder: Path, **more: Any) -> dict[str, Any]:
    prices = {"path": str(folder / "prices.csv"), "format": "csv", "schema": "product INT, price STRING"}
    return {
        "source": {"type": "file", "path": str(folder / "in.jsonl"), "replay": {"rate": "150/s"}},
        "schema": "id INT, product INT",
        "tables": {"prices": {**prices, "refresh": "1s"}},
        "sql": "SELECT id, price FROM events JOIN prices USING (product)",
        "sink": {"type": "file", "path": str(folder / "out" / "priced")},
        "qos": {"latency": "1s"},
        "switching": {**EAGER, "share": "50%"},
        **more,
    }


def counting(folder: Path) -> dict[str, Any]:
    """A query with state: how many events of each product met each price."""
    counted = query(folder, switching={"mode": "off"}, output={"mode": "update", "key": ["product", "price"]})
    joined = "events JOIN prices USING (product)"
    counted["sql"] = f"SELECT product, price, count(*) AS n FROM {joined} GROUP BY product, price"
    counted["sink"] = {"type": "file", "path": str(folder / "out" / "product-counts")}
    return counted


def uses(gateway: Gateway, version: str) -> bool:
    return all(str(gateway.rows(name)[-1]["price"]) == version for name in ("priced", "product-counts"))


def test_each_version_is_used_once_it_is_there_and_a_bad_one_never(tmp_path: Path, state_dir: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"id": n, "product": n % 5}) + "\n" for n in range(EVENTS)))
    put(tmp_path / "prices.csv", prices("first"))
    gateway = Gateway(tmp_path, state_dir, {"priced": query(tmp_path), "product-counts": counting(tmp_path)})
    gateway.start()
    until(lambda: bool(gateway.rows("priced") and gateway.rows("product-counts")), "the first results")
    put(tmp_path / "prices.csv", "0,second\nno number,second\n")
    until(lambda: gateway.log.read_text().count(REFUSED) == 2, "the bad content is refused")
    for version in VERSIONS[1:]:
        put(tmp_path / "prices.csv", prices(version))
        until(partial(uses, gateway, version), f"the {version} prices")
    until(lambda: "% to vm-" in gateway.log.read_text(), "the VM gets events")
    there = len(gateway.rows("priced"))
    until(lambda: len(gateway.rows("priced")) > there + 300, "and answers some")
    gateway.kill(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.tail()
    assert re.search(r"query priced: [\d,]+ events \(home [\d,]+, vm-1 [\d,]+\)", gateway.log.read_text()), (
        gateway.tail()
    )
    rows = gateway.rows("priced")
    assert [row["id"] for row in rows] == list(range(len(rows)))
    assert tuple(version for version, _ in groupby(row["price"] for row in rows)) == VERSIONS
    assert gateway.log.read_text().count(REFUSED) == 2
    check_counts(gateway)


def check_counts(gateway: Gateway) -> None:
    """Look that each event was counted once, with the version that was used from some event on."""
    counts: dict[tuple[int, str], int] = {}
    for row in gateway.rows("product-counts"):
        counts[row["product"], row["price"]] = row["n"]
    began = 0
    for version in VERSIONS:
        ended = began + sum(n for (_, price), n in counts.items() if price == version)
        expected = Counter((n % 5, version) for n in range(began, ended))
        assert {key: n for key, n in counts.items() if key[1] == version} == expected
        began = ended
    assert began == gateway.parts("product-counts")[-1].last_seq + 1
    prices = [row["price"] for row in gateway.rows("product-counts")]
    assert tuple(version for version, _ in groupby(prices)) == VERSIONS


def test_a_table_is_not_looked_at_all_the_time(tmp_path: Path, state_dir: Path) -> None:
    (tmp_path / "in.jsonl").touch()
    put(tmp_path / "prices.csv", prices("first"))
    hasty = query(tmp_path)
    hasty["tables"]["prices"]["refresh"] = "10ms"
    with pytest.raises(ConfigError, match=r"refresh: .*greater than or equal to 1"):
        load(Gateway(tmp_path, state_dir, {"priced": hasty}).config, {})
