"""The bundle: equal content gives equal bytes; pip accepts its wheel; of the user's files it has only the code."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import urllib.request
from importlib import metadata
from pathlib import Path

import pytest

from gateway.config.models import CloudConfig
from gateway.fleet.clouds import BootScripts
from infra.clouds import bundle
from infra.clouds.base import OrderError
from infra.clouds.bundle import BundleError, constraints, make_bundle, user_code
from infra.link.keys.trust import CODE_PATH, UserData, new_token
from tests.connectors.s3_server import S3Server


def members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {name: file.read() for name in tar.getnames() if (file := tar.extractfile(name)) is not None}


def test_equal_content_gives_an_equal_bundle() -> None:
    one = make_bundle({"mine.py": b"x = 1\n"})
    assert one == make_bundle({"mine.py": b"x = 1\n"})
    assert one != make_bundle({"mine.py": b"x = 2\n"})
    files = members(one)
    assert files["code/mine.py"] == b"x = 1\n"
    assert f"pyspark=={metadata.version('pyspark')}\n" in files["constraints.txt"].decode()


def test_pip_installs_its_wheel_and_the_program_is_there(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(make_bundle({}))) as tar:
        tar.extractall(tmp_path, filter="data")
    (wheel,) = tmp_path.glob("*.whl")
    there = tmp_path / "there"
    options = [
        "--quiet",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
        "--no-compile",
        "--target",
        str(there),
    ]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(wheel)], check=True)
    assert (there / "bin" / "spillway").exists()
    for package in bundle.PACKAGES:
        home = Path(bundle.__file__).parents[2] / package
        sent = {path.relative_to(there / package) for path in (there / package).rglob("*.py")}
        assert sent == {path.relative_to(home) for path in home.rglob("*.py")}
    assert (there / "engines" / "spark" / "log4j2.properties").exists()


def test_constraints_name_everything_but_spillway() -> None:
    text = constraints(metadata.distributions())
    assert "spillway==" not in text
    assert f"msgspec=={metadata.version('msgspec')}" in text.splitlines()


def test_user_code_is_the_modules_and_packages_that_are_named(tmp_path: Path) -> None:
    for path in (
        "mine.py",
        "helper.py",
        "pack/a.py",
        "pack/words.txt",
        "pack/__pycache__/a.pyc",
        "other/b.py",
        "x.yaml",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    assert set(user_code(tmp_path, {"mine", "pack"})) == {"mine.py", "helper.py", "pack/a.py", "pack/words.txt"}


def test_code_that_is_too_large_is_refused() -> None:
    with pytest.raises(BundleError, match="folder of their own"):
        make_bundle({"mine.py": b"x" * 11}, code_bytes_max=10)


def cloud_config(server: S3Server, bucket: str) -> CloudConfig:
    return CloudConfig.model_validate(
        {
            "provider": "ec2",
            "max_vms": 1,
            "boot": "120s",
            "billing": {"period": "60s", "minimum": "60s", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
            "budget": {"usd_per_day": 5},
            "credentials": {"key": "k", "secret": "s"},
            "region": "eu-west-1",
            "image": "ami-1",
            "sizes": ["m5.large"],
            "bundle": {"bucket": bucket, "prefix": "cloud", "endpoint": server.endpoint, "region": "us-east-1"},
        }
    )


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.mark.usefixtures("aws")
async def test_it_is_stored_once_under_its_hash_and_anybody_with_the_url_gets_it(moto_server: S3Server) -> None:
    bucket = moto_server.make_bucket()
    asked = []

    def code() -> dict[str, bytes]:
        asked.append("code")
        return {"mine.py": b"x = 1\n"}

    scripts = BootScripts(cloud_config(moto_server, bucket), code, 900.0)
    told = UserData(host="vm-1", ca_pem="x", token=new_token())
    script = await scripts.script(told)
    assert CODE_PATH in script
    await scripts.script(told)
    assert asked == ["code"]
    (stored,) = moto_server.client().list_objects_v2(Bucket=bucket)["Contents"]
    sha256 = stored["Key"].removeprefix("cloud/bundles/").removesuffix(".tar.gz")
    assert sha256 in script
    url = next(word for word in script.split() if word.startswith("'http") and sha256 in word).strip("'")
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == make_bundle({"mine.py": b"x = 1\n"})


@pytest.mark.usefixtures("aws")
async def test_a_bucket_that_is_not_there_is_said(moto_server: S3Server) -> None:
    scripts = BootScripts(cloud_config(moto_server, "no-such-bucket"), dict, 900.0)
    with pytest.raises(OrderError, match="bucket does not exist"):
        await scripts.script(UserData(host="vm-1", ca_pem="x", token=new_token()))
