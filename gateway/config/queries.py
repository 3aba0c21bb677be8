"""The config's section about a query: what is computed, the latency target, and the means allowed to meet it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from engines.query.sqltext import StatementError, statements
from gateway.config.connectors.kafka import KafkaSourceConfig, circle_findings
from gateway.config.connectors.output import OutputConfig, output_findings
from gateway.config.connectors.sinks import SinkConfig
from gateway.config.connectors.sources import FileSourceConfig, SourceConfig
from gateway.config.connectors.streams import (
    EventTimeConfig,
    SeveralSources,
    Streams,
    column_problem,
    common_ddl,
    has_columns,
    key_of,
    streams_of,
)
from gateway.config.connectors.tables import TableConfig, TableName
from gateway.config.policy import PolicyConfig, ReactivePolicyConfig, SwitchingConfig, ThresholdsConfig
from gateway.config.sections.announced import AnnouncedConfig
from gateway.config.sections.extras import EXTRAS, why_missing
from gateway.config.sections.guarantee import Delivery, delivery_findings
from gateway.config.sections.handling import DeadLettersConfig, OnFailureConfig, OrderConfig, QosConfig, RunsConfig
from gateway.config.sections.patterns import PatternConfig
from gateway.config.sections.payload import PayloadConfig
from gateway.config.sections.selections import SelectionsConfig
from gateway.config.words.ddl import top_level_columns
from gateway.config.words.fields import Checked, Finding, FunctionName, refuse
from infra.link.frames import MAX_PAYLOAD_BYTES
from infra.messages import EventStream, EventTime, KeyPart, SelectionRule

# What a token or an encrypted value takes besides the value, as Base64, with the text around it; Base64 takes a third.
_SEAL_BYTES = 64


def _off_is_none(value: object) -> object:
    if value is None:
        raise ValueError("the value is missing; write {by: arrival} or off")
    return None if value == "off" else value


def _distinct(tables: dict[str, TableConfig]) -> dict[str, TableConfig]:
    if len({name.lower() for name in tables}) < len(tables):
        raise ValueError("two tables have the same name but for letter case, which does not count in SQL; rename one")
    return tables


def _named_apart(announced: tuple[AnnouncedConfig, ...]) -> tuple[AnnouncedConfig, ...]:
    if len({each.name for each in announced}) < len(announced):
        raise ValueError("two announcements have the same name; rename one")
    return announced


class QueryConfig(Checked):
    """One query: the source of its events, what is computed, where results go, and the latency target.

    Attributes:
        one_source: where its events come from.
        one_schema: the columns of its events with their types, as Spark DDL.
        sources: several sources in place of ``source``, ``schema`` and ``event_time``; each is a view
            (docs/several-sources.md).
        sql: a SELECT over the view ``events``, or statements that prepare it (docs/event-time.md). Either this
            or ``function``.
        function: a Python function that gets the events as a DataFrame and returns the results (docs/functions.md).
        event_time: the watermark of its events.
        selections: how its events become selections, such as sliding windows, each processed by itself
            (docs/selections.md).
        pattern: what is looked for over several events (docs/patterns.md); ``sql`` and ``function`` see the matches,
            and may be left out.
        output: which results a query with state emits.
        tables: static tables that it reads besides its events (docs/tables.md).
        sink: where its results go.
        qos: the latency target.
        switching: which part of its events may go to VMs, and at which latencies.
        payload: what of an event crosses the WAN.
        order: the order in which results are released; ``off`` releases each result when it is there.
        policy: what decides when VMs are launched and kept (docs/policies.md).
        announced: load that is known in advance (docs/announced-load.md).
        runs: how events are put together.
        drift: what happens to an event whose fields differ from ``schema``: ``lenient`` fills missing fields with null
            and ignores unknown ones, ``strict`` makes a dead letter of it (docs/schema-drift.md).
        delivery: ``auto``, as its source, its sink and its data path can; ``exactly_once``, the query never takes the
            data path ``direct``, and an mqtt source below QoS 2, an mqtt sink or an http sink is refused
            (docs/delivery.md).
        dead_letters: when dead letters stop the query.
        on_failure: when a query that failed is opened again.
        new_epoch: lets a changed definition of a stateful query discard the old one's state
            (docs/changing-a-query.md).
    """

    CHECKS = (
        ("_text_findings", ("sql", "function", "pattern", "tables", "sources")),
        ("_column_findings", ("one_schema", "payload", "order", "one_source", "sources")),
        ("_event_time_findings", ("one_schema", "event_time", "sources")),
        (
            "_selection_findings",
            ("one_schema", "selections", "pattern", "tables", "event_time", "sources", "switching", "output"),
        ),
        ("_protection_findings", ("one_schema", "payload", "sources")),
        ("_sealed_size_findings", ("payload", "runs")),
        ("_threshold_findings", ("switching", "qos")),
        ("_division_findings", ("one_schema", "switching", "sources")),
        ("_circle_findings", ("one_source", "sink", "sources")),
        ("_output_findings", ("output", "sink")),
        ("_extra_findings", ("one_source", "sink", "sources")),
        ("_delivery_findings", ("delivery", "one_source", "sink", "sources")),
    )

    one_source: SourceConfig | None = Field(default=None, alias="source")
    one_schema: Annotated[str, AfterValidator(has_columns)] | None = Field(
        default=None, alias="schema", min_length=1, examples=["id BIGINT, customer STRING, at TIMESTAMP"]
    )
    sources: Streams = Field(default={})
    sql: str | None = Field(default=None, examples=["SELECT id, customer FROM events WHERE id > 100"])
    function: FunctionName | None = Field(default=None, examples=["shop.orders:large_orders"])
    event_time: EventTimeConfig | None = None
    selections: SelectionsConfig | None = None
    pattern: PatternConfig | None = None
    output: OutputConfig = OutputConfig()
    tables: Annotated[dict[TableName, TableConfig], AfterValidator(_distinct)] = Field(default={}, max_length=100)
    sink: SinkConfig
    qos: QosConfig
    switching: SwitchingConfig = SwitchingConfig()
    payload: PayloadConfig = PayloadConfig()
    order: Annotated[
        OrderConfig | None, BeforeValidator(_off_is_none, json_schema_input_type=OrderConfig | Literal["off"])
    ] = OrderConfig()
    policy: PolicyConfig = ReactivePolicyConfig(type="reactive")
    announced: Annotated[tuple[AnnouncedConfig, ...], Field(max_length=100), AfterValidator(_named_apart)] = ()
    runs: RunsConfig = RunsConfig()
    drift: Literal["lenient", "strict"] = "lenient"
    delivery: Delivery = "auto"
    dead_letters: DeadLettersConfig = DeadLettersConfig()
    on_failure: OnFailureConfig = OnFailureConfig()
    new_epoch: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        refuse(self.findings())
        return self

    @property
    def source(self) -> SourceConfig | SeveralSources:
        """Return where its events come from."""
        return self.inputs[""] if "" in self.inputs else SeveralSources(self.inputs)

    @property
    def inputs(self) -> dict[str, SourceConfig]:
        """Return each source by the name of its stream; the only one has an empty name."""
        if self.sources:
            return {name: stream.source for name, stream in self.sources.items()}
        return {} if self.one_source is None else {"": self.one_source}

    @property
    def schema_ddl(self) -> str:
        """Return the columns of its events, of all streams together."""
        return common_ddl(self.sources) if self.sources else self.one_schema or ""

    @property
    def streams(self) -> tuple[EventStream, ...]:
        """Return its streams as engine hosts get them; none if it has one source."""
        return streams_of(self.sources)

    @property
    def thresholds(self) -> ThresholdsConfig:
        """Return the switching thresholds with their defaults."""
        said, target_s = self.switching, self.qos.latency_s
        return ThresholdsConfig(
            start_vm_above_s=1.2 * target_s if said.start_vm_above_s is None else said.start_vm_above_s,
            send_above_s=target_s if said.send_above_s is None else said.send_above_s,
            keep_vm_above_s=0.5 * target_s if said.keep_vm_above_s is None else said.keep_vm_above_s,
            keep_vm_bytes=said.keep_vm_bytes,
            tolerance_s=said.tolerance_s,
        )

    @property
    def part(self) -> KeyPart | None:
        """Return the first part of a query that is divided by its keys; None if it is not divided."""
        if self.switching.mode != "keys":
            return None
        return KeyPart(key=self.switching.key or "", index=0, parts=self.switching.parts)

    @property
    def event_times(self) -> dict[str, EventTimeConfig]:
        """Return the event time of each stream that has one; that of the only source has an empty name."""
        said = {name: stream.event_time for name, stream in self.sources.items()} or {"": self.event_time}
        return {name: event_time for name, event_time in said.items() if event_time is not None}

    @property
    def time_columns(self) -> dict[str, str]:
        """Return the event-time columns by stream, as they are called in ``schema_ddl``."""
        if self.event_time is not None:
            return {"": self.event_time.column}
        timed = ((stream, stream.event_time) for stream in self.streams)
        return {stream.name: dict(stream.columns)[at.column] for stream, at in timed if at is not None}

    @property
    def watermark(self) -> EventTime | None:
        """Return ``event_time`` as engine hosts get it."""
        return None if self.event_time is None else self.event_time.watermark

    @property
    def selection_rule(self) -> SelectionRule | None:
        """Return ``selections`` or ``pattern`` as engine hosts get them."""
        said = self.selections or self.pattern
        return None if said is None else said.rule

    @property
    def query_sql(self) -> str:
        """Return the SQL of the query; empty if it has a function."""
        whole = "SELECT * FROM matches" if self.pattern is not None and self.function is None else ""
        return self.sql or whole

    @property
    def refreshed(self) -> dict[str, float]:
        """Return how often (s) to look for new content of those of its tables for which the config says it."""
        return {name: table.refresh_s for name, table in self.tables.items() if table.refresh_s is not None}

    @property
    def keep_late(self) -> tuple[str, ...]:
        """The streams whose events become dead letters if they come too late; the only one has an empty name."""
        times = {name: stream.event_time for name, stream in self.sources.items()} or {"": self.event_time}
        return tuple(name for name, time in times.items() if time is not None and time.late == "dead-letters")

    def findings(self) -> list[Finding]:
        """See ``Checked.findings``; a query without source or schema has no findings about these."""
        found = [] if "sources" in self._mistaken else self._source_findings()
        missing = {"one_source": self.one_source, "one_schema": self.one_schema}
        if not self.sources:
            self._mistaken |= {name for name, value in missing.items() if value is None}
        return found + super().findings()

    def _source_findings(self) -> list[Finding]:
        said = {"one_source": self.one_source, "one_schema": self.one_schema, "event_time": self.event_time}
        if self.sources:
            what = "each of the sources has its own: move it there"
            wrong = [name for name, value in said.items() if value is not None]
        else:
            what = "is missing; add it"
            wrong = [name for name in ("one_source", "one_schema") if said[name] is None and name not in self._mistaken]
        return [Finding(key=(name.removeprefix("one_"),), what=what) for name in wrong]

    def _text_findings(self) -> list[Finding]:
        given = [self.sql, self.function].count(None)
        if given == 0 or (given == 2 and self.pattern is None):
            return [Finding(key=("sql",), what="give exactly one of sql and function")]
        if self.sql is not None and not self.sql.strip():
            return [Finding(key=("sql",), what="is empty; write a SELECT over the view events")]
        try:
            views = {name.lower() for name, _ in statements(self.sql or "SELECT").views}
        except StatementError as error:
            return [Finding(key=("sql",), what=str(error))]
        streams = {name.lower() for name in self.sources}
        return [
            Finding(key=(of, name), what=f"is also a view {whose}; give one of them another name")
            for of, names, others, whose in (
                ("tables", self.tables, views, "that sql creates"),
                ("sources", self.sources, views, "that sql creates"),
                ("tables", self.tables, streams, "of one of the sources"),
            )
            for name in names
            if name.lower() in others
        ]

    def _division_findings(self) -> list[Finding]:
        return self.switching.findings(self.schema_ddl)

    def _circle_findings(self) -> list[Finding]:
        return [finding for source in self.inputs.values() for finding in circle_findings(source, self.sink)]

    def _output_findings(self) -> list[Finding]:
        return output_findings(self.output, self.sink)

    def _delivery_findings(self) -> list[Finding]:
        return delivery_findings(self.delivery, self.inputs, self.sink)

    def _extra_findings(self) -> list[Finding]:
        ends = [((*key_of(stream), "type"), source.type, "sources") for stream, source in self.inputs.items()]
        return [
            Finding(key=key, what=what)
            for key, kind, side in [*ends, (("sink", "type"), self.sink.type, "sinks")]
            if kind in EXTRAS and (what := why_missing(f"{kind} {side}", kind)) is not None
        ]

    def _column_findings(self) -> list[Finding]:
        columns, source = top_level_columns(self.schema_ddl), self.one_source
        wanted: list[tuple[tuple[str, ...], str, str]] = []
        if isinstance(self.payload.compress, dict):
            wanted += [(("payload", "compress", name), name, "") for name in self.payload.compress]
        if self.order is not None and self.order.by != "arrival":
            wanted.append((("order", "by"), self.order.by, "TIMESTAMP"))
        if isinstance(source, FileSourceConfig) and source.replay and source.replay.id_field:
            wanted.append((("source", "replay", "id"), source.replay.id_field, "STRING"))
        if isinstance(source, FileSourceConfig) and source.replay and source.replay.times:
            wanted.append((("source", "replay", "times"), source.replay.times, "TIMESTAMP"))
        of_source = source.column_findings(columns) if isinstance(source, KafkaSourceConfig) else []
        return of_source + [
            Finding(key=key, what=what)
            for key, name, kind in wanted
            if (what := column_problem(columns, name, kind)) is not None
        ]

    def _event_time_findings(self) -> list[Finding]:
        if self.event_time is None or self.sources:
            return []
        return self.event_time.findings(top_level_columns(self.schema_ddl))

    def _selection_findings(self) -> list[Finding]:
        said = self.selections or self.pattern
        if said is None:
            return []
        apart = {
            "selections": self.pattern is not None and self.selections is not None,
            "sources": bool(self.sources),
            "event_time": self.event_time is not None,
            "output": self.output.mode != "append",
        }
        what = "selections" if self.pattern is None else "pattern"
        findings = [
            Finding(key=(name,), what=f"cannot be used with {what}; remove one of them")
            for name, used in apart.items()
            if used
        ]
        if self.switching.mode == "keys":
            problem = f"must not be keys with {what}: each selection may go to any lane; write auto"
            findings.append(Finding(key=("switching", "mode"), what=problem))
        if self.pattern is not None and "matches" in {name.lower() for name in self.tables}:
            findings.append(Finding(key=("tables", "matches"), what="is the view of the pattern's matches; rename it"))
        return findings + said.findings(top_level_columns(self.schema_ddl))

    def _protection_findings(self) -> list[Finding]:
        columns, seen, findings = top_level_columns(self.schema_ddl), dict[str, str](), list[Finding]()
        for option, names in self.payload.protected.items():
            for name in names:
                what = column_problem(columns, name, "")
                if what is None and option != "private" and not _is_sealable(columns[name]):
                    what = f'column "{name}" is {columns[name]}; {option} is for STRING and BINARY: make it private'
                if what is None and name in seen:
                    what = f'"{name}" is also in {seen[name]}; a field has one protection, remove it from one of them'
                seen[name] = option
                findings += [Finding(key=("payload", option), what=what)] if what else []
        return findings

    def _sealed_size_findings(self) -> list[Finding]:
        sealed = len(self.payload.tokenize) + len(self.payload.encrypt)
        most_bytes = self.runs.max_bytes * 4 // 3 + self.runs.max_events * sealed * _SEAL_BYTES
        if not sealed or most_bytes <= MAX_PAYLOAD_BYTES:
            return []
        what = (
            f"a run of {self.runs.max_events} events and {self.runs.max_bytes} bytes may take {most_bytes} bytes as "
            f"tokens or encrypted, but a link carries {MAX_PAYLOAD_BYTES} at a time: lower max_bytes or max_events"
        )
        return [Finding(key=("runs",), what=what)]

    def _threshold_findings(self) -> list[Finding]:
        limits, findings = self.thresholds, []
        if limits.start_vm_above_s <= limits.send_above_s:
            what = (
                f"start_vm_above ({limits.start_vm_above_s:g}s) must be above send_above ({limits.send_above_s:g}s): "
                "a VM is launched at the higher latency; raise the one or lower the other"
            )
            findings.append(Finding(key=("switching", "start_vm_above"), what=what))
        if limits.keep_vm_above_s > limits.send_above_s:
            what = (
                f"keep_vm_above ({limits.keep_vm_above_s:g}s) must not be above send_above "
                f"({limits.send_above_s:g}s): below this latency a VM is terminated; lower it"
            )
            findings.append(Finding(key=("switching", "keep_vm_above"), what=what))
        return findings


def _is_sealable(kind: str) -> bool:
    # A collation compares texts in its own way, which tokens do not follow.
    return kind.split()[0] in ("STRING", "BINARY") and "COLLATE" not in kind.split()
