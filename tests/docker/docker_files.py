"""The content of docker/: the Dockerfile's last stage, and the compose file with its variables filled in."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from dockerfile_parse import DockerfileParser
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"


@dataclass(frozen=True)
class Image:
    """The settings with which a container of the image is started."""

    entrypoint: list[str]
    command: list[str]
    environment: dict[str, str]
    user: str
    volume: str
    ports: set[int]
    stop_signal: str
    health: list[str]


def instructions() -> list[list[tuple[str, str]]]:
    """Return name and value of each instruction, by stage; those before the first stage are left out."""
    stages: list[list[tuple[str, str]]] = []
    for found in DockerfileParser(path=str(DOCKER / "Dockerfile")).structure:
        if found["instruction"] == "FROM":
            stages.append([])
        if stages and found["instruction"] != "COMMENT":
            stages[-1].append((found["instruction"], found["value"]))
    return stages


def image() -> Image:
    """Return the content of the last stage."""
    last = dict(instructions()[-1])
    pairs = (word.partition("=") for word in shlex.split(last["ENV"]))
    return Image(
        entrypoint=json.loads(last["ENTRYPOINT"]),
        command=json.loads(last["CMD"]),
        environment={name: value for name, _, value in pairs},
        user=last["USER"],
        volume=last["VOLUME"],
        ports={int(port) for port in last["EXPOSE"].split()},
        stop_signal=last["STOPSIGNAL"],
        health=json.loads(last["HEALTHCHECK"].partition("CMD ")[2]),
    )


def versions() -> dict[str, str]:
    """Return the variables that Compose finds beside its file."""
    lines = (DOCKER / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def compose() -> dict[str, Any]:
    """Return the compose file with variables, anchors and merges resolved.

    Raises:
        KeyError: a variable is not in ``.env``.
    """
    return dict(YAML(typ="safe").load(Template((DOCKER / "compose.yaml").read_text()).substitute(versions())))
