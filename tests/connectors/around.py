"""Runs a command with a Kafka broker of its own: ``python -m tests.connectors.around FOLDER COMMAND…``.

The words ``BROKER`` in the command become its host:port. It is on loopback, has its data in the folder, and ends with
the command, whose exit code is returned.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.connectors.kafka_broker import Broker


def main(folder: Path, command: list[str]) -> int:
    """Run a command beside a broker, and return its exit code."""
    shutil.rmtree(folder, ignore_errors=True)
    broker = Broker(folder)
    broker.start()
    try:
        words = [broker.brokers if word == "BROKER" else word for word in command]
        return subprocess.run(words, check=False).returncode
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
