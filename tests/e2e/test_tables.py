"""A join with a static table, at home and on a VM, with one version of the table."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.harness import EAGER, Gateway, until

COUNT = 6000


def test_two_sites_join_with_the_same_version_although_the_file_changes(tmp_path: Path, state_dir: Path) -> None:
    names = {customer: f"name {customer * 37 % 101}" for customer in range(0, 100, 2)}
    (tmp_path / "orders.jsonl").write_text(
        "".join(json.dumps({"id": n, "customer": n % 100}) + "\n" for n in range(COUNT))
    )
    file = tmp_path / "customers.csv"
    file.write_text("customer,name\n" + "".join(f"{customer},{name}\n" for customer, name in names.items()))
    table = {"path": str(file), "format": "csv", "schema": "customer INT, name STRING", "header": True}
    query = {
        "source": {"type": "file", "path": str(tmp_path / "orders.jsonl"), "replay": {"rate": "600/s"}},
        "schema": "id INT, customer INT",
        "sql": "SELECT id, name FROM events LEFT JOIN customers USING (customer)",
        "tables": {"customers": table},
        "sink": {"type": "file", "path": str(tmp_path / "out" / "named")},
        "qos": {"latency": "1s"},
        "switching": EAGER,
    }
    gateway = Gateway(tmp_path, state_dir, {"named": query})
    gateway.start("--until-drained")
    until(lambda: bool(gateway.parts("named")), "the first results")
    file.write_text("customer,name\n" + "".join(f"{customer},changed\n" for customer in range(100)))
    assert gateway.wait() == 0, gateway.tail()
    expected = [{"id": n, "name": names[n % 100]} if n % 100 in names else {"id": n} for n in range(COUNT)]
    found = [{key: value for key, value in row.items() if value is not None} for row in gateway.rows("named")]
    assert found == expected
    assert gateway.totals()["vms"]["started"] >= 1
    assert max(slot["share"] for slot in json.loads(gateway.report.read_text())["slots"]) > 0
    assert gateway.totals()["wan_bytes"]["sent"] > 0
