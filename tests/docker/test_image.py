"""A cloud image: the files that build it, the result of the build, and the recipe for Packer."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import hcl2
import pytest
from typer.testing import CliRunner

from gateway.cli import main
from gateway.config import Config, load
from gateway.fleet.clouds import BootScripts
from infra.clouds.boot import CODE, HOME, UNIT
from infra.clouds.providers.profiles import PROFILES
from infra.link.keys.trust import CODE_PATH, UserData, new_token

RECIPE = Path(__file__).parents[2] / "docker" / "image" / "spillway.pkr.hcl"
CONFIG = """\
gateway: {state_dir: ./state}
cloud:
  provider: ec2
  region: eu-west-1
  credentials: {key: k, secret: s}
  image: ami-12c6146b
  sizes: [m5.large]
  max_vms: 1
  boot: 60s
  billing: {period: 60s, minimum: 60s, usd_per_hour: 0.10, usd_per_gb_sent: 0.09}
  budget: {usd_per_day: 5}
queries:
  shout:
    source: {type: file, path: words.jsonl}
    schema: id BIGINT, word STRING
    function: mine:shout
    sink: {type: file, path: out}
    qos: {latency: 2s}
"""
CODE_TEXT = "def shout(events):\n    return events\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(CODE_TEXT)
    (tmp_path / "words.jsonl").touch()
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def files(config: Path, tmp_path: Path) -> Path:
    out = tmp_path / "files"
    done = CliRunner().invoke(main, ["image", str(config), "--out", str(out)])
    assert (done.exit_code, str(out / "bake.sh") in done.output) == (0, True), done.output
    return out


def bake(files: Path, root: Path) -> subprocess.CompletedProcess[str]:
    """Run the script with its folder below ``root``, apt-get and cloud-init only recorded, and pip really run."""
    tools = root / "tools"
    tools.mkdir(parents=True)
    for name in ("apt-get", "cloud-init"):
        (tools / name).write_text(f'#!/bin/bash\necho {name} "$@" >> {root}/log\n')
    (tools / "python3").write_text(f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    script = files / "here.sh"
    script.write_text((files / "bake.sh").read_text().replace(HOME, f"{root}{HOME}"))
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"}
    return subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=False)


def test_a_machine_that_was_baked_has_what_its_unit_starts_and_the_user_s_code(files: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    done = bake(files, root)
    assert done.returncode == 0, done.stdout + done.stderr
    program = UNIT.partition("ExecStart=")[2].split()[0]
    assert program.startswith(HOME)
    # What Spillway depends on was left out above; this is where it is.
    env = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib")}
    said = subprocess.run(
        [f"{root}{program}", "worker", "--help"], env=env, capture_output=True, text=True, check=False
    )
    assert (said.returncode, "--user-data" in said.stdout) == (0, True), said.stderr
    where = f"import gateway; print(gateway.__file__.startswith({str(root)!r}))"
    python = f"{root}{HOME}/venv/bin/python"
    assert subprocess.run([python, "-P", "-c", where], env=env, capture_output=True, check=True).stdout == b"True\n"
    assert Path(f"{root}{CODE}/mine.py").read_text() == CODE_TEXT
    assert not Path(f"{root}{HOME}/bundle.tar.gz").exists()
    log = (root / "log").read_text().splitlines()
    assert any("openjdk-17" in line for line in log)
    assert log[-1] == "cloud-init clean --logs --machine-id"


def test_a_bundle_that_is_not_the_one_the_script_was_made_for_is_refused(files: Path, tmp_path: Path) -> None:
    with (files / "bundle.tar.gz").open("ab") as bundle:
        bundle.write(b"x")
    done = bake(files, tmp_path / "root")
    assert done.returncode != 0
    assert not Path(f"{tmp_path}/root{HOME}/venv").exists()


async def test_a_machine_of_such_an_image_is_told_where_the_code_is(config: Path) -> None:
    loaded: Config = load(config)
    told = UserData(host="vm-1", ca_pem="x", token=new_token())
    script = await BootScripts(loaded.cloud, dict, 900.0).script(told)
    assert "apt-get" not in script
    assert f'"{CODE_PATH}":"{CODE}"' in script


def test_a_folder_that_cannot_be_is_said(config: Path) -> None:
    done = CliRunner().invoke(main, ["image", str(config), "--out", str(config / "below-a-file")])
    assert done.exit_code == 1
    assert "Not a directory" in done.output


def test_the_script_is_as_it_should_be_for_a_shell(files: Path) -> None:
    subprocess.run(["bash", "-n", str(files / "bake.sh")], check=True)
    assert os.access(files / "bake.sh", os.X_OK)


def plain(value: Any) -> Any:
    """Remove the parser's quotation marks."""
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.strip('"') if isinstance(value, str) else value


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    with RECIPE.open() as file:
        return dict(plain(hcl2.load(file)))


def test_the_recipe_knows_every_provider_that_machines_are_rented_from(recipe: dict[str, Any]) -> None:
    builders = {
        "ec2": "amazon-ebs",
        "gce": "googlecompute",
        "openstack": "openstack",
        "digitalocean": "digitalocean",
    }
    made = {kind for source in recipe["source"] for kind in source}
    assert made == {builders[provider] for provider in PROFILES}
    (build,) = recipe["build"]
    assert set(build["sources"]) == {f"source.{kind}.debian" for kind in made}
    plugins = recipe["packer"][0]["required_plugins"][0]
    assert {plugin.replace("amazon", "amazon-ebs") for plugin in plugins} == made


def test_the_recipe_takes_what_the_command_writes_and_runs_it_as_root(recipe: dict[str, Any], files: Path) -> None:
    (build,) = recipe["build"]
    steps = [(kind, step) for each in build["provisioner"] for kind, step in each.items()]
    assert [kind for kind, _ in steps] == ["shell", "file", "shell"]
    written = {f"${{var.files}}/{path.name}" for path in files.iterdir()}
    assert set(steps[1][1]["sources"]) == written
    assert steps[2][1]["inline"][0] == f"sudo bash {steps[1][1]['destination']}bake.sh"


def test_every_variable_of_the_recipe_is_explained_and_can_be_left_out(recipe: dict[str, Any]) -> None:
    variables = {name: about for each in recipe["variable"] for name, about in each.items()}
    assert variables["files"]["default"] == "build/image"
    assert [name for name, about in variables.items() if not about["description"] or "default" not in about] == []
