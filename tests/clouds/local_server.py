"""A server on loopback that answers like a provider's API; the providers' labs share it."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers in JSON, or with an empty response if the body is None."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.say(status, content, {"Content-Type": "application/json", **(headers or {})})

    def say(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


class LocalServer:
    """Serves in its own threads until it is stopped."""

    def __init__(self, handler: type[Answering]) -> None:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
