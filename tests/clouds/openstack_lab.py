"""The parts of OpenStack's identity, compute and image services that libcloud calls; its servers run nothing."""

from __future__ import annotations

import http.server
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.clouds.local_server import Answering, LocalServer

USER, PASSWORD, PROJECT, REGION, TOKEN = "me", "s3cret", "streams", "R1", "gAAAA-test"
FLAVORS = ("m1.large", "m1.xlarge")
IMAGE = "debian-12"
PER_PAGE = 2
WHEN = "2026-03-01T12:00:00Z"


class Stack:
    """Keeps servers; each runs from the second request for it on, and is listed once more after it was deleted.

    ``refusals`` are the answers to the next orders: (status, message). ``faults`` are for orders that are accepted:
    instead of a running server there is one in state ERROR with the reason. OpenStack reports a lack of hosts in this
    way. After ``lose`` the next order is carried out, but its answer is lost.
    """

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Any]] = {}
        self.orders: list[dict[str, Any]] = []
        self.refusals: list[tuple[int, str]] = []
        self.faults: list[str] = []
        self.stubborn = False
        self.lose = False
        self.unknown: list[str] = []
        lab = self

        class Handler(Answering, http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if self.headers["X-Auth-Token"] != TOKEN:
                    return self.answer(
                        401, {"error": {"message": "The request you have made requires authentication."}}
                    )
                found = lab.found(url.path, parse_qs(url.query))
                if found is None:
                    lab.unknown.append(self.path)
                    return self.answer(
                        404, {"itemNotFound": {"message": "The resource could not be found.", "code": 404}}
                    )
                return self.answer(200, found)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/v3/auth/tokens":
                    return self.enter(body["auth"])
                order = body["server"]
                lab.orders.append(order)
                if lab.refusals:
                    status, message = lab.refusals.pop(0)
                    return self.answer(status, {"refused": {"message": message, "code": status}})
                server = lab.make(order)
                if lab.lose:
                    lab.lose = False
                    self.close_connection = True
                    return None
                return self.answer(202, {"server": {"id": server["id"], "links": server["links"]}})

            def do_DELETE(self) -> None:
                server = lab.there.get(urlsplit(self.path).path.rpartition("/")[2])
                if server is None or server.get("OS-EXT-STS:task_state") == "deleting":
                    return self.answer(404, {"itemNotFound": {"message": "Instance could not be found.", "code": 404}})
                if not lab.stubborn:
                    server["OS-EXT-STS:task_state"] = "deleting"
                return self.answer(204, None)

            def enter(self, auth: dict[str, Any]) -> None:
                user = auth["identity"]["password"]["user"]
                if (user["name"], user["password"]) != (USER, PASSWORD) or auth["scope"]["project"]["name"] != PROJECT:
                    return self.answer(401, {"error": {"message": "Could not authenticate", "code": 401}})
                services = [(kind, lab.endpoint + path) for kind, path in (("compute", "/v2.1"), ("image", ""))]
                services += [(kind, lab.endpoint) for kind in ("network", "volumev3")]
                catalog = [
                    {
                        "type": kind,
                        "name": {"compute": "nova", "image": "glance", "network": "neutron"}.get(kind, kind),
                        "endpoints": [{"interface": "public", "region": REGION, "region_id": REGION, "url": url}],
                    }
                    for kind, url in services
                ]
                token = {"expires_at": "2999-01-01T00:00:00Z", "catalog": catalog, "user": {}, "roles": []}
                return self.answer(201, {"token": token}, {"X-Subject-Token": TOKEN})

        self._server = LocalServer(Handler)
        self.endpoint = self._server.url

    def make(self, order: dict[str, Any]) -> dict[str, Any]:
        number = f"4f1c7c6e-0000-4000-8000-{len(self.orders):012}"
        link = {"rel": "self", "href": f"{self.endpoint}/v2.1/servers/{number}"}
        server = {
            "id": number,
            "name": order["name"],
            "status": "BUILD",
            "addresses": {},
            "metadata": order["metadata"],
            "hostId": "",
            "tenant_id": PROJECT,
            "links": [link],
            "created": WHEN,
            "updated": WHEN,
            "flavor": {"id": order["flavorRef"]},
            "image": {"id": order["imageRef"]},
        }
        if self.faults:
            server |= {"status": "ERROR", "fault": {"code": 500, "created": WHEN, "message": self.faults.pop(0)}}
        self.there[number] = server
        return server

    def found(self, path: str, query: dict[str, list[str]]) -> Any:
        """Return the object at a path, or None."""
        match path.removeprefix("/v2.1").strip("/").split("/"):
            case ["flavors", "detail"]:
                about = {"ram": 8192, "disk": 20, "vcpus": 4, "swap": ""}
                return {"flavors": [{"id": str(at), "name": name, **about} for at, name in enumerate(FLAVORS)]}
            case ["v2", "images"]:
                return {
                    "images": [
                        {"id": "uuid-1", "name": IMAGE, "status": "active", "updated_at": WHEN, "created_at": WHEN}
                    ]
                }
            case ["servers", "detail"]:
                return self._page(query.get("marker", [""])[0])
            case ["servers", number]:
                return {"server": self.there[number]} if number in self.there else None
        return None

    def _page(self, marker: str) -> dict[str, Any]:
        ids = sorted(number for number in self.there if number > marker)
        shown = json.loads(json.dumps([self.there[number] for number in ids[:PER_PAGE]]))
        for number in ids[:PER_PAGE]:
            server = self.there[number]
            if server.get("OS-EXT-STS:task_state") == "deleting":
                del self.there[number]
            elif server["status"] == "BUILD":
                server |= {"status": "ACTIVE", "addresses": {"net": [{"addr": "10.0.0.4", "version": 4}]}}
        page: dict[str, Any] = {"servers": shown}
        if len(ids) > PER_PAGE:
            next_page = f"{self.endpoint}/v2.1/servers/detail?marker={shown[-1]['id']}"
            page["servers_links"] = [{"rel": "next", "href": next_page}]
        return page

    def stop(self) -> None:
        self._server.stop()
