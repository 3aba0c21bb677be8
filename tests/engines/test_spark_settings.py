"""The user's own Spark settings: which may be set, and that they apply on a real host."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.spark.session import _settings, runtime_ahead
from engines.spark.sparkconf import equal_everywhere, why_owned
from infra.messages import OpenQuery
from tests.engines.host_site import host_process

USER = Path(__file__).parent / "user"
CONF = {"spark.driver.memory": "700m", "spark.sql.caseSensitive": "true", "spark.executor.cores": "1"}
# What a host sets and a user may set otherwise.
FREE = {
    "spark.ui.enabled",
    "spark.ui.showConsoleProgress",
    "spark.sql.shuffle.partitions",
    "spark.driver.host",
    "spark.driver.bindAddress",
}


@pytest.mark.parametrize("master", ["local[1]", "spark://host:7077"])
def test_what_a_host_sets_is_refused_to_users_or_known_to_be_free(
    tmp_path: Path, master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.spark.session.scratch_folder", lambda name: tmp_path / name)
    ours = set(_settings(master, tmp_path, 1, ""))
    assert {name for name in ours if not why_owned(name)} <= FREE
    assert {name for name in FREE if why_owned(name)} == set()


def test_only_settings_of_sql_must_be_equal_everywhere() -> None:
    assert equal_everywhere(CONF) == {"spark.sql.caseSensitive": "true"}


def test_hosts_with_other_settings_differ() -> None:
    (difference,) = runtime_ahead(CONF).differences(runtime_ahead())
    assert "spark.sql.caseSensitive" in difference
    assert runtime_ahead(CONF).differences(runtime_ahead({**CONF, "spark.driver.memory": "1g"})) == []


@pytest.mark.spark
async def test_settings_and_memory_are_in_force_in_a_host(tmp_path: Path) -> None:
    spec = OpenQuery(query="told", epoch=1, schema_ddl="id BIGINT", function="user_functions:told", code_path=str(USER))
    async with host_process(tmp_path, spark_conf=CONF) as host, host.gateway() as gateway:
        assert gateway.link.hello.runtime.settings == {"spark.sql.caseSensitive": "true"}
        await gateway.until_ready()
        query = await gateway.open(spec)
        await query.send(0, [{"id": 7}])
        ((_, batch),) = await query.completed(1)
    (row,) = batch.to_pylist()
    assert (row["id"], row["setting"]) == (7, "true")
    # What Java says is a little less than what it was given, by its collector.
    assert 600 * 2**20 < row["heap_bytes"] <= 700 * 2**20
