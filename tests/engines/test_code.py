"""The user's code is the same in both places; otherwise it does not run."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark import cloudpickle

from engines.query import code
from engines.query.code import CodeError, check, load, query_hash
from infra.messages import EventTime, OpenQuery, OutputMode, StaticTable


def query(folder: Path, function: str = "mine:f") -> OpenQuery:
    return OpenQuery(query="q", epoch=1, schema_ddl="a INT", function=function, code_path=str(folder))


def package(folder: Path) -> Path:
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "helper.py").write_text("TWO = 2\n")
    (folder / "pack" / "main.py").write_text("from pack.helper import TWO\n\ndef f(events):\n    return events * TWO\n")
    return folder / "pack" / "helper.py"


def test_the_hash_changes_with_everything_that_makes_the_query(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(events): return events\n")
    base = query(tmp_path)
    hashes = {
        query_hash(base),
        query_hash(replace(base, schema_ddl="a BIGINT")),
        query_hash(replace(base, function="mine:g")),
        query_hash(replace(base, function="", sql="SELECT a FROM events")),
        query_hash(replace(base, function="", sql="SELECT a + 1 FROM events")),
        query_hash(replace(base, event_time=EventTime(column="at", lateness_ms=10))),
        query_hash(replace(base, event_time=EventTime(column="at", lateness_ms=11))),
        query_hash(replace(base, event_time=EventTime(column="on", lateness_ms=10))),
        query_hash(replace(base, output=OutputMode(mode="complete"))),
        query_hash(replace(base, output=OutputMode(mode="update", key=("a",)))),
        query_hash(replace(base, output=OutputMode(mode="update", key=("a", "b")))),
    }
    assert len(hashes) == 11
    assert query_hash(replace(base, function="", sql="select a -- one\n FROM events")) in hashes
    assert query_hash(base) == query_hash(replace(base, query="other", epoch=7, max_batch_runs=1, result_codec="zstd"))
    (tmp_path / "mine.py").write_text("def f(events): return None\n")
    assert query_hash(base) not in hashes


def test_a_package_is_hashed_whole_and_wherever_it_lies(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        helper = package(folder)
    assert query_hash(query(here, "pack.main:f")) == query_hash(query(there, "pack.main:f"))
    helper.write_text("TWO = 3\n")
    assert query_hash(query(here, "pack.main:f")) != query_hash(query(there, "pack.main:f"))


def test_other_code_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(events): return events\n")
    spec = query(tmp_path)
    mine = query_hash(spec)
    assert check(replace(spec, code_hash=mine)) == mine
    (tmp_path / "mine.py").write_text("def f(events): return 0\n")
    with pytest.raises(CodeError, match="copy the same files to both places"):
        check(replace(spec, code_hash=mine))


@pytest.mark.parametrize("spec", [{"sql": "", "function": ""}, {"sql": "SELECT 1", "function": "mine:f"}])
def test_one_of_sql_and_function_is_wanted(spec: dict[str, str]) -> None:
    with pytest.raises(CodeError, match="either sql or function"):
        check(OpenQuery(query="q", epoch=1, schema_ddl="a INT", **spec))  # type: ignore[arg-type]


def test_a_changed_module_is_loaded_anew(tmp_path: Path) -> None:
    helper = package(tmp_path)
    spec = query(tmp_path, "pack.main:f")
    assert load(spec)(10) == 20
    helper.write_text("TWO = 20000\n")
    assert load(spec)(1) == 20_000


def test_queries_of_one_folder_may_be_loaded_at_the_same_time(tmp_path: Path) -> None:
    for name in "ab":
        slow = "import threading\nthreading.Event().wait(0.02)\n"
        (tmp_path / f"mine_{name}.py").write_text(f"{slow}def f(events): return '{name}'\n")
    with ThreadPoolExecutor(4) as threads:
        loaded = list(threads.map(lambda name: load(query(tmp_path, f"mine_{name}:f"))(None), "abab" * 3))
    assert loaded == list("abab" * 3)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("mine", "write it as package.module:name"),
        ("mine:f g", "write it as package.module:name"),
        ("mine:absent", "has no function absent"),
        ("mine:NUMBER", "has no function NUMBER"),
        ("broken:f", "importing broken failed: ZeroDivisionError"),
        ("json:loads", "give the module another name"),
    ],
)
def test_what_cannot_be_loaded_says_why(tmp_path: Path, function: str, said: str) -> None:
    (tmp_path / "mine.py").write_text("NUMBER = 1\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(CodeError, match=said):
        load(query(tmp_path, function))


def test_queries_that_are_opened_at_the_same_time_get_their_own_functions(tmp_path: Path) -> None:
    names = [f"module_{number}" for number in range(4)]
    for name in names:
        (tmp_path / f"{name}.py").write_text(f"import time\ntime.sleep(0.001)\ndef run(events): return {name!r}\n")
    wanted = names * 10
    specs = [
        OpenQuery(query="q", epoch=0, schema_ddl="id BIGINT", function=f"{name}:run", code_path=str(tmp_path))
        for name in wanted
    ]
    with ThreadPoolExecutor(8) as threads:
        assert [function(None) for function in threads.map(load, specs)] == wanted


def test_the_hash_needs_no_spark(tmp_path: Path) -> None:
    program = (
        "import sys; from engines.query.code import query_hash; from infra.messages import OpenQuery; "
        "print(query_hash(OpenQuery(query='q', epoch=1, schema_ddl='a INT', sql='SELECT 1'))); "
        "sys.exit('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == query_hash(OpenQuery(query="q", epoch=1, schema_ddl="a INT", sql="SELECT 1"))


def test_the_modules_beside_a_query_of_spillways_own_go_to_executors_with_it() -> None:
    load(OpenQuery(query="q", epoch=1, schema_ddl="a INT", function="engines.snb.activeposts:active_posts"))
    sent = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    assert {"engines.snb.activeposts", "engines.snb.scores"} <= set(sent)
    assert "engines.query.code" not in sent


def test_spillways_own_queries_are_hashed_by_their_package_alone() -> None:
    names = [name for name, _ in code.sources("engines.email.running", "")]
    assert "email/running.py" in names
    assert all(name.startswith("email/") for name in names)


def test_a_table_counts_by_its_declaration_and_not_by_its_content() -> None:
    plain = OpenQuery(query="q", epoch=1, schema_ddl="a INT", sql="SELECT a FROM events")
    table = StaticTable(name="t", format="csv", schema_ddl="a INT, b STRING")
    with_table = replace(plain, tables=(table,))
    same = [replace(table, fingerprint="1" * 64), replace(table, schema_ddl="a INT,b  STRING")]
    assert {query_hash(replace(plain, tables=(each,))) for each in same} == {query_hash(with_table)}
    others = [replace(table, name="u"), replace(table, header=True), replace(table, schema_ddl="a INT, b INT")]
    hashes = {query_hash(replace(plain, tables=(each,))) for each in [table, *others]}
    assert len(hashes | {query_hash(plain)}) == 5
    other = replace(table, name="u")
    assert query_hash(replace(plain, tables=(table, other))) == query_hash(replace(plain, tables=(other, table)))
