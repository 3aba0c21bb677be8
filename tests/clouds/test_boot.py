"""The user data is a script that a shell can run. It gives the VM its settings, and ends the VM if it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from infra.clouds.boot import UNIT, BundleAt, boot_script
from infra.clouds.providers.profiles import PROFILES
from infra.link.keys.trust import UserData, new_token

BUNDLE = BundleAt("https://store.example/b/x.tar.gz?sig=a&b='c'", "ab" * 32)
TOLD = UserData(host="vm-1", ca_pem="-----BEGIN\nx'\"$(reboot)`y`\n-----END\n", token=new_token())


def run(script: str, tmp_path: Path, **stubs: str) -> tuple[int, str, list[str]]:
    """Run a script with its folders below ``tmp_path``, and record each external command instead of running it."""
    commands = ("apt-get", "systemctl", "shutdown", "curl", "sha256sum", "tar", "python3", "pip")
    tools = tmp_path / "tools"
    tools.mkdir()
    log = tmp_path / "log"
    for name in commands:
        reads = "cat > /dev/null" if name == "sha256sum" else ""  # else the echo before it may die of a broken pipe
        does = stubs.get(name.replace("-", "_"), "")
        (tools / name).write_text(f'#!/bin/bash\necho {name} "$@" >> {log}\n{reads}\n{does}\n')
        (tools / name).chmod(0o755)
    for folder in ("/opt/spillway", "/etc/spillway", "/etc/systemd/system"):
        script = script.replace(folder, f"{tmp_path}{folder}")
    python = tmp_path / "opt/spillway/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/bin/true")
    path = f"{tools}:{os.environ['PATH']}"
    done = subprocess.run(["bash"], input=script, env={"PATH": path}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr, log.read_text().splitlines()


@pytest.mark.parametrize("bundle", [BUNDLE, None], ids=["plain image", "baked image"])
def test_a_shell_understands_it(bundle: BundleAt | None) -> None:
    script = boot_script(TOLD, bundle, install_within_s=900)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    if shutil.which("shellcheck"):
        done = subprocess.run(
            ["shellcheck", "-s", "bash", "-"], input=script, text=True, stdout=subprocess.PIPE, check=False
        )
        assert (done.returncode, done.stdout) == (0, "")


def test_it_fits_into_the_user_data_of_every_provider() -> None:
    long = BundleAt(f"https://store.example/{'x' * 2000}", "ab" * 32)
    told = UserData(host="v" * 60, ca_pem="x" * 1500, token=new_token())
    size_bytes = len(boot_script(told, long, install_within_s=900).encode())
    assert size_bytes < min(profile.user_data_bytes_max for profile in PROFILES.values()) / 2


def test_the_machine_is_told_to_the_letter(tmp_path: Path) -> None:
    code, said, log = run(boot_script(TOLD, None, install_within_s=900), tmp_path)
    assert (code, "is started" in said) == (0, True)
    file = tmp_path / "etc/spillway/user-data.json"
    assert UserData.from_json(file.read_bytes()) == TOLD
    assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "etc/systemd/system/spillway-worker.service").read_text() == UNIT.replace(
        "/opt/spillway", f"{tmp_path}/opt/spillway"
    ).replace("/etc/spillway", f"{tmp_path}/etc/spillway")
    assert [line.split()[0] for line in log] == ["shutdown", "systemctl", "systemctl", "shutdown"]
    assert (log[0].split()[1:3], log[-1]) == (["-h", "+15"], "shutdown -c")


def test_it_installs_the_bundle_that_was_stored(tmp_path: Path) -> None:
    code, _, log = run(boot_script(TOLD, BUNDLE, install_within_s=60), tmp_path)
    assert code == 0
    (fetched,) = [line for line in log if line.startswith("curl")]
    assert fetched.endswith(BUNDLE.url)
    assert any(line.startswith("apt-get install") and "openjdk-17" in line for line in log)
    assert any(line.startswith("sha256sum --check") for line in log)


@pytest.mark.parametrize("step", ["apt_get", "curl", "sha256sum", "tar", "python3", "systemctl"])
def test_a_step_that_fails_ends_the_machine(tmp_path: Path, step: str) -> None:
    code, said, log = run(boot_script(TOLD, BUNDLE, install_within_s=900), tmp_path, **{step: "exit 3"})
    assert code != 0
    assert "this machine ends" in said
    assert log[-1] == "shutdown -h now"


def test_an_engine_host_is_not_started_again_and_ends_its_machine() -> None:
    assert "Restart=no" in UNIT
    assert "SuccessAction=poweroff" in UNIT
    assert "FailureAction=poweroff" in UNIT


def test_what_would_end_a_file_early_is_refused() -> None:
    told = UserData(host="vm-1", ca_pem="SPILLWAY_END", token=new_token())
    with pytest.raises(ValueError, match="user-data"):
        boot_script(told, None, install_within_s=900)
