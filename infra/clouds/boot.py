"""The user data of a rented machine: a script that makes a plain Debian or Ubuntu an engine host.

A script and not ``#cloud-config``, as every provider's images run one: by cloud-init, or by Google's own agent. The
machine costs from its first second, so whatever goes wrong ends it: a step that fails, a step that hangs, the engine
host's own end. What shutting down means for the bill is the provider's business (``Profile.shutdown_stops_bill``).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

from infra.link.trust import UserData

HOME: Final = "/opt/spillway"
CODE: Final = f"{HOME}/bundle/code"
_USER_DATA: Final = "/etc/spillway/user-data.json"
_UNIT: Final = "/etc/systemd/system/spillway-worker.service"
_END: Final = "SPILLWAY_END"


@dataclass(frozen=True)
class BundleAt:
    """Where a machine finds what it installs.

    Attributes:
        url: good for a while, and for whoever has it.
        sha256: of what is there, in hex.
    """

    url: str
    sha256: str


def boot_script(told: UserData, bundle: BundleAt | None, *, install_within_s: float) -> str:
    """Return what a new machine runs as root, once.

    Args:
        told: what its engine host is told; it holds a secret.
        bundle: what to install; None when the image has ``/opt/spillway/venv`` and Java already.
        install_within_s: a machine whose engine host was not started after so long ends.
    """
    minutes = max(1, round(install_within_s / 60))
    parts = [
        _HEAD.format(minutes=minutes),
        _file(_USER_DATA, told.to_json(), mode="600"),
        "" if bundle is None else _INSTALL.format(url=shlex.quote(bundle.url), sha256=shlex.quote(bundle.sha256)),
        _file(_UNIT, UNIT, mode="644"),
        _START,
    ]
    return "\n".join(part for part in parts if part)


def _file(path: str, content: str, *, mode: str) -> str:
    if _END in content:
        raise ValueError(f"{path}: its content has the line that ends it")
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

_INSTALL: Final = f"""\
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -yq --no-install-recommends ca-certificates curl python3-venv
# Home's version if the system has it; an engine host of another version is not used, and the gateway says why.
apt-get install -yq --no-install-recommends openjdk-17-jre-headless \\
  || apt-get install -yq --no-install-recommends default-jre-headless

mkdir -p {HOME}/bundle
curl -fsS --retry 5 --retry-all-errors --max-time 600 -o {HOME}/bundle.tar.gz {{url}}
echo {{sha256}} "" {HOME}/bundle.tar.gz | sha256sum --check --quiet -
tar -xzf {HOME}/bundle.tar.gz -C {HOME}/bundle --no-same-owner
python3 -m venv {HOME}/venv
{HOME}/venv/bin/python -m pip install -q --no-cache-dir --disable-pip-version-check \\
  -c {HOME}/bundle/constraints.txt {HOME}/bundle/*.whl
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

_START: Final = """\
systemctl daemon-reload
systemctl enable --now spillway-worker.service
shutdown -c
echo "spillway: the engine host is started"
"""
