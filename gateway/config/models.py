"""The config's shape: one model per concern, exactly the YAML keys; Python names carry the unit.

Every default is stated here and pinned by a test. Nothing here talks to Spark: what only Spark can judge (the schema,
the SQL) is judged by ``spillway check`` and when a query is opened.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from gateway.config.ddl import top_level_columns
from gateway.config.fields import (
    Address,
    AnyPath,
    CpuSet,
    Duration,
    Finding,
    FunctionName,
    InputPath,
    LinkRate,
    LongerThanZero,
    Master,
    QueryName,
    Rate,
    Section,
    Share,
    Size,
    Usd,
    folder_of,
    not_yet,
    refuse,
)
from gateway.config.units import share_fraction

Codec = Literal["none", "gzip", "zstd", "zstd-dict"]


# ------------------------------------------------------------------------------------------------------------ gateway


class Api(Section):
    """Where the daemon answers ``spillway status`` and monitoring."""

    listen: Address = "127.0.0.1:8088"

    @property
    def host(self) -> str:
        """Return the host part."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Return the port part; 0 lets the system choose."""
        return int(self.listen.rpartition(":")[2])


class Gateway(Section):
    """The daemon itself.

    Attributes:
        state_dir: run logs, keys and where hosts are found again; one gateway at a time.
        slot_s: time step of the switching functions.
        orphan_after_s: an engine host without a gateway ends itself after this long.
    """

    state_dir: AnyPath
    slot_s: LongerThanZero = Field(default=1.0, alias="slot")
    api: Api = Api()
    orphan_after_s: LongerThanZero = Field(default=60.0, alias="orphan_after")


# ------------------------------------------------------------------------------------------------------------ private


class Spark(Section):
    """How Spark is started at home."""

    master: Master = "local[1]"


class Private(Section):
    """The private side; ``cpus`` pins its engine host to these CPUs."""

    spark: Spark = Spark()
    cpus: CpuSet | None = None


# -------------------------------------------------------------------------------------------------------------- cloud


class Billing(Section):
    """What the provider asks: whole periods, at least ``minimum``, and traffic sent to a VM."""

    period_s: LongerThanZero = Field(alias="period")
    minimum_s: Duration = Field(alias="minimum")
    usd_per_hour: Usd
    usd_per_gb_sent: Usd


class Budget(Section):
    """What may be spent at most; what does not fit is not started and not renewed."""

    usd_per_day: Usd


class EmulateLink(Section):
    """Shapes the links of process VMs in user space: delay each way, and rate."""

    delay_s: Duration = Field(alias="delay")
    rate_bits_per_s: LinkRate = Field(alias="rate")


class Cloud(Section):
    """Where machines are rented.

    Attributes:
        max_vms: at most this many at a time.
        boot_s: expected time from the order to ready.
        warm: process provider only: hosts are started beforehand and ``boot`` is emulated.
        emulate_link: process provider only: behave as if the VMs were this far away.
    """

    provider: Annotated[Literal["process"], not_yet("provider", ("process",))]
    max_vms: int = Field(ge=0, le=1000)
    boot_s: Duration = Field(alias="boot")
    warm: bool = False
    billing: Billing
    budget: Budget
    emulate_link: EmulateLink | None = None


# ------------------------------------------------------------------------------------------------------------- source


class Step(Section):
    """One step of a replay's profile."""

    for_s: LongerThanZero = Field(alias="for")
    rate_per_s: Rate = Field(alias="rate")


class Replay(Section):
    """When the rows of a file are due.

    Attributes:
        rate_per_s: one rate for all of it; or
        profile: one rate after the other; the last one holds to the end. Without either: as fast as possible.
        loops: how often the file is played.
        id_field: a STRING column that is made distinct in each loop.
    """

    rate_per_s: Rate | None = Field(default=None, alias="rate")
    profile: Annotated[tuple[Step, ...], Field(min_length=1, max_length=10_000)] | None = None
    loops: int = Field(default=1, ge=1)
    id_field: str | None = Field(default=None, alias="id")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.rate_per_s is not None and self.profile is not None:
            refuse([Finding(key=("rate",), what="rate and profile exclude each other; keep one of them")])
        return self


class FileSource(Section):
    """Rows from a file or a maildir; without ``replay`` as fast as they can be taken."""

    type: Literal["file"]
    path: InputPath
    replay: Replay | None = None


class QuerySource(Section):
    """The results of another query, in strict order."""

    type: Literal["query"]
    name: QueryName


Source = Annotated[FileSource | QuerySource, Field(discriminator="type")]


class FileSink(Section):
    """Results in parts, in a folder of its own."""

    type: Annotated[Literal["file"], not_yet("sink", ("file",))]
    path: AnyPath
    format: Literal["jsonl", "parquet"] = "jsonl"


