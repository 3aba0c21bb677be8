"""A server that shuts down deletes itself if the provider would still bill it; a few fixed answers are the provider."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from infra.clouds import delete_server
from infra.clouds.boot import DELETE_UNIT, DeleteSelf, boot_script
from infra.clouds.providers.profiles import PROFILES
from infra.link.keys.trust import UserData, new_token
from tests.clouds.local_server import Answering, LocalServer

SERVER = "4f1c7c6e-0000-4000-8000-1234567890ab"
CREDENTIAL = {"id": "only-deletes", "secret": "s3cret"}
GOOGLE = "/computeMetadata/v1/"
INSTANCE = {
    "project/project-id": "p-1",
    "instance/name": "vm-1-ab",
    "instance/zone": "projects/414141/zones/europe-west1-b",
    "instance/service-accounts/default/token": '{"access_token": "ya29.t", "expires_in": 3599, "token_type": "Bearer"}',
}


class Provider:
    """Metadata, identity and compute at one address; the first ``failing`` requests to compute fail."""

    def __init__(self) -> None:
        self.servers = {SERVER, "another", "3164444", "vm-1-ab"}
        self.failing = 0
        provider = self

        class Handler(Answering, http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith(GOOGLE):
                    said = INSTANCE.get(self.path.removeprefix(GOOGLE))
                    if self.headers["Metadata-Flavor"] != "Google" or said is None:
                        return self.answer(403, None)
                    return self.say(200, said.encode(), {})
                answers = {"/openstack/latest/meta_data.json": {"uuid": SERVER}, "/metadata/v1/id": 3164444}
                return self.answer(200, answers.get(self.path, {}))

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["auth"]["identity"]
                known = asked == {"methods": ["application_credential"], "application_credential": CREDENTIAL}
                if self.path != "/v3/auth/tokens" or not known:
                    return self.answer(401, {})
                there = [
                    {"interface": kind, "region": region, "url": f"{provider.url}/{kind}/{region}/v2.1/"}
                    for region in ("R1", "R2")
                    for kind in ("admin", "public")
                ]
                catalog = [{"type": "image", "endpoints": there[:1]}, {"type": "compute", "endpoints": there}]
                return self.answer(201, {"token": {"catalog": catalog}}, {"X-Subject-Token": "granted"})

            def do_DELETE(self) -> None:
                if provider.failing:
                    provider.failing -= 1
                    return self.answer(503, {})
                prefix, _, server = self.path.rpartition("/")
                openstack = prefix == "/public/R2/v2.1/servers" and self.headers["X-Auth-Token"] == "granted"
                droplets = prefix == "/v2/droplets" and self.headers["Authorization"] == "Bearer s3cret"
                bearer = self.headers["Authorization"]
                gce = prefix == "/compute/v1/projects/p-1/zones/europe-west1-b/instances" and bearer == "Bearer ya29.t"
                if not openstack and not droplets and not gce:
                    return self.answer(403, {})
                provider.servers.discard(server)
                return self.answer(204, None)

        self._server = LocalServer(Handler)
        self.url = self._server.url

    def stop(self) -> None:
        self._server.stop()


@pytest.fixture
def provider() -> Iterator[Provider]:
    there = Provider()
    yield there
    there.stop()


def told(provider: Provider, folder: Path, /, **changes: str) -> Path:
    what = DeleteSelf("openstack", provider.url, "R2", metadata_url=provider.url, **CREDENTIAL)
    file = folder / "delete.json"
    file.write_text(json.dumps({**asdict(what), **changes}))
    return file


def test_it_deletes_its_own_server_with_nothing_but_python(provider: Provider, tmp_path: Path) -> None:
    program = tmp_path / "delete_server.py"
    program.write_text(Path(delete_server.__file__).read_text())
    # -I and -S: neither our packages nor anybody else's.
    command = [sys.executable, "-I", "-S", str(program), str(told(provider, tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "spillway: this server is being deleted\n")
    assert provider.servers == {"another", "3164444", "vm-1-ab"}


def test_a_droplet_deletes_itself(provider: Provider, tmp_path: Path) -> None:
    assert delete_server.main(str(told(provider, tmp_path, provider="digitalocean")), pause_s=0.0) == 0
    assert provider.servers == {SERVER, "another", "vm-1-ab"}


def test_a_gce_machine_deletes_itself_by_its_own_account(provider: Provider, tmp_path: Path) -> None:
    secretless = asdict(DeleteSelf("gce", provider.url, metadata_url=provider.url))
    assert delete_server.main(str(told(provider, tmp_path, **secretless)), pause_s=0.0) == 0
    assert provider.servers == {SERVER, "another", "3164444"}


def test_a_gce_machine_without_an_account_says_so(
    provider: Provider, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(INSTANCE, "instance/service-accounts/default/token")
    assert delete_server.main(str(told(provider, tmp_path, provider="gce")), pause_s=0.0) == 1
    assert "403" in caplog.text
    assert len(provider.servers) == 4


def test_it_tries_again(provider: Provider, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    provider.failing = 2
    assert delete_server.main(str(told(provider, tmp_path)), pause_s=0.0) == 0
    assert provider.servers == {"another", "3164444", "vm-1-ab"}
    assert caplog.text.count("could not be deleted") == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"secret": "wrong"}, "401"),
        ({"provider": "digitalocean", "secret": "wrong"}, "403"),
        ({"region": "R9"}, "no public compute service in region R9"),
        ({"id": "x"}, "401"),
    ],
)
def test_it_says_why_it_cannot_and_ends(
    provider: Provider, tmp_path: Path, caplog: pytest.LogCaptureFixture, changes: dict[str, str], says: str
) -> None:
    assert delete_server.main(str(told(provider, tmp_path, **changes)), pause_s=0.0) == 1
    said = caplog.text
    assert says in said
    assert said.count("could not be deleted") == delete_server.TRIES
    assert len(provider.servers) == 4


def test_a_server_is_told_before_anything_of_its_boot_can_fail() -> None:
    user_data = UserData(host="vm-1", ca_pem="x" * 1500, token=new_token())
    by = DeleteSelf("openstack", "https://keystone.example:5000", "R1", **CREDENTIAL)
    script = boot_script(user_data, None, install_within_s=900, delete_self=by)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert script.index("enable --now spillway-delete") < script.index("/etc/spillway/user-data.json")
    assert Path(delete_server.__file__).read_text() in script
    assert json.dumps(asdict(by)) in script
    assert len(script.encode()) < PROFILES["openstack"].user_data_bytes_max / 2
    assert "spillway-delete" not in boot_script(user_data, None, install_within_s=900)


def test_the_unit_deletes_when_it_is_stopped_while_there_is_a_network() -> None:
    assert "ExecStop=/usr/bin/python3 /opt/spillway/delete_server.py /etc/spillway/delete.json" in DELETE_UNIT
    assert "RemainAfterExit=yes" in DELETE_UNIT
    assert "After=network-online.target" in DELETE_UNIT
