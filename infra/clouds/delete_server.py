"""Deletes the server that it runs on (OpenStack, GCE, DigitalOcean), where a server that is only shut down still costs.

The file is copied onto each server unchanged and runs at every shutdown, so it needs nothing but Python itself. Usage:
python3 delete_server.py FILE, a JSON file with the fields of ``infra.clouds.boot.DeleteSelf``.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

_LOG = logging.getLogger(__name__)
TRIES = 5
PAUSE_S = 5.0
CALL_S = 20.0


def main(settings_file: str, pause_s: float = PAUSE_S) -> int:
    """Send the request up to a few times; return 0 once the provider has accepted it."""
    with open(settings_file, encoding="utf-8") as file:  # noqa: PTH123 -- short, as it is part of user data
        settings = json.load(file)
    for left in reversed(range(TRIES)):
        try:
            DELETES[settings["provider"]](settings)
        except (OSError, ValueError, LookupError) as error:
            _LOG.warning("spillway: this server could not be deleted: %s", error)
            time.sleep(pause_s if left else 0.0)
        else:
            _LOG.warning("spillway: this server is being deleted")
            return 0
    return 1


def _openstack(settings: Mapping[str, str]) -> None:
    server = _answer(_ask("GET", f"{settings['metadata_url']}/openstack/latest/meta_data.json"))["uuid"]
    who = {"id": settings["id"], "secret": settings["secret"]}
    by = {"methods": ["application_credential"], "application_credential": who}
    granted = _ask("POST", f"{settings['api_url']}/v3/auth/tokens", {"auth": {"identity": by}})
    url = f"{_compute_url(_answer(granted), settings['region'])}/servers/{server}"
    _ask("DELETE", url, headers={"X-Auth-Token": granted.headers["X-Subject-Token"]})


def _gce(settings: Mapping[str, str]) -> None:
    def own(path: str) -> str:
        url = f"{settings['metadata_url']}/computeMetadata/v1/{path}"
        return str(_ask("GET", url, headers={"Metadata-Flavor": "Google"}).read(1 << 16).decode())

    project, name = own("project/project-id"), own("instance/name")
    zone = own("instance/zone").rpartition("/")[2]  # it comes with the project's number before it
    token = json.loads(own("instance/service-accounts/default/token"))["access_token"]
    url = f"{settings['api_url']}/compute/v1/projects/{project}/zones/{zone}/instances/{name}"
    _ask("DELETE", url, headers={"Authorization": f"Bearer {token}"})


def _digitalocean(settings: Mapping[str, str]) -> None:
    server = int(_ask("GET", f"{settings['metadata_url']}/metadata/v1/id").read(100))
    url = f"{settings['api_url']}/v2/droplets/{server}"
    _ask("DELETE", url, headers={"Authorization": f"Bearer {settings['secret']}"})


DELETES: dict[str, Callable[[Mapping[str, str]], None]] = {
    "openstack": _openstack,
    "gce": _gce,
    "digitalocean": _digitalocean,
}
"""Each function finds the id and the zone of this server and deletes it; or raises OSError, ValueError, LookupError."""


def _compute_url(granted: Mapping[str, Any], region: str) -> str:
    for service in granted["token"]["catalog"]:
        for endpoint in service["endpoints"] if service["type"] == "compute" else ():
            if endpoint["interface"] == "public" and endpoint["region"] == region:
                return str(endpoint["url"]).rstrip("/")
    raise LookupError(f"no public compute service in region {region}")


def _ask(method: str, url: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
    sent = {"Content-Type": "application/json", **(headers or {})}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, sent, method=method)  # noqa: S310 -- the config's, http or https
    return urllib.request.urlopen(request, timeout=CALL_S)  # noqa: S310 -- likewise


def _answer(response: Any) -> Any:
    return json.loads(response.read(1 << 20))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
