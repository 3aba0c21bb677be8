"""The user data of a rented VM: a script that turns a plain Debian or Ubuntu into an engine host.

The same commands make an image in which everything is installed already (``bake_script``).

It is a script, not ``#cloud-config``, because every provider's images run scripts: through cloud-init, or through
Google's own agent. The VM costs money from its first second, so every fault ends it: a step that fails or hangs, and
the engine host's exit. Whether a shutdown ends the bill depends on the provider (``Profile.shutdown_stops_bill``).
Where it does not, the server can get credentials to delete itself (``DeleteSelf``).
"""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from infra.clouds import delete_server
from infra.link.keys.trust import UserData

HOME: Final = "/opt/spillway"
CODE: Final = f"{HOME}/bundle/code"
_USER_DATA: Final = "/etc/spillway/user-data.json"
_UNIT: Final = "/etc/systemd/system/spillway-worker.service"
_DELETE_FILE: Final = "/etc/spillway/delete.json"
_DELETE: Final = f"{HOME}/delete_server.py"
_DELETE_UNIT: Final = "/etc/systemd/system/spillway-delete.service"
_END: Final = "SPILLWAY_END"


@dataclass(frozen=True)
class BundleAt:
    """Where a VM downloads what it installs.

    Attributes:
        url: valid for a limited time, for everyone who has it.
        sha256: of the content, in hex.
    """

    url: str
    sha256: str


@dataclass(frozen=True)
class DeleteSelf:
    """The credentials with which a server deletes itself when it shuts down.

    Attributes:
        provider: the cloud provider.
        api_url: openstack: the identity service, without its version; otherwise the API.
        region: openstack: where the server is.
        id: openstack: an application credential that may delete servers and nothing else.
        secret: openstack: its secret; digitalocean: a token with the same limits; gce: empty, as the VM has an account.
        metadata_url: the service that returns the server's own id, and with gce a token of its account.
    """

    provider: Literal["openstack", "gce", "digitalocean"]
    api_url: str
    region: str = ""
    id: str = ""
    secret: str = ""
    metadata_url: str = "http://169.254.169.254"


def boot_script(
    worker_data: UserData, bundle: BundleAt | None, *, install_within_s: float, delete_self: DeleteSelf | None = None
) -> str:
    """Return the script that a new VM runs once, as root.

    Args:
        worker_data: the user data of its engine host, as JSON; it holds a secret.
        bundle: what to install; None when the image contains it already (``bake_script``).
        install_within_s: the VM shuts down if its engine host was not started within this time.
        delete_self: None where a shutdown stops the bill, or where only the gateway can delete the VM.
    """
    minutes = max(1, round(install_within_s / 60))
    parts = [
        _HEAD.format(minutes=minutes),
        "" if delete_self is None else _deleting(delete_self),
        _file(_USER_DATA, worker_data.to_json(), mode="600"),
        "" if bundle is None else _INSTALL.format(url=shlex.quote(bundle.url), sha256=shlex.quote(bundle.sha256)),
        _file(_UNIT, UNIT, mode="644"),
        _START,
    ]
    return "\n".join(part for part in parts if part)


def bake_script(sha256: str) -> str:
    """Return the script that makes an image of a plain VM: root runs it once, beside ``bundle.tar.gz``.

    Args:
        sha256: of that bundle, in hex.
    """
    return _BAKE_HEAD + _SYSTEM + _UNPACK.format(sha256=shlex.quote(sha256)) + _BAKE_END


def _deleting(credentials: DeleteSelf) -> str:
    """Return commands that make every later shutdown delete the server, also after a failed boot."""
    program = Path(delete_server.__file__).read_text(encoding="utf-8")
    return "\n".join(
        (
            _file(_DELETE_FILE, json.dumps(asdict(credentials)), mode="600"),
            _file(_DELETE, program, mode="644"),
            _file(_DELETE_UNIT, DELETE_UNIT, mode="644"),
            "systemctl daemon-reload\nsystemctl enable --now spillway-delete.service\n",
        )
    )


def _file(path: str, content: str, *, mode: str) -> str:
    if _END in content:
        raise ValueError(f"{path}: its content contains the end-of-file marker of the script")
    body = content if content.endswith("\n") else f"{content}\n"
    return f"install -D -m {mode} /dev/stdin {path} <<'{_END}'\n{body}{_END}\n"


_HEAD: Final = """\
#!/bin/bash
# Makes this machine an engine host of a Spillway gateway.
set -euo pipefail
umask 022

give_up() {{
  echo "spillway: the boot failed in line $1; this machine ends"
  shutdown -h now
}}
trap 'give_up "$LINENO"' ERR
# Whatever hangs: the machine does not stay.
shutdown -h +{minutes} "spillway: the engine host was not started in time"
"""

_SYSTEM: Final = """\
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -yq --no-install-recommends ca-certificates curl python3-venv
# Home's version if the system has it; an engine host of another version is not used, and the gateway says why.
apt-get install -yq --no-install-recommends openjdk-17-jre-headless \\
  || apt-get install -yq --no-install-recommends default-jre-headless
"""

_FETCH: Final = f"""
mkdir -p {HOME}/bundle
curl -fsS --retry 5 --retry-all-errors --max-time 600 -o {HOME}/bundle.tar.gz {{url}}
"""

_UNPACK: Final = f"""\
echo {{sha256}} "" {HOME}/bundle.tar.gz | sha256sum --check --quiet -
tar -xzf {HOME}/bundle.tar.gz -C {HOME}/bundle --no-same-owner
python3 -m venv {HOME}/venv
{HOME}/venv/bin/python -m pip install -q --no-cache-dir --disable-pip-version-check \\
  -c {HOME}/bundle/constraints.txt {HOME}/bundle/*.whl
"""

_INSTALL: Final = _SYSTEM + _FETCH + _UNPACK

_BAKE_HEAD: Final = f"""\
#!/bin/bash
# Prepares this machine for an image of Spillway's engine hosts; bundle.tar.gz must be beside this script.
set -euo pipefail
umask 022
mkdir -p {HOME}/bundle
install -m 644 "$(dirname "$0")/bundle.tar.gz" {HOME}/bundle.tar.gz
"""

_BAKE_END: Final = f"""\
rm {HOME}/bundle.tar.gz
apt-get clean
# Each machine of the image is a new one: it gets an identity of its own and runs its own user data.
if command -v cloud-init > /dev/null; then
  cloud-init clean --logs --machine-id
fi
echo "spillway: take the image now"
"""

UNIT: Final = f"""\
[Unit]
Description=Spillway engine host
Wants=network-online.target
After=network-online.target
# A machine without a working engine host must not cost: it ends with it, however it ends.
SuccessAction=poweroff
FailureAction=poweroff

[Service]
DynamicUser=yes
StateDirectory=spillway
StateDirectoryMode=0700
LoadCredential=user-data:{_USER_DATA}
ExecStart={HOME}/venv/bin/spillway worker --user-data %d/user-data --workdir %S/spillway/host --master local[*]
Restart=no
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes

[Install]
WantedBy=multi-user.target
"""

DELETE_UNIT: Final = f"""\
[Unit]
Description=Deletes this server when it shuts down, as it would cost on
Wants=network-online.target
# So it is stopped while names and network are still there.
After=network-online.target nss-lookup.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/usr/bin/python3 {_DELETE} {_DELETE_FILE}
TimeoutStopSec=180

[Install]
WantedBy=multi-user.target
"""

_START: Final = """\
systemctl daemon-reload
systemctl enable --now spillway-worker.service
shutdown -c
echo "spillway: the engine host is started"
"""