# -------------------------------------------------------------------------------------------------------------- query


class Qos(Section):
    """The latency that is promised, and of what."""

    latency_s: LongerThanZero = Field(alias="latency")
    statistic: Literal["mean", "p95"] = "mean"


def _auto_or_share(value: object) -> object:
    return value if value == "auto" else share_fraction(value)


class Switching(Section):
    """What the user says about switching; ``Query.thresholds`` has the defaults filled in (ESM, eq. 1 and 2)."""

    mode: Annotated[
        Literal["auto", "data", "query", "off"],
        not_yet("mode", ("auto", "data", "query", "off")),
    ] = "auto"
    share: Annotated[
        float | Literal["auto"], BeforeValidator(_auto_or_share, json_schema_input_type=Share | Literal["auto"])
    ] = "auto"
    start_vm_above_s: LongerThanZero | None = Field(default=None, alias="start_vm_above")
    send_above_s: LongerThanZero | None = Field(default=None, alias="send_above")
    keep_vm_above_s: Duration | None = Field(default=None, alias="keep_vm_above")
    keep_vm_bytes: Size = 1_000_000
    tolerance_s: Duration = Field(default=1.0, alias="tolerance")


class Thresholds(Section):
    """The switching thresholds with their defaults resolved.

    Attributes:
        start_vm_above_s: L_s; default 1.2 times the promised latency.
        send_above_s: L_d; default the promised latency.
        keep_vm_above_s: L_p; default half the promised latency.
        keep_vm_bytes: D_s.
        tolerance_s: tau.
    """

    start_vm_above_s: float
    send_above_s: float
    keep_vm_above_s: float
    keep_vm_bytes: int
    tolerance_s: float


def _word_or_codecs(value: object) -> object:
    """Judge both forms here, so that an error names the field and not the branch of a union."""
    if isinstance(value, dict):
        known = get_args(Codec)
        bad = [str(field) for field, codec in value.items() if codec not in known]
        refuse([Finding(key=(field,), what=f"is no codec; give one of {', '.join(known)}") for field in bad])
    elif value not in ("none", "auto"):
        raise ValueError(f'"{value}" is not right; write none, auto, or a codec for each field as in {{body: zstd}}')
    return value


class Payload(Section):
    """How an event is made small before it crosses the WAN."""

    trim: bool = True
    filter: bool = True
    compress: Annotated[Literal["none", "auto"] | dict[str, Codec], BeforeValidator(_word_or_codecs)] = "auto"


class Order(Section):
    """Results leave in the order of ``by``; a gap is waited for at most ``flush``."""

    by: str = "arrival"
    flush_s: Duration = Field(default=30.0, alias="flush")


def _off_is_none(value: object) -> object:
    if value is None:
        raise ValueError("nothing is written here; write {by: arrival} or off")
    return None if value == "off" else value


class Policy(Section):
    """Who decides."""

    type: Annotated[
        Literal["reactive"],
        not_yet("policy", ("reactive",)),
    ] = "reactive"


class Runs(Section):
    """When a run is closed: whichever limit is met first."""

    max_events: int = Field(default=2000, ge=1, le=1_000_000)
    max_bytes: Annotated[Size, Field(ge=1024, le=64 * 2**20)] = 2**20
    linger_s: Duration = Field(default=0.1, alias="linger")


