"""The part of Compute Engine's API that libcloud calls, following its documentation; its instances run nothing."""

from __future__ import annotations

import functools
import http.server
import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from libcloud.common.google import GoogleServiceAcctAuthConnection

from infra.clouds.providers.gce import Driver
from tests.clouds.local_server import Answering, LocalServer

PROJECT, EMAIL, TOKEN = "streams-123", "spillway@streams-123.iam.gserviceaccount.com", "ya29.test"
ZONES = ("europe-west1-b", "europe-west1-c")
SIZES = ("n2-standard-2", "e2-standard-2")
IMAGE = "debian-12-bookworm-v20250709"
API = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}"
WHEN = "2026-03-01T04:00:00.000-08:00"


@functools.cache
def key_pem() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form, encoding = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


class Gces:
    """Keeps the instances of one project; each runs from the second request for it on.

    ``refusals`` are the answers to the next orders: (status, reason, message). With status 0 the refusal is the error
    of the order's operation, as Google reports a full zone. After ``lose`` the next order is carried out, but its
    answer is lost. While ``gives_addresses`` is false, no instance gets a public address. Refusals request a pause of
    ``after_s``.
    """

    def __init__(self) -> None:
        self.there: dict[tuple[str, str], dict[str, Any]] = {}
        self.orders: list[dict[str, Any]] = []
        self.refusals: list[tuple[int, str, str]] = []
        self.lose = False
        self.gives_addresses = True
        self.after_s = 0
        self.unknown: list[str] = []
        self._operations: dict[str, dict[str, Any]] = {}
        lab = self

        class Handler(Answering, http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                if self.headers["Authorization"] != f"Bearer {TOKEN}":
                    return self.answer(401, error(401, "authError", "Invalid Credentials"))
                found = lab.found(path.removeprefix("/compute/v1/projects/"))
                if found is None:
                    lab.unknown.append(path)
                    return self.answer(404, error(404, "notFound", f"The resource '{path}' was not found"))
                return self.answer(200, found)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/o/oauth2/token":
                    return self.answer(200, {"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"})
                order, zone = json.loads(body), urlsplit(self.path).path.split("/")[-2]
                lab.orders.append({**order, "zone": zone})
                status, reason, message = lab.refusals.pop(0) if lab.refusals else (200, "", "")
                if status not in (0, 200):
                    again = {"Retry-After": str(lab.after_s)} if lab.after_s else {}
                    return self.answer(status, error(status, reason, message), again)
                if (zone, order["name"]) in lab.there:
                    return self.answer(409, error(409, "alreadyExists", f"{order['name']} already exists"))
                if status == 200:
                    lab.make(zone, order)
                if lab.lose:
                    lab.lose = False
                    self.close_connection = True
                    return None
                return self.answer(200, lab.operation(zone, {"code": reason, "message": message} if reason else None))

            def do_DELETE(self) -> None:
                *_, zone, _, name = urlsplit(self.path).path.split("/")
                if lab.there.pop((zone, name), None) is None:
                    return self.answer(404, error(404, "notFound", f"The resource '{name}' was not found"))
                return self.answer(200, lab.operation(zone, None))

        self._server = LocalServer(Handler)

    def reroute(self, patch: pytest.MonkeyPatch) -> None:
        """Connect libcloud's driver to this server instead of Google, without pauses of seconds between two polls."""
        port = self._server.port

        class Here(Driver.connectionCls):  # type: ignore[misc, valid-type] # the class is an attribute
            host = "127.0.0.1"
            poll_interval = 0.01

            def __init__(self, user: str, key: str, secure: bool, **more: Any) -> None:
                super().__init__(user, key, False, **{**more, "port": port})

        patch.setattr(Driver, "connectionCls", Here)
        patch.setattr(GoogleServiceAcctAuthConnection, "host", "127.0.0.1")

    def make(self, zone: str, order: dict[str, Any]) -> None:
        number = str(5_000_000_000_000_000_000 + len(self.orders))
        self.there[zone, order["name"]] = {
            "id": number,
            "name": order["name"],
            "status": "PROVISIONING",
            "zone": f"{API}/zones/{zone}",
            "machineType": order["machineType"],
            "selfLink": f"{API}/zones/{zone}/instances/{order['name']}",
            "creationTimestamp": WHEN,
            "labels": order["labels"],
            "tags": {"fingerprint": "x", **order.get("tags", {})},
            "disks": [{"boot": True, "type": "PERSISTENT", "source": f"{API}/zones/{zone}/disks/{order['name']}"}],
            "networkInterfaces": [{"networkIP": "10.132.0.2", "accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
        }

    def operation(self, zone: str, error: dict[str, str] | None) -> dict[str, Any]:
        name = f"operation-{len(self._operations)}"
        done = {"name": name, "status": "DONE", "selfLink": f"{API}/zones/{zone}/operations/{name}"}
        self._operations[name] = done if error is None else {**done, "error": {"errors": [error]}}
        return {**done, "status": "RUNNING"}

    def found(self, path: str) -> Any:
        """Return the object at a path below ``projects/``, or None."""
        project, _, rest = path.partition("/")
        if rest == "global/images":
            return {"items": [named("global/images", IMAGE)] if project == "debian-cloud" else []}
        match rest.split("/"):
            case ["zones"]:
                return {"items": [zone_of(name) for name in ZONES]}
            case ["regions"]:
                return {"items": [named("regions", "europe-west1")]}
            case ["global", "networks", "default"]:
                return {**named("global/networks", "default"), "autoCreateSubnetworks": True, "subnetworks": []}
            case ["zones", zone, "machineTypes", size] if size in SIZES:
                about = {"guestCpus": 2, "memoryMb": 8192, "zone": zone, "imageSpaceGb": 0, "maximumPersistentDisks": 9}
                return {**named(f"zones/{zone}/machineTypes", size), **about, "maximumPersistentDisksSizeGb": "1"}
            case ["zones", zone, "diskTypes", kind]:
                return {**named(f"zones/{zone}/diskTypes", kind), "zone": f"{API}/zones/{zone}"}
            case ["zones", _, "operations", name]:
                return self._operations.get(name)
            case ["zones", zone, "instances", name]:
                return self.there.get((zone, name))
            case ["aggregated", ("instances" | "disks") as what]:
                return {"items": {f"zones/{zone}": self._in(zone, what) for zone in ZONES}}
        return None

    def _in(self, zone: str, what: str) -> dict[str, Any]:
        here = [instance for (where, _), instance in self.there.items() if where == zone]
        if what == "instances":
            shown = json.loads(json.dumps(here))
            for instance in here:
                instance["status"] = "RUNNING" if instance["status"] == "PROVISIONING" else instance["status"]
                if self.gives_addresses:
                    instance["networkInterfaces"][0]["accessConfigs"][0]["natIP"] = "127.0.0.1"
            return {"instances": shown}
        at = f"{API}/zones/{zone}"
        more = {"zone": at, "sizeGb": "10", "status": "READY", "type": f"{at}/diskTypes/pd-standard"}
        return {"disks": [{**named(f"zones/{zone}/disks", instance["name"]), **more} for instance in here]}

    def stop(self) -> None:
        self._server.stop()


def named(folder: str, name: str) -> dict[str, Any]:
    about = {"id": "1", "name": name, "description": "", "creationTimestamp": WHEN, "status": "UP"}
    return {**about, "selfLink": f"{API}/{folder}/{name}"}


def zone_of(name: str) -> dict[str, Any]:
    return {**named("zones", name), "region": f"{API}/regions/{re.sub('-.$', '', name)}"}


def error(status: int, reason: str, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}}
