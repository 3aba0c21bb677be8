"""The error for each mistake names its file, its line, its key and what to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gateway.config import ConfigError, load
from gateway.config.connectors.sinks import FileSinkConfig
from gateway.config.models import Config, FileSourceConfig
from policies.vms.freezing import FreezeWindow

Write = Callable[..., Path]
QOS = "qos: {latency: 2s}"


def problems(path: Path, environ: dict[str, str] | None = None) -> list[tuple[int, str, str]]:
    with pytest.raises(ConfigError) as caught:
        load(path, environ or {})
    assert all(problem.path == path for problem in caught.value.problems)
    return [(problem.line, problem.key, problem.text) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("change", "line", "key", "says"),
    [
        (("cloud:", "  orphan_aftr: 9s\ncloud:"), 3, "gateway.orphan_aftr", 'did you mean "orphan_after"?'),
        (("  boot: 10s", "  boot: 10"), 6, "cloud.boot", "ms, s, m or h"),
        (("provider: process", "provider: proces"), 4, "cloud.provider", "is not one of process"),
        (("provider: process", "provider: aws"), 4, "cloud.provider", 'did you mean "ec2"?'),
        (("provider: process", "provider: Amazon"), 4, "cloud.provider", 'did you mean "ec2"?'),
        (("provider: process", "provider: gcp"), 4, "cloud.provider", 'did you mean "gce"?'),
        (("provider: process", "provider: google"), 4, "cloud.provider", 'did you mean "gce"?'),
        (("provider: process", "provider: do"), 4, "cloud.provider", 'did you mean "digitalocean"?'),
        (("provider: process", "provider: local"), 4, "cloud.provider", 'did you mean "process"?'),
        (("provider: process", "provider: EC2"), 4, "cloud.provider", 'did you mean "ec2"?'),
        (("provider: process", "provider: process\n  image: ami-1"), 5, "cloud.image", "not used by provider process"),
        (("max_vms: 2", "max_vms: two"), 5, "cloud.max_vms", "whole number"),
        (("max_vms: 2", "max_vms: -1"), 5, "cloud.max_vms", "greater than or equal to 0"),
        (("usd_per_day: 5", "usd_per_day: $5"), 8, "cloud.budget.usd_per_day", "must be a number"),
        (("usd_per_day: 5", "usd_per_day: 5, usd_per_hour: -1"), 8, "cloud.budget.usd_per_hour", "or equal to 0"),
        (
            ("usd_per_day: 5", "usd_per_day: 5, when_spent: x"),
            8,
            "cloud.budget.when_spent",
            "is not one of stay_home, shed",
        ),
        (
            ("budget: {", "freeze: [{from: 22:00, to: 25:00}]\n  budget: {"),
            8,
            "cloud.freeze.0.to",
            "is not a time of the day",
        ),
        (
            ("budget: {", "freeze: [{from: 22:00, to: 6:00, days: [fry]}]\n  budget: {"),
            8,
            "cloud.freeze.0.days.0",
            "mon",
        ),
        (
            ("budget: {", "freeze: [{from: 22:00, to: 6:00, zone: Mars}]\n  budget: {"),
            8,
            "cloud.freeze.0.zone",
            "as in Europe/Berlin",
        ),
        (("usd_per_day: 5", "usd_per_day: .nan"), 8, "cloud.budget.usd_per_day", "finite"),
        (("  first:", "  ../first:"), 10, "queries.../first", "file name"),
        (("type: file, path: mail", "path: mail"), 11, "queries.first.source.type", "missing"),
        (("mail.jsonl.gz", "gone.jsonl.gz"), 11, "queries.first.source.path", "does not exist"),
        (("mail.jsonl.gz", "mail.xml"), 11, "queries.first.source.path", ".jsonl.zst"),
        (("path: mail.jsonl.gz", "path: empty"), 11, "queries.first.source.path", "empty folder"),
        (("rate: 2000/s", "rate: 2000"), 11, "queries.first.source.replay.rate", "2000/s"),
        (("rate: 2000/s", "rate: 2/s, profile: []"), 11, "queries.first.source.replay.profile", "at least 1"),
        (("rate: 2000/s", "id: sent"), 11, "queries.first.source.replay.id", "must be STRING"),
        (("rate: 2000/s", "id: nope"), 11, "queries.first.source.replay.id", "not a column"),
        (("rate: 2000/s", "rate: 1/s, times: sent"), 11, "queries.first.source.replay.rate", "rate and times exclude"),
        (("rate: 2000/s", "times: nope"), 11, "queries.first.source.replay.times", "not a column"),
        (("rate: 2000/s", "times: body"), 11, "queries.first.source.replay.times", "must be TIMESTAMP"),
        (("rate: 2000/s", "speed: 10"), 11, "queries.first.source.replay.speed", "give one of them"),
        (("rate: 2000/s", "rate: 2/s, speed: 0"), 11, "queries.first.source.replay.speed", "greater than 0"),
        ((", replay: {rate: 2000/s}", ", follow: true"), 11, "queries.first.source.follow", "path is a file"),
        (("mail.jsonl.gz", "empty, follow: true"), 11, "queries.first.source.replay", "keep one of them"),
        (("schema: id STRING", "schema: id"), 18, "queries.second.schema", "name TYPE"),
        (("    sql: SELECT id FROM events\n", ""), 10, "queries.first.sql", "exactly one"),
        (("sql: SELECT id FROM events", "sql: ' '"), 13, "queries.first.sql", "empty"),
        (("SELECT id FROM events", "SELECT 1; SELECT 2"), 13, "queries.first.sql", "statement 1 is a query, but only"),
        (("running:running", "running.running"), 19, "queries.second.function", "package.module:name"),
        ((QOS, "qos: {latency: 0s}"), 15, "queries.first.qos.latency", "greater than 0"),
        ((QOS, "qos: {latency: 2s, statistic: p99}"), 15, "queries.first.qos.statistic", 'did you mean "p95"'),
        (("name: first", "name: frist"), 17, "queries.second.source.name", 'there is no query "frist"'),
        (("name: first", "name: second"), 17, "queries.second.source.name", "circle"),
        (("out/second", "out/first"), 20, "queries.second.sink.path", 'query "first"'),
        (("out/first", "out/first, format: parquet"), 17, "queries.second.source.name", "only be read as jsonl"),
    ],
)
def test_a_mistake_is_answered_with_line_and_remedy(
    write: Write, change: tuple[str, str], line: int, key: str, says: str
) -> None:
    found = problems(write(change))
    assert [(where, what) for where, what, _ in found] == [(line, key)]
    assert says in found[0][2]


def test_freeze_windows_are_read(write: Write) -> None:
    found = load(write(("budget: {", "freeze: [{from: 22:30, to: 06:00, days: [sun, fri]}]\n  budget: {")), {})
    (window,) = found.cloud.freeze
    assert window.terms == FreezeWindow(days=(4, 6), begin_s=81_000, end_s=21_600, zone="UTC")


def test_late_rows_of_a_divided_query_may_be_kept(write: Write) -> None:
    late = "event_time: {column: sent, lateness: 10s, late: dead-letters}"
    found = load(write((QOS, f"{QOS}\n    {late}\n    switching: {{mode: keys, key: body}}")), {})
    assert found.queries["first"].keep_late == ("",)


@pytest.mark.parametrize(
    ("extra", "key", "says"),
    [
        ("switching: {start_vm_above: 2s}", "switching.start_vm_above", "must be above send_above"),
        ("switching: {send_above: 2.5s}", "switching.start_vm_above", "must be above send_above"),
        ("switching: {keep_vm_above: 2.1s}", "switching.keep_vm_above", "must not be above send_above"),
        ("switching: {mode: selections}", "switching.mode", '"selections" is not one of auto, data, keys, query, off'),
        ("switching: {mode: keys}", "switching.key", "is missing: write one of id, "),
        ("switching: {mode: keys, key: bdy}", "switching.key", "is 'bdy', which is no column of the schema"),
        ("switching: {mode: keys, key: body, parts: 1}", "switching.parts", "2"),
        ("switching: {key: body}", "switching.key", "is for mode keys only"),
        ("switching: {share: 0.1}", "switching.share", "%"),
        ("switching: {share: 110%}", "switching.share", "more than 100%"),
        ("payload: {compress: gzipp}", "payload.compress", "none, auto"),
        ("drift: strikt", "drift", 'did you mean "strict"'),
        ("payload: {compress: {body: zip}}", "payload.compress.body", "zstd-dict"),
        ("payload: {compress: {bdy: zstd}}", "payload.compress.bdy", "not a column"),
        ("payload: {private: [bdy]}", "payload.private", '"bdy" is not a column of schema'),
        ("payload: {encrypt: [sent]}", "payload.encrypt", '"sent" is TIMESTAMP; encrypt is for STRING and BINARY'),
        ("payload: {tokenize: [to]}", "payload.tokenize", "make it private"),
        ("payload: {encrypt: [id, id]}", "payload.encrypt", "is also in encrypt; a field has one protection"),
        ("payload: {private: [id], tokenize: [id]}", "payload.tokenize", "is also in private"),
        ("payload: {encrypt: body}", "payload.encrypt", "tuple"),
        ("order: {by: body}", "order.by", "must be TIMESTAMP"),
        ("order: false", "order", "must hold keys"),
        ("order:", "order", "write {by: arrival} or off"),
        ("policy: {type: planer}", "policy.type", 'did you mean "planner"'),
        ("policy: {horizon: 1m}", "policy.type", "as in {type: reactive"),
        ("policy: {type: planner, horizn: 1m}", "policy.horizn", 'did you mean "horizon"'),
        ("policy: {type: planner, horizon: 1s}", "policy.horizon", "cloud.boot and a window"),
        ("policy: {type: planner, window: 10ms}", "policy.window", "must not be shorter than gateway.slot"),
        ("policy: {type: planner, window: 1s, horizon: 1h}", "policy.horizon", "more than 120 windows"),
        ("policy: {type: planner, history: 10}", "policy.history", "greater than or equal to 50"),
        ("policy: {type: queueing, probability: 100%}", "policy.probability", "between 0% and 100%"),
        ("policy: {type: queueing, cycle: 1h}", "policy.cycle", "seasonal or gp"),
        ("policy: {type: queueing, forecast: seasonal, cycle: 1s}", "policy.cycle", "2 to 20000 windows"),
        ("policy: {type: cpu, stop_below: 80%}", "policy.stop_below", "must be below start_above"),
        ("policy: {type: static}", "policy.vms", "is missing"),
        ("policy: {type: static, vms: 3}", "policy.vms", "more than cloud.max_vms"),
        ("event_time: {column: snt, lateness: 10s}", "event_time.column", '"snt" is not a column of schema; its'),
        ("event_time: {column: body, lateness: 10s}", "event_time.column", 'column "body" is STRING, but must be'),
        ("event_time: {column: sent, lateness: -10s}", "event_time.lateness", '"-10s" is not a duration; write a'),
        ("event_time: {column: sent, lateness: 10}", "event_time.lateness", "10 is not a duration; write a number"),
        ("event_time: {column: sent}", "event_time.lateness", "is missing"),
        ("event_time: {column: sent, lateness: 1s, late: keep}", "event_time.late", "is not one of drop, dead-letters"),
        ("runs: {max_events: 0}", "runs.max_events", "greater than or equal to 1"),
        ("qso: {latency: 1s}", "qso", "unknown key"),
    ],
)
def test_a_mistake_in_a_query_is_answered(write: Write, extra: str, key: str, says: str) -> None:
    found = problems(write((QOS, f"{QOS}\n    {extra}")))
    assert [(where, what) for where, what, _ in found] == [(16, f"queries.first.{key}")]
    assert says in found[0][2]


def test_runs_that_no_link_carries_once_they_are_sealed_are_answered(write: Write) -> None:
    more = "payload: {encrypt: [id]}\n    runs: {max_bytes: 64MiB}"
    ((line, key, says),) = problems(write((QOS, f"{QOS}\n    {more}")))
    assert (line, key) == (17, "queries.first.runs")
    assert "a link carries 67108864 at a time: lower max_bytes" in says
    assert load(write((QOS, f"{QOS}\n    {more.replace('encrypt', 'private')}")), {}).queries["first"].runs.max_events


def test_an_event_time_without_a_zone_is_answered(write: Write) -> None:
    zoneless = ("sent TIMESTAMP", "sent TIMESTAMP_NTZ")
    ((line, key, says),) = problems(write(zoneless, (QOS, f"{QOS}\n    event_time: {{column: sent, lateness: 10s}}")))
    assert (line, key) == (16, "queries.first.event_time.column")
    assert 'column "sent" is TIMESTAMP_NTZ, but must be TIMESTAMP: a watermark needs a time with a zone' in says


def test_order_off_and_an_upstream_do_not_go_together(write: Write) -> None:
    found = problems(write((QOS, f"{QOS}\n    order: off")))
    assert [(line, key) for line, key, _ in found] == [(18, "queries.second.source.name")]
    assert "order: off" in found[0][2]


def test_order_off_alone_is_none(write: Write) -> None:
    second = ("qos: {latency: 3s}", "qos: {latency: 3s}\n    order: off")
    assert load(write(second), {}).queries["second"].order is None


def test_all_problems_are_listed_in_the_order_of_lines(write: Write) -> None:
    found = problems(write(("  boot: 10s", "  boot: 10"), ("max_vms: 2", "max_vmz: 2"), ("latency: 3s", "latency: 3")))
    assert [(line, key) for line, key, _ in found] == [
        (3, "cloud.max_vms"),
        (5, "cloud.max_vmz"),
        (6, "cloud.boot"),
        (21, "queries.second.qos.latency"),
    ]
    assert found[0][2] == 'is missing; is it misspelled as "max_vmz"?'


def test_the_text_of_a_problem_is_file_line_key(write: Write) -> None:
    path = write(("  boot: 10s", "  boot: 10"))
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert str(caught.value).startswith(f"{path}:6: cloud.boot: 10 is not a duration")


def test_a_missing_section_is_named(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "half.yaml"
    path.write_text("gateway: {state_dir: x}\n")
    assert [(key, text) for _, key, text in problems(path)] == [("queries", "is missing; add it")]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: [1, 2\n", 3, "YAML"),
        ("a: 1\na: 2\n", 2, "duplicate key"),
        ("a:\n\t- 1\n", 2, "YAML"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("- a\n", 1, "sections"),
        ("", 1, "sections"),
        ("a: \x00\n", 1, "YAML"),
    ],
)
def test_what_is_no_yaml_mapping_is_answered(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    (found,) = problems(path)
    assert (found[0], found[1]) == (line, "")
    assert says in found[2]


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    assert "cannot be read" in problems(tmp_path / "none.yaml")[0][2]
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff\xfe")
    assert "UTF-8" in problems(tmp_path / "latin.yaml")[0][2]
    (tmp_path / "huge.yaml").write_bytes(b"#" * (2**20 + 1))
    assert "larger" in problems(tmp_path / "huge.yaml")[0][2]


def test_variables_come_from_the_environment(write: Write) -> None:
    path = write(("mail.jsonl.gz", '"${MAIL:-none.jsonl}"'), ("max_vms: 2", "max_vms: ${VMS}"))
    config = load(path, {"MAIL": "mail.jsonl.gz", "VMS": "7"})
    assert config.queries["first"].inputs[""].model_dump()["path"].name == "mail.jsonl.gz"
    assert config.cloud.max_vms == 7


def test_a_default_stands_in_for_a_variable(write: Write) -> None:
    path = write(("mail.jsonl.gz", '"${MAIL:-mail.jsonl.gz}"'))
    assert load(path, {}).queries["first"].inputs[""].model_dump()["path"].name == "mail.jsonl.gz"


def test_a_variable_that_is_missing_is_one_problem_and_not_two(write: Write) -> None:
    path = write(("mail.jsonl.gz", '"${MAIL}"'), ("boot: 10s", "boot: ${BOOT}"))
    assert [(line, key) for line, key, _ in problems(path)] == [(6, "cloud.boot"), (11, "queries.first.source.path")]


def test_a_variable_cannot_smuggle_structure_in(write: Write) -> None:
    path = write(("sql: SELECT id FROM events", "sql: ${SQL}"))
    config = load(path, {"SQL": "FROM x\n    qos: {latency: 9s}"})
    assert config.queries["first"].sql == "FROM x\n    qos: {latency: 9s}"
    assert config.queries["first"].qos.latency_s == 2.0


def test_paths_start_at_the_config_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write()
    monkeypatch.chdir("/")
    config = load(path, {})
    assert config.folder == tmp_path
    sink = config.queries["second"].sink
    assert isinstance(sink, FileSinkConfig)
    assert sink.path == tmp_path / "out" / "second"


def test_a_maildir_is_an_input(write: Write, tmp_path: Path) -> None:
    (tmp_path / "box" / "cur").mkdir(parents=True)
    assert (
        load(write(("mail.jsonl.gz", "box")), {}).queries["first"].inputs[""].model_dump()["path"] == tmp_path / "box"
    )


def test_queries_are_sorted_upstream_first(write: Write) -> None:
    assert load(write(), {}).upstream_first == ["first", "second"]


def test_a_profile_is_steps(write: Write) -> None:
    change = ("rate: 2000/s", "profile: [{for: 10s, rate: 500/s}, {for: 5s, rate: 2000/s}], loops: 3, id: id")
    source = load(write(change), {}).queries["first"].source
    assert isinstance(source, FileSourceConfig)
    replay = source.replay
    assert replay is not None
    assert replay.profile is not None
    assert [(step.for_s, step.rate_per_s) for step in replay.profile] == [(10.0, 500.0), (5.0, 2000.0)]
    assert (replay.loops, replay.id_field) == (3, "id")


def test_the_json_schema_speaks_the_file_s_words() -> None:
    definitions = Config.model_json_schema()["$defs"]
    assert set(definitions["QosConfig"]["properties"]) == {"latency", "statistic"}
    assert definitions["QosConfig"]["properties"]["latency"]["type"] == "string"
    assert {"const": "off", "type": "string"} in definitions["QueryConfig"]["properties"]["order"]["anyOf"]


KEYS = st.sampled_from(["gateway", "cloud", "queries", "first", "source", "type", "state_dir", "sink", "qos", "order"])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(tree=st.dictionaries(KEYS, TREES, max_size=4))
def test_any_document_is_a_config_or_a_config_error(tmp_path: Path, tree: dict[str, Any]) -> None:
    path = tmp_path / "any.yaml"
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(tree, file)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    lines = path.read_text(encoding="utf-8").count("\n") + 1
    assert all(1 <= problem.line <= lines for problem in caught.value.problems)


FOUR = """\
gateway:
  state_dir: ./state
