"""The daemon imports little before it is ready, since a killed gateway must be ready again within seconds."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    *("pyspark", "pandas", "plotly", "boto3", "moto", "scipy", "sklearn", "aiokafka", "libcloud", "matplotlib"),
    "opentelemetry",  # only if the config has traces
)


def test_starting_the_daemon_imports_no_heavy_library() -> None:
    code = f"import gateway.cli, gateway.config, gateway.daemon, sys; print(*(set({HEAVY!r}) & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert said.stdout.split() == []
