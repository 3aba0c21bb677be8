"""What the wheel contains, and what it asks pip for."""

from __future__ import annotations

import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PACKAGES = ("engines", "gateway", "infra", "policies")
CONNECTORS = {"aiokafka", "fastavro", "aiomqtt", "paho-mqtt", "boto3", "apache-libcloud"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return zipfile.ZipFile(path)


def about(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = (each for each in wheel.namelist() if each.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def test_it_contains_each_file_of_the_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    here = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = set(wheel.namelist())
    assert {name for name in packed if ".dist-info/" not in name} == here
    assert {f"{package}/py.typed" for package in PACKAGES} <= packed
    assert "gateway/views/http/livepage/files/page.html" in packed


def test_it_has_the_command(wheel: zipfile.ZipFile) -> None:
    assert "spillway = gateway.cli:main" in about(wheel, "entry_points.txt")


def test_without_an_extra_no_connector_is_installed(wheel: zipfile.ZipFile) -> None:
    metadata = Parser().parsestr(about(wheel, "METADATA"))
    wanted = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    always = {each.name for each in wanted if each.marker is None}
    of_extras = {each.name for each in wanted if each.marker is not None and "extra" in str(each.marker)}
    assert "pyspark" in always
    assert always & CONNECTORS == set()
    assert of_extras >= CONNECTORS
    assert set(metadata.get_all("Provides-Extra", [])) == {"kafka", "mqtt", "s3", "clouds", "calendar", "traces", "all"}
