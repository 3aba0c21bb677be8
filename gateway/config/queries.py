"""The config's section about a query: what is computed, the latency target, and the means allowed to meet it."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from engines.query.sqltext import StatementError, statements
from gateway.config.connectors.kafka import KafkaSourceConfig, circle_findings
from gateway.config.connectors.output import OutputConfig, output_findings
from gateway.config.connectors.sinks import SinkConfig
from gateway.config.connectors.sources import FileSourceConfig, SourceConfig
from gateway.config.connectors.tables import TableConfig, TableName
from gateway.config.policy import PolicyConfig, ReactivePolicyConfig, SwitchingConfig, ThresholdsConfig
from gateway.config.words.ddl import top_level_columns
from gateway.config.words.fields import (
    Checked,
    Duration,
    Finding,
    FunctionName,
    LongerThanZero,
    Section,
    Share,
    Size,
    refuse,
)
from gateway.config.words.units import duration_s
from infra.link.frames import MAX_PAYLOAD_BYTES
from infra.messages import EventTime, KeyPart
from policies.failures.restarts import RestartTerms

Codec = Literal["none", "gzip", "zstd", "zstd-dict"]
# What a token or an encrypted value takes besides the value, as Base64, with the text around it; Base64 takes a third.
_SEAL_BYTES = 64


class QosConfig(Section):
    """The latency target, and the statistic that it applies to."""

    latency_s: LongerThanZero = Field(alias="latency")
    statistic: Literal["mean", "p95"] = "mean"


def _word_or_codecs(value: object) -> object:
    """Check both forms here, so that an error names the field and not the branch of a union."""
    if isinstance(value, dict):
        known = get_args(Codec)
        bad = [str(field) for field, codec in value.items() if codec not in known]
        refuse([Finding(key=(field,), what=f"is not a codec; give one of {', '.join(known)}") for field in bad])
    elif value not in ("none", "auto"):
        raise ValueError(f'"{value}" is not valid; write none, auto, or a codec for each field as in {{body: zstd}}')
    return value


class PayloadConfig(Section):
    """How an event is reduced in size before it crosses the WAN, and which fields never cross it in clear.

    Attributes:
        private: fields that never leave home.
        tokenize: fields of which tokens are sent; equal values have equal tokens.
        encrypt: fields that are sent encrypted.
    """

    trim: bool = True
    filter: bool = True
    compress: Annotated[Literal["none", "auto"] | dict[str, Codec], BeforeValidator(_word_or_codecs)] = "auto"
    private: tuple[str, ...] = ()
    tokenize: tuple[str, ...] = ()
    encrypt: tuple[str, ...] = ()

    @property
    def protected(self) -> dict[str, tuple[str, ...]]:
        """Return the fields that are never sent in clear, by the option that protects them."""
        return {"private": self.private, "tokenize": self.tokenize, "encrypt": self.encrypt}


class OrderConfig(Section):
    """Results are released in the order of ``by``. A missing result is waited for at most ``flush``."""

    by: str = "arrival"
    flush_s: Duration = Field(default=30.0, alias="flush")


def _off_is_none(value: object) -> object:
    if value is None:
        raise ValueError("the value is missing; write {by: arrival} or off")
    return None if value == "off" else value


class RunsConfig(Section):
    """When a run is closed: whichever limit is met first."""

    max_events: int = Field(default=2000, ge=1, le=1_000_000)
    max_bytes: Annotated[Size, Field(ge=1024, le=64 * 2**20)] = 2**20
    linger_s: Duration = Field(default=0.1, alias="linger")


class DeadLettersConfig(Section):
    """When the file of dead letters has reached ``limit``, the query waits until they are replayed or it is raised.

    When more than ``most`` of the last 1,000 rows fail, the query counts as broken, not its data; 100% allows all.
    """

    limit_bytes: Annotated[Size, Field(ge=1024)] = Field(default=1_000_000_000, alias="limit")
    most: Share = 0.2

    @property
    def bad_rows_most(self) -> int:
        """Return how many of 1,000 consecutive rows an engine host may find bad; 0 for all of them."""
        return 0 if self.most == 1 else max(1, int(self.most * 1000))


class EventTimeConfig(Section):
    """The watermark of the view ``events`` (see docs/event-time.md).

    Attributes:
        column: a TIMESTAMP column of ``schema``.
        lateness_s: how much later than newer events an event may come and still count.
        late: whether an event that comes too late is only counted, or also becomes a dead letter.
    """

    column: str = Field(min_length=1)
    lateness_s: Duration = Field(alias="lateness")
    late: Literal["drop", "dead-letters"] = "drop"


def _pauses(value: object) -> object:
    """Read ``5s..5m``, the first pause and the longest; a pause alone stays as long as it is."""
    first, _, most = str(value).partition("..")
    pauses_s = (duration_s(first), duration_s(most or first))
    if not 0 < pauses_s[0] <= pauses_s[1]:
        raise ValueError(
            f'"{value}" is not right; write the first pause and a longest that is not shorter, as in 5s..5m'
        )
    return pauses_s


class OnFailureConfig(Section):
    """What happens to a query that fails: it is opened again after pauses that double, while all others continue.

    Attributes:
        restart_s: the first pause and the longest.
        give_up_after_s: once it has failed for this long, it is not opened again; None: no limit.
    """

    restart_s: Annotated[tuple[float, float], BeforeValidator(_pauses, json_schema_input_type=str)] = Field(
        default=(5.0, 300.0), alias="restart"
    )
    give_up_after_s: LongerThanZero | None = Field(default=None, alias="give_up_after")

    @property
    def terms(self) -> RestartTerms:
        """Return the terms by which it is opened again."""
        return RestartTerms(first_s=self.restart_s[0], most_s=self.restart_s[1], give_up_after_s=self.give_up_after_s)


def _has_columns(ddl: str) -> str:
    top_level_columns(ddl)
    return ddl


def _distinct(tables: dict[str, TableConfig]) -> dict[str, TableConfig]:
    if len({name.lower() for name in tables}) < len(tables):
        raise ValueError("two tables have the same name but for letter case, which does not count in SQL; rename one")
    return tables


class QueryConfig(Checked):
    """One query: the source of its events, what is computed, where results go, and the latency target.

    ``drift`` says what happens to an event whose fields differ from ``schema`` (see docs/schema-drift.md).
    ``tables`` are static tables that it reads besides its events (docs/tables.md).
    ``new_epoch`` lets a changed definition of a stateful query discard the old one's state (docs/changing-a-query.md).
    """

    CHECKS = (
        ("_text_findings", ("sql", "function", "tables")),
        ("_column_findings", ("schema_ddl", "payload", "order", "source")),
        ("_event_time_findings", ("schema_ddl", "event_time")),
        ("_protection_findings", ("schema_ddl", "payload")),
        ("_sealed_size_findings", ("payload", "runs")),
        ("_threshold_findings", ("switching", "qos")),
        ("_division_findings", ("schema_ddl", "switching")),
        ("_circle_findings", ("source", "sink")),
        ("_output_findings", ("output", "sink")),
    )

    source: SourceConfig
    schema_ddl: Annotated[str, AfterValidator(_has_columns)] = Field(alias="schema", min_length=1)
    sql: str | None = None
    function: FunctionName | None = None
    event_time: EventTimeConfig | None = None
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
    runs: RunsConfig = RunsConfig()
    drift: Literal["lenient", "strict"] = "lenient"
    dead_letters: DeadLettersConfig = DeadLettersConfig()
    on_failure: OnFailureConfig = OnFailureConfig()
    new_epoch: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        refuse(self.findings())
        return self

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
    def watermark(self) -> EventTime | None:
        """Return ``event_time`` as engine hosts get it."""
        if self.event_time is None:
            return None
        return EventTime(column=self.event_time.column, lateness_ms=round(self.event_time.lateness_s * 1000))

    @property
    def keeps_late(self) -> bool:
        """Whether events that come too late become dead letters."""
        return self.event_time is not None and self.event_time.late == "dead-letters"

    def _text_findings(self) -> list[Finding]:
        if (self.sql is None) == (self.function is None):
            return [Finding(key=("sql",), what="give exactly one of sql and function")]
        if self.sql is not None and not self.sql.strip():
            return [Finding(key=("sql",), what="is empty; write a SELECT over the view events")]
        try:
            views = {name.lower() for name, _ in statements(self.sql or "SELECT").views}
        except StatementError as error:
            return [Finding(key=("sql",), what=str(error))]
        return [
            Finding(key=("tables", name), what="is also a view that sql creates; give one of them another name")
            for name in self.tables
            if name.lower() in views
        ]

    def _division_findings(self) -> list[Finding]:
        return self.switching.findings(self.schema_ddl, late=self.event_time.late if self.event_time else "drop")

    def _circle_findings(self) -> list[Finding]:
        return circle_findings(self.source, self.sink)

    def _output_findings(self) -> list[Finding]:
        return output_findings(self.output, self.sink)

    def _column_findings(self) -> list[Finding]:
        columns = top_level_columns(self.schema_ddl)
        wanted: list[tuple[tuple[str, ...], str, str]] = []
        if isinstance(self.payload.compress, dict):
            wanted += [(("payload", "compress", name), name, "") for name in self.payload.compress]
        if self.order is not None and self.order.by != "arrival":
            wanted.append((("order", "by"), self.order.by, "TIMESTAMP"))
        if isinstance(self.source, FileSourceConfig) and self.source.replay and self.source.replay.id_field:
            wanted.append((("source", "replay", "id"), self.source.replay.id_field, "STRING"))
        if isinstance(self.source, FileSourceConfig) and self.source.replay and self.source.replay.times:
            wanted.append((("source", "replay", "times"), self.source.replay.times, "TIMESTAMP"))
        of_source = self.source.column_findings(columns) if isinstance(self.source, KafkaSourceConfig) else []
        return of_source + [
            Finding(key=key, what=what)
            for key, name, kind in wanted
            if (what := _column_problem(columns, name, kind)) is not None
        ]

    def _event_time_findings(self) -> list[Finding]:
        if self.event_time is None:
            return []
        columns, name = top_level_columns(self.schema_ddl), self.event_time.column
        what = _column_problem(columns, name, "TIMESTAMP")
        if what is None and columns[name].startswith("TIMESTAMP_NTZ"):
            what = f'column "{name}" is TIMESTAMP_NTZ, but must be TIMESTAMP: a watermark needs a time with a zone'
        return [Finding(key=("event_time", "column"), what=what)] if what else []

    def _protection_findings(self) -> list[Finding]:
        columns, seen, findings = top_level_columns(self.schema_ddl), dict[str, str](), list[Finding]()
        for option, names in self.payload.protected.items():
            for name in names:
                what = _column_problem(columns, name, "")
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


def _column_problem(columns: dict[str, str], name: str, kind: str) -> str | None:
    if name not in columns:
        return f'"{name}" is not a column of schema; its columns are {", ".join(columns)}'
    if not columns[name].startswith(kind):
        return f'column "{name}" is {columns[name]}, but must be {kind}'
    return None
