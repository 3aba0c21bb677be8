"""The part of DigitalOcean's API that libcloud calls, as its documentation describes it; its droplets run nothing."""

from __future__ import annotations

import http.server
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.clouds.local_server import Answering, LocalServer

TOKEN = "dop_v1_test"
PER_PAGE = 2
WHEN = "2026-03-01T12:00:00Z"


class Droplets:
    """Keeps droplets; each gets its address at the second request for it.

    ``refusals`` are the answers to the next orders: (status, message, headers). After ``lose`` the next order is
    carried out, but its answer is lost.
    """

    def __init__(self) -> None:
        self.there: dict[int, dict[str, Any]] = {}
        self.orders: list[dict[str, Any]] = []
        self.refusals: list[tuple[int, str, dict[str, str]]] = []
        self.lose = False
        self._ids = iter(range(3164444, 4000000))
        lab = self

        class Handler(Answering, http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                page = int(parse_qs(url.query).get("page", ["1"])[0])
                found = list(lab.there.values()) if url.path == "/v2/droplets" else []
                pages = -(-len(found) // PER_PAGE)
                last = f"https://api.digitalocean.com/v2/droplets?page={pages}"
                links = {"pages": {"last": last}} if page < pages else {}
                shown = found[PER_PAGE * (page - 1) : PER_PAGE * page]
                self.answer(200, {"droplets": shown, "links": links, "meta": {"total": len(found)}})
                for droplet in shown:
                    droplet["status"] = "active"
                    net = {"ip_address": "127.0.0.1", "netmask": "255.0.0.0", "gateway": "127.0.0.1", "type": "public"}
                    droplet["networks"] = {"v4": [net], "v6": []}

            def do_POST(self) -> None:
                order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                lab.orders.append(order)
                if lab.refusals:
                    status, message, headers = lab.refusals.pop(0)
                    return self.answer(status, {"id": "unprocessable_entity", "message": message}, headers)
                number = next(lab._ids)
                droplet = {
                    "id": number,
                    "name": order["name"],
                    "status": "new",
                    "created_at": WHEN,
                    "networks": {"v4": [], "v6": []},
                    "tags": order["tags"],
                    "size_slug": order["size"],
                    "region": {"slug": order["region"], "name": "Somewhere"},
                }
                lab.there[number] = droplet
                if lab.lose:
                    lab.lose = False
                    self.close_connection = True
                    return None
                return self.answer(202, {"droplet": droplet, "links": {}})

            def do_DELETE(self) -> None:
                gone = lab.there.pop(int(urlsplit(self.path).path.rpartition("/")[2]), None)
                self.answer(204 if gone else 404, None if gone else {"id": "not_found", "message": "not found"})

            def answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
                if self.headers["Authorization"] != f"Bearer {TOKEN}":
                    status, body = 401, {"id": "unauthorized", "message": "Unable to authenticate you"}
                super().answer(status, body, headers)

        self._server = LocalServer(Handler)
        self.endpoint = self._server.url

    def stop(self) -> None:
        self._server.stop()
