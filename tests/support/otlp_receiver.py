"""A collector of OpenTelemetry: a real HTTP server that decodes what comes by the published protobuf messages."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Received:
    """A span as it came; ``failed`` is the text of its error."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    begin_s: float
    end_s: float
    attributes: dict[str, Any]
    failed: str

    @property
    def took_s(self) -> float:
        return self.end_s - self.begin_s


class OtlpReceiver:
    """What came; ``status`` is the answer to all requests from now on; they wait while ``answers`` is not set."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.resources: list[dict[str, Any]] = []
        self.requests = 0
        self.status = 200
        self.answers = threading.Event()
        self.answers.set()
        self.endpoint = ""

    def take(self, body: bytes) -> None:
        """Note a request."""
        self.requests += 1
        self.answers.wait(60)
        if self.status != 200:
            return
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(_values(resource.resource.attributes))
            for scope in resource.scope_spans:
                self.spans += [_received(span) for span in scope.spans]

    @property
    def roots(self) -> list[Received]:
        """The spans that contain all others of their trace."""
        return [span for span in self.spans if not span.parent_id]

    def below(self, parent: Received) -> list[Received]:
        """The spans directly in another one, by time."""
        found = [span for span in self.spans if (span.trace_id, span.parent_id) == (parent.trace_id, parent.span_id)]
        return sorted(found, key=lambda span: (span.begin_s, span.end_s))

    def named(self, parent: Received, name: str) -> Received:
        """The only span of a name in another one, or in one that is in it."""
        near = self.below(parent)
        (found,) = [span for each in (near, *map(self.below, near)) for span in each if span.name == name]
        return found


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in attributes}


def _received(span: Any) -> Received:
    return Received(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.start_time_unix_nano / 1e9,
        span.end_time_unix_nano / 1e9,
        _values(span.attributes),
        span.status.message if span.status.code == 2 else "",
    )


@contextmanager
def receiving() -> Iterator[OtlpReceiver]:
    """A collector that listens while the block lasts."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
            receiver.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(receiver.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.answers.set()
            server.shutdown()
            thread.join()
