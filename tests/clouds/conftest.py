from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infra.clouds.process import ProcessCloud
from tests.clouds.ec2_lab import Ec2Lab
from tests.clouds.leaping_clock import LeapingClock
from tests.connectors.s3_server import S3Server

FAKE_WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
MakeCloud = Callable[..., ProcessCloud]


@pytest.fixture
def clock() -> LeapingClock:
    return LeapingClock()


@pytest.fixture
def make_cloud(tmp_path: Path, clock: LeapingClock) -> MakeCloud:
    """Clients of one process cloud that starts the fake worker."""

    def made(**changes: object) -> ProcessCloud:
        settings: dict[str, object] = {"max_vms": 2, "worker_command": FAKE_WORKER, **changes}
        return ProcessCloud(tmp_path / "cloud", clock, **settings)  # type: ignore[arg-type]

    return made


@pytest.fixture
def workers(tmp_path: Path) -> Callable[[], list[psutil.Process]]:
    """List the living processes that were started in this test's folder."""

    def running() -> list[psutil.Process]:
        return [
            process
            for process in psutil.process_iter(["cmdline", "status"])
            if any(str(tmp_path) in argument for argument in process.info["cmdline"] or ())
            and process.info["status"] != psutil.STATUS_ZOMBIE
        ]

    return running


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MOTO_ENABLE_AMI_VALIDATION", "true")
        environment.setenv("MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION", "true")
        server = S3Server(tmp_path_factory.mktemp("moto"))
    yield server
    server.stop()


@pytest.fixture
def ec2(moto_server: S3Server, clock: LeapingClock) -> Iterator[Ec2Lab]:
    """An EC2 server; VMs of a failed test do not disturb the next test."""
    lab = Ec2Lab(moto_server, clock)
    yield lab
    left = [instance["InstanceId"] for instance in lab.instances()]
    if left:
        lab.client().terminate_instances(InstanceIds=left)
