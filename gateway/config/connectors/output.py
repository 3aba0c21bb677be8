"""The config's section about which results a query emits, and what its sink can do with rows that replace others."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gateway.config.connectors.kafka import KafkaSinkConfig
from gateway.config.connectors.sinks import SinkConfig
from gateway.config.words.fields import Finding, Section
from infra.messages import OutputMode

Mode = Literal["append", "update", "complete"]


class OutputConfig(Section):
    """Which results a micro-batch of a query with state emits (see docs/output-modes.md).

    Attributes:
        mode: ``append``: those that never change again; ``update``: those that it changed; ``complete``: all of them.
        key: of mode ``update``, which needs it: the result columns that name a row; a row replaces the earlier one with
            the same values in them. Empty if there is never more than one row.
    """

    mode: Mode = "append"
    key: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(max_length=100)] | None = Field(
        default=None, examples=[["customer"]]
    )

    @property
    def wanted(self) -> OutputMode:
        """Return it as engine hosts get it."""
        return OutputMode(mode=self.mode, key=self.key or ())


def output_findings(output: OutputConfig, sink: SinkConfig) -> list[Finding]:
    """Return the problems of a query's output, by themselves and with its sink."""
    key, findings = ("output", "key"), []
    if output.mode == "update" and output.key is None:
        what = (
            "is missing; list the result columns that it groups by, as in key: [customer], so that a row replaces the "
            "earlier one with the same values in them"
        )
        findings.append(Finding(key=key, what=what))
    if output.mode != "update" and output.key is not None:
        why = "no result is ever replaced" if output.mode == "append" else "all results are replaced together"
        findings.append(Finding(key=key, what=f"is of no use with mode {output.mode}, in which {why}; remove it"))
    twice = sorted({name for name in output.key or () if (output.key or ()).count(name) > 1})
    if twice:
        findings.append(Finding(key=key, what=f"{', '.join(twice)} is listed twice; list each column once"))
    if what := _why_not_into(output.mode, sink):
        findings.append(Finding(key=("output", "mode"), what=what))
    if output.mode == "update" and isinstance(sink, KafkaSinkConfig) and sink.key is not None:
        what = "is of no use with mode update: the columns of output.key are the key of each record; remove it"
        findings.append(Finding(key=("sink", "key"), what=what))
    return findings


def _why_not_into(mode: Mode, sink: SinkConfig) -> str:
    if mode != "complete":
        return ""
    match sink.type:
        case "kafka":
            why = "a topic: a record replaces only the record with its key, and would stay when its row is gone"
        case "mqtt":
            why = "MQTT: each row is a message of its own, so a reader cannot tell when it has all of them"
        case _:
            return ""
    return f"complete cannot go into {why}; write mode: update with a key, or choose a file, s3 or http sink"
