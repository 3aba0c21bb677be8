"""The structure of the config: one model per concern, with exactly the YAML keys; Python names carry the unit.

Every default is here and pinned by a test. Nothing here calls Spark: ``spillway check``, and the opening of a query,
check what only Spark can check (the schema, the SQL).
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Self

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from gateway.config.billing import BillingConfig, BudgetConfig
from gateway.config.connectors.http import HttpSinkConfig, HttpSourceConfig
from gateway.config.connectors.kafka import KafkaSinkConfig, KafkaSourceConfig
from gateway.config.connectors.mqtt import MqttSinkConfig, MqttSourceConfig
from gateway.config.connectors.s3 import S3SinkConfig, S3SourceConfig, shared_prefix
from gateway.config.connectors.sinks import FileSinkConfig, SinkConfig
from gateway.config.connectors.sources import (
    FileSourceConfig,
    QuerySourceConfig,
    ReplayConfig,
    SourceConfig,
    StepConfig,
)
from gateway.config.connectors.streams import EventTimeConfig, SeveralSources, key_of
from gateway.config.policy import NOTHING_TO_DECIDE, PolicyConfig, SwitchingConfig, ThresholdsConfig, policy_findings
from gateway.config.queries import QueryConfig
from gateway.config.sections.handling import OrderConfig, QosConfig, RunsConfig
from gateway.config.sections.payload import Codec, PayloadConfig
from gateway.config.sites import (
    ApiConfig,
    CloudConfig,
    CloudConfigOrNone,
    EmulateLinkConfig,
    GatewayConfig,
    PrivateConfig,
    SparkConfig,
)
from gateway.config.words.fields import Checked, Finding, QueryName, folder_of, refuse

__all__ = [
    "ApiConfig",
    "BillingConfig",
    "BudgetConfig",
    "CloudConfig",
    "Codec",
    "Config",
    "EmulateLinkConfig",
    "EventTimeConfig",
    "FileSinkConfig",
    "FileSourceConfig",
    "GatewayConfig",
    "HttpSinkConfig",
    "HttpSourceConfig",
    "KafkaSinkConfig",
    "KafkaSourceConfig",
    "MqttSinkConfig",
    "MqttSourceConfig",
    "OrderConfig",
    "PayloadConfig",
    "PolicyConfig",
    "PrivateConfig",
    "QosConfig",
    "QueryConfig",
    "QuerySourceConfig",
    "ReplayConfig",
    "RunsConfig",
    "S3SinkConfig",
    "S3SourceConfig",
    "SeveralSources",
    "SinkConfig",
    "SourceConfig",
    "SparkConfig",
    "StepConfig",
    "SwitchingConfig",
    "ThresholdsConfig",
]


class Config(Checked):
    """The whole file.

    Attributes:
        gateway: the daemon itself.
        private: the private side: Spark at home.
        cloud: where VMs are rented. With ``none``, the default, all events stay at home.
        queries: each query by its name, which is also the name of its folder in the state_dir.
    """

    CHECKS = (
        ("_sink_findings", ("queries",)),
        ("_upstream_findings", ("queries",)),
        ("_cycle_findings", ("queries",)),
        ("_policy_findings", ("queries", "gateway", "cloud")),
        ("_journal_findings", ("queries", "gateway")),
    )

    gateway: GatewayConfig
    private: PrivateConfig = PrivateConfig()
    cloud: CloudConfigOrNone = Field(default_factory=CloudConfig.none, json_schema_extra={"default": "none"})
    queries: dict[QueryName, QueryConfig] = Field(min_length=1, max_length=256)
    _folder: Path = PrivateAttr(default=Path())
    _file: Path | None = PrivateAttr(default=None)

    @property
    def folder(self) -> Path:
        """Return the config file's folder: where relative paths start and user functions are found."""
        return self._folder

    @property
    def file(self) -> Path | None:
        """Return the config file, with links resolved; None for a config that was not loaded from a file."""
        return self._file

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the config's file and the calendars that it names."""
        calendars = {each.calendar for query in self.queries.values() for each in query.announced}
        return tuple(path for path in (self.file, *sorted(filter(None, calendars))) if path is not None)

    @property
    def upstream_first(self) -> list[str]:
        """Return the queries' names, each after the query whose results it reads."""
        return list(TopologicalSorter(self._upstreams()).static_order())

    @model_validator(mode="after")
    def _queries_fit_together(self, info: ValidationInfo) -> Self:
        self._folder = folder_of(info)
        self._file = (info.context or {}).get("file")
        refuse(self.findings())
        return self

    def _upstreams(self) -> dict[str, list[str]]:
        return {
            name: [source.name for source in query.inputs.values() if isinstance(source, QuerySourceConfig)]
            for name, query in self.queries.items()
        }

    def _sink_findings(self) -> list[Finding]:
        findings, owners = [], dict[Path, str]()
        for name, query in self.queries.items():
            if not isinstance(query.sink, FileSinkConfig):
                continue
            owner = owners.setdefault(query.sink.path, name)
            if owner != name:
                what = f'query "{owner}" writes to this folder too; give each query a folder of its own'
                findings.append(Finding(key=("queries", name, "sink", "path"), what=what))
        return findings + self._bucket_findings()

    def _policy_findings(self) -> list[Finding]:
        return [
            Finding(key=("queries", name, "policy", *finding.key), what=finding.what)
            for name, query in self.queries.items()
            if query.mistaken.isdisjoint(("policy", "switching"))
            for finding in policy_findings(
                query.policy,
                mode=query.switching.mode,
                slot_s=self.gateway.slot_s,
                boot_s=self.cloud.boot_s,
                first_block_s=self.cloud.terms.first_block_s,
                max_vms=self.cloud.max_vms,
            )
        ] + [
            Finding(key=("queries", name, "announced"), what=NOTHING_TO_DECIDE)
            for name, query in self.queries.items()
            if query.mistaken.isdisjoint(("announced", "switching"))
            if query.announced and query.switching.mode == "off"
        ]

    def _journal_findings(self) -> list[Finding]:
        return [
            Finding(key=("queries", name, *key_of(stream), "journal", "replicate"), what=what)
            for name, query in self.queries.items()
            if query.mistaken.isdisjoint(("one_source", "sources", "sink"))
            for stream, source in query.inputs.items()
            if isinstance(source, HttpSourceConfig | MqttSourceConfig) and source.journal.replicate
            if (what := self._why_not_replicate(query)) is not None
        ]

    def _why_not_replicate(self, query: QueryConfig) -> str | None:
        if self.gateway.fleet is None:
            return "replicates to the object store of a fleet; add gateway.fleet and gateway.object_store, or remove it"
        if not isinstance(query.sink, KafkaSinkConfig | S3SinkConfig):
            return (
                f"is of no use with a {query.sink.type} sink, which does not store where another gateway continues; "
                "write to kafka or s3, or remove it"
            )
        return None

    def _bucket_findings(self) -> list[Finding]:
        sinks = [(name, query.sink) for name, query in self.queries.items() if isinstance(query.sink, S3SinkConfig)]
        read = [
            Finding(
                key=("queries", name, *key_of(stream), "prefix"),
                what=f'query "{writer}" writes there, also parts that do not count; read a prefix that no query writes',
            )
            for name, query in self.queries.items()
            for stream, source in query.inputs.items()
            for writer, sink in sinks
            if isinstance(source, S3SourceConfig) and shared_prefix(source, sink)
        ]
        return read + [
            Finding(
                key=("queries", name, "sink", "prefix"),
                what=f'query "{other}" writes below this prefix too; give each query a prefix of its own',
            )
            for at, (name, sink) in enumerate(sinks)
            for other, earlier in sinks[:at]
            if shared_prefix(sink, earlier)
        ]

    def _upstream_findings(self) -> list[Finding]:
        return [
            Finding(key=("queries", name, *key_of(stream), "name"), what=what)
            for name, query in self.queries.items()
            for stream, source in query.inputs.items()
            if isinstance(source, QuerySourceConfig)
            if (what := self._upstream_problem(source.name)) is not None
        ]

    def _upstream_problem(self, upstream: str) -> str | None:
        query = self.queries.get(upstream)
        if query is None:
            return f'there is no query "{upstream}"; the queries are {", ".join(self.queries)}'
        if not query.mistaken.isdisjoint(("sink", "order", "output")):
            return None
        if not isinstance(query.sink, FileSinkConfig):
            return f'query "{upstream}" has a sink of type {query.sink.type}; only results in a file sink can be read'
        if query.sink.format != "jsonl":
            return f'query "{upstream}" writes {query.sink.format}; its results can only be read as jsonl'
        if query.output.mode != "append":
            what = f"its rows replace earlier ones (output.mode is {query.output.mode})"
            return f'query "{upstream}" emits no final results: {what}; only results of mode append can be read'
        if query.order is None:
            return f'query "{upstream}" has order: off; its results can only be read in order'
        return None

    def _cycle_findings(self) -> list[Finding]:
        try:
            tuple(TopologicalSorter(self._upstreams()).static_order())
        except CycleError as error:
            cycle = [str(name) for name in error.args[1]]
            what = f"queries read each other in a circle ({' -> '.join(reversed(cycle))}); one must read something else"
            first = self.queries[cycle[0]]
            streams = [s for s, source in first.inputs.items() if getattr(source, "name", None) == cycle[-2]]
            return [Finding(key=("queries", cycle[0], *key_of(streams[0]), "name"), what=what)]
        return []
