"""Spillway uses only the private parts of libraries that docs/decisions/0093 lists, and they all exist."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import aiomqtt
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.producer.sender import Sender
from aiokafka.producer.transaction_manager import TransactionManager

from gateway.connectors.heldpaho import CALLBACKS

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "decisions" / "0093-private-parts-of-libraries.md"
# Private to a module of Spillway, and used by another class of the same module.
OWN = {"_first", "_mistaken", "_total_s"}


def test_each_private_name_that_is_used_is_listed() -> None:
    packages = ["gateway", "engines", "infra", "policies"]
    command = [sys.executable, "-m", "ruff", "check", "--select", "SLF001", "--ignore-noqa", "--output-format", "json"]
    said = subprocess.run([*command, *packages], cwd=ROOT, capture_output=True, text=True, check=False)
    used = {match[1] for each in json.loads(said.stdout) if (match := re.search("`(.+)`", each["message"]))}
    listed = set(re.findall(r"`(_[A-Za-z_]+)`", RECORD.read_text()))
    assert {"_jvm", "_txn_manager"} <= used, "ruff finds them"
    assert used - OWN <= listed


def test_no_class_of_an_object_is_swapped() -> None:
    sources = [path for name in ("gateway", "engines", "infra") for path in (ROOT / name).rglob("*.py")]
    assert sources
    assert not [path for path in sources if re.search(r"\.__class__ = ", path.read_text())]


def test_the_parts_of_aiokafka_are_there() -> None:
    """Tests with a real broker check their effects; this test names the one that a new release has renamed."""
    assert callable(AIOKafkaAdminClient._send_request)  # noqa: SLF001 -- it is what this test is about
    assert callable(GroupCoordinator.request_rejoin)
    assert callable(TransactionManager.is_in_transaction)
    assert callable(MessageAccumulator.fail_all)
    assert isinstance(Sender.sender_task, property)
    made = inspect.getsource(AIOKafkaProducer.__init__)
    assert all(f"self.{name} = " in made for name in ("_txn_manager", "_sender", "_message_accumulator"))
    assert "self._coordinator = " in inspect.getsource(AIOKafkaConsumer)


def test_the_parts_of_aiomqtt_are_there() -> None:
    """Tests with a real broker check the effects of these, too."""
    hooks = ("_on_connect", "_on_disconnect", "_on_message", "_on_publish")
    assert all(callable(getattr(aiomqtt.Client, name)) for name in hooks)
    made = inspect.getsource(aiomqtt.Client.__init__)
    assert all(f"self.{name}" in made for name in ("_client: ", "_connected: ", "_disconnected: ", "_loop = "))
    wired = set(re.findall(r"self\._client\.(on_\w+) = ", made))
    assert wired == set(CALLBACKS), "the client that replaces aiomqtt's has the same callbacks"
