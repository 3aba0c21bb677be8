"""A real server that speaks S3 (moto) in a separate process, and a proxy before it that injects faults."""

from __future__ import annotations

import http.client
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import boto3

from tests.connectors.ports import free_port

DEADLINE_S = 60.0
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
Fault = Literal["", "500", "503", "slow down", "late", "answer lost", "answer lost and killed", "refused", "cut short"]


@dataclass(frozen=True)
class Reply:
    """An answer that the proxy gives itself."""

    status: int
    body: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Request:
    """A request to the proxy; ``count`` numbers requests from 1."""

    method: str
    path: str
    count: int
    body: bytes = b""
    range: str = ""


class S3Server:
    """moto's server on a free loopback port.

    Args:
        folder: for its log.
    """

    def __init__(self, folder: Path) -> None:
        assert importlib.util.find_spec("moto"), "moto is missing: run make setup, or pip install 'moto[server]'"
        self._log = folder / "moto.log"
        self.port = free_port()
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        ends = time.monotonic() + DEADLINE_S
        while not self._accepts():
            assert self._process.poll() is None, f"moto ended: {self._log.read_text()}"
            assert time.monotonic() < ends, f"moto does not listen: {self._log.read_text()}"
            time.sleep(0.05)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def client(self) -> Any:
        """Only boto3, for tests that look from outside."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )

    def make_bucket(self) -> str:
        """Create a bucket with a new name."""
        name = f"bucket-{os.urandom(6).hex()}"
        self.client().create_bucket(Bucket=name)
        return name

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_S)


class FaultProxy:
    """Stands before the server; ``fault`` decides what happens to each request.

    ``late`` answers after ``late_s``. ``answer lost`` forwards the request, calls ``kill`` and then drops the
    connection, so that the client never learns the outcome. ``refused`` drops the connection without forwarding the
    request. ``cut short`` drops it after half of the answer's body.
    """

    def __init__(self, port: int, fault: Callable[[Request], Fault | Reply], late_s: float = 1.0) -> None:
        self.fault = fault
        self.kill: Callable[[], None] = lambda: None
        self.count = 0
        self.faults = 0
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base's name
                pass

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with proxy._lock:
                    proxy.count += 1
                    fault = proxy.fault(
                        Request(self.command, self.path, proxy.count, body, self.headers.get("Range") or "")
                    )
                    proxy.faults += bool(fault)
                if isinstance(fault, Reply):
                    self._answer(fault.status, dict(fault.headers), fault.body.encode())
                    return
                if fault in ("500", "503", "slow down"):
                    code = {"500": "InternalError", "503": "ServiceUnavailable", "slow down": "SlowDown"}[fault]
                    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()
                    self._answer(500 if fault == "500" else 503, {"Content-Type": "application/xml"}, text)
                    return
                if fault == "refused":
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, headers, answer = self._forward(body)
                if fault == "answer lost and killed":
                    proxy.kill()
                if fault.startswith("answer lost"):
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if fault == "late":
                    time.sleep(late_s)
                self._answer(status, headers, answer, cut=fault == "cut short")

            do_GET = do_PUT = do_DELETE = do_HEAD = do_POST = handle_any  # noqa: N815 -- the names that http.server calls

            def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
                try:
                    connection.request(self.command, self.path, body, dict(self.headers))
                    answer = connection.getresponse()
                    return answer.status, dict(answer.getheaders()), answer.read()
                finally:
                    connection.close()

            def _answer(self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
                try:
                    self.send_response_only(status)
                    for name, value in headers.items():
                        if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                            self.send_header(name, value)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body[: len(body) // 2] if cut else body)
                    if cut:
                        self.close_connection = True
                        self.wfile.flush()
                        self.connection.shutdown(socket.SHUT_RDWR)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(DEADLINE_S)


@contextmanager
def faulty(server: S3Server, fault: Callable[[Request], Fault | Reply], late_s: float = 1.0) -> Iterator[FaultProxy]:
    proxy = FaultProxy(server.port, fault, late_s)
    try:
        yield proxy
    finally:
        proxy.stop()
