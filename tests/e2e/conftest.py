"""One state_dir, and so one private host and one warm VM, for all end-to-end tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.email.mailbox import Mail, read_mail
from gateway.demo.load import distinct_mails
from tests.e2e.harness import end_hosts, kill_gateways, mail_fixture
from tests.leaks import leaks

SHARED_MAIL = Path(__file__).parents[3] / "shared" / "data" / "enron" / "2000-09.mbox.gz"


@pytest.fixture(scope="session")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state_dir of all gateways; everything that runs below it is ended at the end."""
    folder = tmp_path_factory.mktemp("state")
    yield folder
    end_hosts(folder)
    assert leaks(folder) == []


@pytest.fixture(autouse=True)
def no_gateway_is_left() -> Iterator[None]:
    """A failed test does not make others fail."""
    yield
    kill_gateways()


@pytest.fixture(scope="session")
def mails() -> list[Mail]:
    """Real mail if SPILLWAY_MAIL names some or it is beside the checkout, else generated mail."""
    real = Path(os.environ.get("SPILLWAY_MAIL", SHARED_MAIL))
    return distinct_mails(read_mail(real))[:6000] if real.exists() else mail_fixture(5000)