class Query(Section):
    """One query: where its events come from, what is computed, where results go, and what is promised."""

    source: Source
    schema_ddl: str = Field(alias="schema", min_length=1)
    sql: str | None = None
    function: FunctionName | None = None
    sink: FileSink
    qos: Qos
    switching: Switching = Switching()
    payload: Payload = Payload()
    order: Annotated[Order | None, BeforeValidator(_off_is_none, json_schema_input_type=Order | Literal["off"])] = (
        Order()
    )
    policy: Policy = Policy()
    runs: Runs = Runs()

    @field_validator("schema_ddl")
    @classmethod
    def _has_columns(cls, ddl: str) -> str:
        top_level_columns(ddl)
        return ddl

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        refuse([*self._text_findings(), *self._column_findings(), *self._threshold_findings()])
        return self

    @property
    def thresholds(self) -> Thresholds:
        """Return the switching thresholds with their defaults."""
        said, target_s = self.switching, self.qos.latency_s
        return Thresholds(
            start_vm_above_s=1.2 * target_s if said.start_vm_above_s is None else said.start_vm_above_s,
            send_above_s=target_s if said.send_above_s is None else said.send_above_s,
            keep_vm_above_s=0.5 * target_s if said.keep_vm_above_s is None else said.keep_vm_above_s,
            keep_vm_bytes=said.keep_vm_bytes,
            tolerance_s=said.tolerance_s,
        )

    def _text_findings(self) -> list[Finding]:
        if (self.sql is None) == (self.function is None):
            return [Finding(key=("sql",), what="give exactly one of sql and function")]
        if self.sql is not None and not self.sql.strip():
            return [Finding(key=("sql",), what="is empty; write a SELECT over the view events")]
        return []

    def _column_findings(self) -> list[Finding]:
        columns = top_level_columns(self.schema_ddl)
        wanted: list[tuple[tuple[str, ...], str, str]] = []
        if isinstance(self.payload.compress, dict):
            wanted += [(("payload", "compress", name), name, "") for name in self.payload.compress]
        if self.order is not None and self.order.by != "arrival":
            wanted.append((("order", "by"), self.order.by, "TIMESTAMP"))
        if isinstance(self.source, FileSource) and self.source.replay and self.source.replay.id_field:
            wanted.append((("source", "replay", "id"), self.source.replay.id_field, "STRING"))
        return [
            Finding(key=key, what=what)
            for key, name, kind in wanted
            if (what := _column_problem(columns, name, kind)) is not None
        ]

    def _threshold_findings(self) -> list[Finding]:
        limits, findings = self.thresholds, []
        if limits.start_vm_above_s <= limits.send_above_s:
            what = (
                f"start_vm_above ({limits.start_vm_above_s:g}s) must be above send_above ({limits.send_above_s:g}s): "
                "a VM is started at the higher latency; raise the one or lower the other"
            )
            findings.append(Finding(key=("switching", "start_vm_above"), what=what))
        if limits.keep_vm_above_s > limits.send_above_s:
            what = (
                f"keep_vm_above ({limits.keep_vm_above_s:g}s) must not be above send_above "
                f"({limits.send_above_s:g}s): it is the latency at which a VM is given back; lower it"
            )
            findings.append(Finding(key=("switching", "keep_vm_above"), what=what))
        return findings


def _column_problem(columns: dict[str, str], name: str, kind: str) -> str | None:
    if name not in columns:
        return f'"{name}" is no column of schema; its columns are {", ".join(columns)}'
    if not columns[name].startswith(kind):
        return f'column "{name}" is {columns[name]}, but must be {kind}'
    return None


# ------------------------------------------------------------------------------------------------------------- config


class Config(Section):
    """The whole file."""

    gateway: Gateway
    private: Private = Private()
    cloud: Cloud
    queries: dict[QueryName, Query] = Field(min_length=1, max_length=256)
    _folder: Path = PrivateAttr(default=Path())

    @property
    def folder(self) -> Path:
        """Return the config file's folder: where relative paths start and user functions are found."""
        return self._folder

    @property
    def upstream_first(self) -> list[str]:
        """Return the queries' names, each after the query whose results it reads."""
        return list(TopologicalSorter(self._upstreams()).static_order())

    @model_validator(mode="after")
    def _queries_fit_together(self, info: ValidationInfo) -> Self:
        self._folder = folder_of(info)
        refuse([*self._sink_findings(), *self._upstream_findings(), *self._cycle_findings()])
        return self

    def _upstreams(self) -> dict[str, list[str]]:
        return {
            name: [query.source.name] if isinstance(query.source, QuerySource) else []
            for name, query in self.queries.items()
        }

    def _sink_findings(self) -> list[Finding]:
        findings, owners = [], dict[Path, str]()
        for name, query in self.queries.items():
            owner = owners.setdefault(query.sink.path, name)
            if owner != name:
                what = f'query "{owner}" writes to this folder too; give each query a folder of its own'
                findings.append(Finding(key=("queries", name, "sink", "path"), what=what))
        return findings

    def _upstream_findings(self) -> list[Finding]:
        return [
            Finding(key=("queries", name, "source", "name"), what=what)
            for name, upstreams in self._upstreams().items()
            for upstream in upstreams
            if (what := self._upstream_problem(upstream)) is not None
        ]

    def _upstream_problem(self, upstream: str) -> str | None:
        query = self.queries.get(upstream)
        if query is None:
            return f'there is no query "{upstream}"; the queries are {", ".join(self.queries)}'
        if query.sink.format != "jsonl":
            return f'query "{upstream}" writes {query.sink.format}; its results can only be read as jsonl'
        if query.order is None:
            return f'query "{upstream}" has order: off; its results can only be read in order'
        return None

    def _cycle_findings(self) -> list[Finding]:
        try:
            tuple(TopologicalSorter(self._upstreams()).static_order())
        except CycleError as error:
            cycle = [str(name) for name in error.args[1]]
            what = f"queries read each other in a circle ({' -> '.join(reversed(cycle))}); one must read a file"
            return [Finding(key=("queries", cycle[0], "source", "name"), what=what)]
        return []
