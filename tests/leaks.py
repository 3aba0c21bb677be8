"""Looks for secrets in the logs that a test's gateways and engine hosts have written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from gateway.views.http.access import TOKEN_NAME

_LOG = re.compile(r"\.log(\.\d+)?$")
_IN_CONFIG = re.compile(r"\b(?:secret|password|token)['\"]?\s*:\s*['\"]?([^'\"\s,{}]{8,})")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_CONFIG_BYTES_MOST = 1 << 20


def leaks(folder: Path) -> list[str]:
    """Return where logs below a folder contain a private key, or a secret of a config or an API token below it.

    A secret of fewer than eight characters is not looked for: it may be a part of a word.
    """
    logs, secrets = [], dict[str, str]()
    for path in _files(folder):
        if _LOG.search(path.name):
            logs.append(path)
        elif path.name == TOKEN_NAME:
            secrets[path.read_text().strip()] = str(path)
        elif path.suffix in (".yaml", ".yml") and path.stat().st_size <= _CONFIG_BYTES_MOST:
            found = _IN_CONFIG.findall(path.read_text(errors="replace"))
            secrets |= {each: str(path) for each in map(os.path.expandvars, found) if not each.startswith("$")}
    return [where for path in logs for where in _leaks_in(path, secrets)]


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def _leaks_in(path: Path, secrets: dict[str, str]) -> Iterator[str]:
    with path.open(errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            for secret, origin in secrets.items():
                if secret in line:
                    yield f"{path}, line {number}, has a secret of {origin}"
            if _PRIVATE_KEY.search(line):
                yield f"{path}, line {number}, has a private key"
