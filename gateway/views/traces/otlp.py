"""Sends spans to a collector by OTLP over HTTP. It alone imports OpenTelemetry, and only when traces are wanted."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from gateway.core.traces.spans import RunSpan

_PATH: Final = "/v1/traces"
_LIBRARY_LOG: Final = logging.getLogger("opentelemetry")


@dataclass(frozen=True, slots=True)
class RunTrace:
    """The spans of one run, or of one part of it.

    Attributes:
        trace_id: 128 bits.
        span_ids: 64 bits each, one for each span.
        spans: in the order of their indices.
        ahead_s: by how much seconds since 1970 are ahead of the spans' clock.
    """

    trace_id: int
    span_ids: tuple[int, ...]
    spans: tuple[RunSpan, ...]
    ahead_s: float


class Collector:
    """A collector that takes spans by OTLP over HTTP.

    Args:
        endpoint: its base address, as in http://127.0.0.1:4318.
        within_s: how long a request may take, with its retries.
    """

    def __init__(self, endpoint: str, within_s: float) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource

        # The caller counts and logs what could not be sent; the library would log each try.
        _LIBRARY_LOG.setLevel(logging.CRITICAL)
        self._exporter = OTLPSpanExporter(endpoint.rstrip("/") + _PATH, timeout=within_s)
        self._resource = Resource({"service.name": "spillway", "service.version": version("spillway")})

    def send(self, traces: Iterable[RunTrace]) -> bool:
        """Send traces, and return whether the collector has taken them. Blocks."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.trace.export import SpanExportResult
        from opentelemetry.trace import SpanContext, TraceFlags
        from opentelemetry.trace.status import Status, StatusCode

        def made(trace: RunTrace, index: int) -> ReadableSpan:
            span = trace.spans[index]
            contexts = [
                None if at is None else SpanContext(trace.trace_id, trace.span_ids[at], False, TraceFlags(1))
                for at in (index, span.parent)
            ]
            return ReadableSpan(
                span.name,
                context=contexts[0],
                parent=contexts[1],
                resource=self._resource,
                attributes=dict(span.attributes),
                status=Status(StatusCode.ERROR, span.failed) if span.failed else Status(),
                start_time=_ns(span.begin_s + trace.ahead_s),
                end_time=_ns(span.end_s + trace.ahead_s),
            )

        spans = [made(trace, index) for trace in traces for index in range(len(trace.spans))]
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Try no more: a ``send`` that waits to try again returns soon."""
        self._exporter.shutdown()


def _ns(wall_s: float) -> int:
    return round(wall_s * 1e9)