cloud:
  provider: process
  max_vms: 2
  boot: 10s
  billing: {period: 60s, minimum: 60s, usd_per_hour: 0.10, usd_per_gb_sent: 0.09}
  budget: {usd_per_day: 5}
queries:
  a:
    source: {type: file, path: mail.jsonl.gz}
    schema: id STRING
    sql: SELECT id FROM events
    sink: {type: file, path: out/a}
    qos: {latency: 2}
  b:
    source: {type: file, path: mail.jsonl.gz}
    schema: id STRING
    sql: SELECT id FROM events
    sink: {type: file, path: out/a}
    qos: {latency: 2s}
  c:
    source: {type: query, name: nobody}
    schema: id STRING
    sql: SELECT id FROM events
    sink: {type: file, path: out/c}
    qos: {latency: 2s}
    order: {by: sent}
  d:
    source: {type: query, name: a}
    schema: id STRING
    sql: SELECT id FROM events
    sink: {type: file, path: out/d}
    qos: {latency: 2s}
    policy: {type: static, vms: 3}
    ordr: off
"""


def test_the_mistakes_of_all_queries_are_reported_at_once(write: Write) -> None:
    path = write()
    path.write_text(FOUR)
    assert [(line, key) for line, key, _ in problems(path)] == [
        (15, "queries.a.qos.latency"),
        (20, "queries.b.sink.path"),
        (23, "queries.c.source.name"),
        (28, "queries.c.order.by"),
        (35, "queries.d.policy.vms"),
        (36, "queries.d.ordr"),
    ]


def test_a_mistake_elsewhere_does_not_hide_those_of_queries(write: Write) -> None:
    path = write(("max_vms: 2", "max_vms: two"), ("name: first", "name: frist"))
    assert [(line, key) for line, key, _ in problems(path)] == [
        (5, "cloud.max_vms"),
        (17, "queries.second.source.name"),
    ]


def test_nothing_is_said_of_how_a_mistaken_part_fits_the_others(write: Write) -> None:
    # The upstream's sink and order cannot be read: whether its results can be, nobody knows yet.
    path = write(("path: out/first", "pth: out/first"), (QOS, f"{QOS}\n    order: {{bye: sent}}"))
    found = [(line, key) for line, key, _ in problems(path)]
    assert found == [(14, "queries.first.sink.path"), (14, "queries.first.sink.pth"), (16, "queries.first.order.bye")]


@pytest.mark.parametrize("queries", ["queries: []", "queries: {a: 1}", "queries: {a: {}}", "queries:"])
def test_queries_that_hold_nothing_readable_are_answered(write: Write, queries: str) -> None:
    path = write()
    path.write_text(path.read_text().partition("queries:")[0] + queries)
    assert all(key.startswith("queries") for _, key, _ in problems(path))


@pytest.mark.parametrize("said", ["", "cloud: none\n"])
def test_without_a_cloud_no_vm_may_be_rented(write: Write, said: str) -> None:
    path = write()
    before, _, after = path.read_text().partition("cloud:")
    path.write_text(f"{before}{said}queries:{after.partition('queries:')[2]}")
    cloud = load(path, {}).cloud
    assert (cloud.max_vms, cloud.terms.usd_per_hour, cloud.budget.usd_per_day) == (0, 0.0, 0.0)


def test_a_word_that_is_no_cloud_is_answered_with_the_keys(write: Write) -> None:
    path = write()
    before, _, after = path.read_text().partition("cloud:")
    path.write_text(f"{before}cloud: aws\nqueries:{after.partition('queries:')[2]}")
    ((line, key, text),) = problems(path)
    assert (line, key) == (3, "cloud")
    assert "must hold keys, not 'aws'; the keys here are" in text
    assert "provider" in text


def test_the_json_schema_allows_a_config_without_a_cloud() -> None:
    schema = Config.model_json_schema()
    assert "cloud" not in schema["required"]
    assert {"const": "none", "type": "string"} in schema["properties"]["cloud"]["anyOf"]


def with_spark(write: Write, said: str) -> Path:
    return write(("cloud:", f"private:\n  spark:\n    master: local[1]\n    {said}\ncloud:"))


def test_spark_settings_are_spelled_as_spark_does(write: Write) -> None:
    said = "memory: 2GiB\n    conf: {spark.sql.caseSensitive: true, spark.executor.cores: 2, spark.executor.memory: 4g}"
    spark = load(with_spark(write, said), {}).private.spark
    assert spark.settings == {
        "spark.sql.caseSensitive": "true",
        "spark.executor.cores": "2",
        "spark.executor.memory": "4g",
        "spark.driver.memory": "2048m",
    }


def test_other_spark_settings_have_another_fingerprint(write: Write) -> None:
    said = ["memory: 2GiB", "memory: 3GiB", "conf: {spark.executor.cores: 2}", "conf: {spark.executor.cores: 3}"]
    prints = {load(with_spark(write, each), {}).private.spark.fingerprint for each in said}
    assert len(prints) == 4


@pytest.mark.parametrize(
    ("said", "key", "says"),
    [
        ("conf: {spark.sql.ansi.enabled: false}", "conf.spark.sql.ansi.enabled", "answers at home and in the cloud"),
        ("conf: {spark.sql.session.timeZone: CET}", "conf.spark.sql.session.timeZone", "compared under 'UTC'"),
        ("conf: {spark.driver.memory: 2g}", "conf.spark.driver.memory", "write private.spark.memory instead"),
        ("conf: {spark.master: yarn}", "conf.spark.master", "write private.spark.master instead"),
        ("conf: {executor.memory: 2g}", "conf.executor.memory", "begin with spark."),
        ("conf: {spark.executor.memory: [1]}", "conf.spark.executor.memory", "string"),
        ("memory: 100MB", "memory", "less than 512MiB"),
        ("memory: 2", "memory", "GiB"),
        ("memry: 2GiB", "memry", 'did you mean "memory"?'),
    ],
)
def test_a_mistake_in_spark_settings_is_answered(write: Write, said: str, key: str, says: str) -> None:
    ((line, found, text),) = problems(with_spark(write, said))
    assert (line, found) == (6, f"private.spark.{key}")
    assert says in text


@pytest.mark.parametrize(
    ("master", "right"),
    [
        ("spark://a:7077", True),
        ("spark://a:7077,b:7077", True),
        ("spark://a", False),
        ("spark://a:7077,b", False),
        ("k8s://https://a:6443", True),
        ("yarn", True),
        ("mesos://a:5050", False),
    ],
)
def test_masters(write: Write, master: str, right: bool) -> None:
    path = write(("cloud:", f"private: {{spark: {{master: '{master}'}}}}\ncloud:"))
    if right:
        assert load(path, {}).private.spark.master == master
    else:
        ((_, key, text),) = problems(path)
        assert (key, "spark://host:port" in text) == ("private.spark.master", True)


def test_relative_checkpoints_start_at_the_config_file(write: Write) -> None:
    path = with_spark(write, "checkpoints: states")
    assert load(path, {}).private.spark.checkpoints == path.parent / "states"


@pytest.mark.parametrize(
    ("conf", "right"),
    [
        ("{}", False),
        ("{spark.kubernetes.executor.volumes.nfs.states.mount.path: /other}", False),
        ("{spark.kubernetes.driver.volumes.nfs.states.mount.path: /states}", False),
        ("{spark.kubernetes.executor.volumes.nfs.states.mount.path: /states}", True),
        ("{spark.kubernetes.executor.volumes.nfs.states.mount.path: /}", True),
        ("{spark.kubernetes.executor.podTemplateFile: pod.yaml}", True),
    ],
)
def test_pods_need_a_volume_with_the_checkpoints(write: Write, conf: str, right: bool) -> None:
    said = f"master: 'k8s://https://a:6443', checkpoints: /states, conf: {conf}"
    path = write(("cloud:", f"private: {{spark: {{{said}}}}}\ncloud:"))
    if right:
        assert load(path, {}).private.spark.checkpoints == Path("/states")
    else:
        ((_, key, text),) = problems(path)
        assert (key, "in no volume of the executors' pods" in text) == ("private.spark.checkpoints", True)


def test_an_example_whose_mail_is_missing_says_how_to_make_it(tmp_path: Path) -> None:
    missing = tmp_path / "no mail.jsonl.gz"
    example = Path(__file__).parents[2] / "examples" / "email.yaml"
    with pytest.raises(ConfigError) as caught:
        load(example, {"SPILLWAY_MAIL": str(tmp_path / "x" / ".." / missing.name)})
    command = str(caught.value).partition("make mail to play with: ")[2].splitlines()[0]
    assert command == f"spillway mail '{missing}'"
    missing.touch()
    assert load(example, {"SPILLWAY_MAIL": str(missing)}).queries


def test_queries_with_a_mistake_can_be_left_out(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "email.yaml"
    (tmp_path / "mail.jsonl.gz").touch()
    environ = {"SPILLWAY_MAIL": str(tmp_path / "mail.jsonl.gz")}
    assert set(load(example, environ, without={"email-metrics", "none-such"}).queries) == {"email-processor"}


TABLE = "    tables: {{{name}: {{path: {path}, format: {said}}}}}\n    sql: SELECT id FROM events"


@pytest.mark.parametrize(
    ("name", "path", "said", "key", "says"),
    [
        ("c", "empty", "csv", "c.schema", "is missing; give the columns of the csv files"),
        ("c", "empty", "parquet, schema: id INT", "c.schema", "Parquet files name their columns"),
        ("c", "empty", "'json', schema: id INT, header: true", "c.header", "is for csv"),
        ("c", "gone.csv", "csv, schema: id INT", "c.path", "gone.csv does not exist"),
        ("c", "empty", "orc", "c.format", "is not one of csv, parquet, json, jdbc"),
        ("c", "empty", "parquet, url: 'jdbc:x:y'", "c.url", "is for jdbc; remove it"),
        ("Events", "empty", "parquet", "Events", "is the view of the stream"),
        ("a-b", "empty", "parquet", "a-b", "letters, digits and underscores"),
        ("c: {path: empty, format: parquet}, C", "empty", "parquet", "", "but for letter case"),
    ],
)
def test_mistakes_in_tables(write: Write, name: str, path: str, said: str, key: str, says: str) -> None:
    text = TABLE.format(name=name, path=path, said=said)
    ((_, found, what),) = problems(write(("    sql: SELECT id FROM events", text)))
    assert found.startswith(f"queries.first.tables{'.' if key else ''}{key}")
    assert says in what


@pytest.mark.parametrize(
    ("said", "key", "says"),
    [
        ("table: t", "url", "is missing; add it, as in jdbc:postgresql://"),
        ("url: 'jdbc:x:y'", "query", "give either query or table"),
        ("url: 'jdbc:x:y', table: t, query: SELECT 1", "query", "give either query or table"),
        ("url: 'postgresql://db', table: t", "url", "jdbc:"),
        ("url: 'jdbc:x:y', table: t, path: empty", "path", "is for files"),
        ("url: 'jdbc:x:y', table: t, schema: id INT", "schema", "a database names its columns"),
        ("url: 'jdbc:x:y', table: t, header: true", "header", "is for csv"),
        ("url: 'jdbc:x:y', table: t, refresh: 10s", "refresh", "give 1m or more"),
        ("url: 'jdbc:x:y', table: t, login: {user: reader}", "login.password", "is missing"),
    ],
)
def test_mistakes_in_tables_of_databases(write: Write, said: str, key: str, says: str) -> None:
    text = f"    tables: {{c: {{format: jdbc, {said}}}}}\n    sql: SELECT id FROM events"
    ((_, found, what),) = problems(write(("    sql: SELECT id FROM events", text)))
    assert found == f"queries.first.tables.c.{key}"
    assert says in what


def test_a_view_of_the_sql_may_not_have_the_name_of_a_table(write: Write) -> None:
    text = TABLE.format(name="c", path="empty", said="parquet")
    text = text.replace("SELECT id FROM events", "CREATE TEMP VIEW C AS SELECT 1; SELECT id FROM events")
    ((_, found, what),) = problems(write(("    sql: SELECT id FROM events", text)))
    assert found == "queries.first.tables.c"
    assert "is also a view that sql creates" in what


def test_tables_start_at_the_folder_of_the_config(write: Write) -> None:
    text = TABLE.format(name="c", path="empty", said="parquet")
    path = write(("    sql: SELECT id FROM events", text))
    assert load(path, {}).queries["first"].tables["c"].path == path.parent.absolute() / "empty"
