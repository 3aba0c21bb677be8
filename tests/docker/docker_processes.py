"""The services of the compose file as processes of this machine: the same commands, environment and mounted files.

Each service has its own address in 127.0.0.0/8, which replaces its name everywhere, so that all ports stay the same.
The volumes and mounted files of a container are in a folder of the test. Some parts cannot work without a container:
tini is left out. The broker of the other tests replaces Kafka's image; it is configured by the image's rule
(``KAFKA_LOG_DIRS`` is ``log.dirs``). The health check's own program replaces ``nc -z`` and ``wget``. Prometheus
would use port 9090 of all addresses.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from tests.connectors import mosquitto
from tests.connectors.kafka_broker import JARS, _java
from tests.docker.docker_files import DOCKER, ROOT, compose, image, instructions
from tests.docker.monitoring import prometheus_program
from tests.engines.spark_cluster import jvm_environment

# A gateway that found no executors in its own three minutes is started again.
DEADLINE_S = 600.0
_NOT_KAFKAS = ("KAFKA_HEAP_OPTS",)
_VENV = "/opt/spillway/venv"
_KEPT = ("JAVA_HOME", "HOME", "CI", "SPARK_SUBMIT_OPTS")


class Stack:
    """Use it as a context; everything that was started ends with it.

    Args:
        folder: for volumes, mounted files and logs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.services: dict[str, dict[str, Any]] = compose()["services"]
        self._image = image()
        net = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(250) + 1}"
        self.addresses = {name: f"{net}.{number}" for number, name in enumerate(self.services, 1)}
        names = "|".join(map(re.escape, self.services))
        self._name = re.compile(rf"(^|://|@|\")({names})(?=:\d|/|$)")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes.values()):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(DEADLINE_S)

    @property
    def order(self) -> list[str]:
        """The services, each after those that it waits for."""
        return list(TopologicalSorter({n: s.get("depends_on", {}) for n, s in self.services.items()}).static_order())

    def start(self, name: str) -> None:
        """Start a service once the services that it depends on are in the required state."""
        service = self.services[name]
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                self.wait_healthy(other)
            else:
                assert self.processes[other].wait(DEADLINE_S) == 0, self.log(other)
        self._mount(name)
        self._commands[name] = self._kafka(name) if name == "kafka" else self._command(name)
        self._spawn(name)

    def _spawn(self, name: str) -> None:
        quickly = jvm_environment() if name.startswith("spark-") else {}
        with self._log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self._commands[name],
                env=self.environment(name) | quickly,
                cwd=self._volume(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def is_healthy(self, name: str) -> bool:
        """Run a service's health check once."""
        command = self._health(name)
        done = subprocess.run(command, env=self.environment(name), capture_output=True, timeout=60, check=False)
        return done.returncode == 0

    def wait_healthy(self, name: str) -> None:
        """Return when a service's health check succeeds; restart a failed service as often as its file says."""
        ends = time.monotonic() + DEADLINE_S
        restarts = self.services[name].get("deploy", {}).get("restart_policy", {}).get("max_attempts", 0)
        while not self.is_healthy(name):
            if self.processes[name].poll() is not None:
                assert restarts > 0, f"{name} ended:\n{self.log(name)}"
                restarts -= 1
                self._spawn(name)
            assert time.monotonic() < ends, f"{name} is not healthy in {DEADLINE_S:g} s:\n{self.log(name)}"
            time.sleep(1.0)

    @property
    def stop_signal(self) -> str:
        """The signal that stops our containers."""
        return self._image.stop_signal

    def log(self, name: str) -> str:
        """Return the end of a service's output."""
        return self._log(name).read_text(errors="replace")[-4000:]

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a service's processes."""
        kept = {variable: os.environ[variable] for variable in _KEPT if variable in os.environ}
        own = self._image.environment if self._is_ours(name) else {"PATH": os.defpath}
        told = {**own, **self.services[name].get("environment", {})}
        seen = {variable: self.translate(name, value) for variable, value in told.items()}
        return {**kept, **seen, "PATH": f"{seen['PATH']}:{os.environ['PATH']}"}

    def translate(self, name: str, text: str) -> str:
        """Return a text with the names, addresses and paths that are valid here."""
        text = self._name.sub(lambda found: found[1] + self.addresses[found[2]], text)
        text = text.replace("0.0.0.0", self.addresses[name])
        if not (places := self._places(name)):
            return text
        longest_first = "|".join(map(re.escape, sorted(places, key=len, reverse=True)))
        return re.sub(rf"(?<![\w.-])(?:{longest_first})", lambda found: str(places[found[0]]), text)

    def volume(self, source: str) -> Path:
        """Return where a named volume is."""
        folder = self._folder / "volumes" / source
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # ------------------------------------------------------------------------------------------------------ one service

    def _is_ours(self, name: str) -> bool:
        return str(self.services[name]["image"]).startswith("spillway:")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _volume(self, name: str) -> Path:
        """The working folder of a service's process: the volume that its image has."""
        return self._places(name)[self._image.volume] if self._is_ours(name) else self._folder

    def _places(self, name: str) -> dict[str, Path]:
        """Return where the folders and files of a service's container are on this machine."""
        places = {}
        if self._is_ours(name):
            places = {_VENV: Path(sys.prefix), self._image.volume: self.volume(f"of-{name}")}
            copies = [value.split() for kind, value in instructions()[-1] if kind == "COPY"]
            places |= {words[1]: ROOT / words[0] for words in copies if len(words) == 2}
        for mounted in self.services[name].get("volumes", ()):
            source, target, *_ = mounted.split(":")
            is_file = source.startswith(".")
            places[target] = self._folder / name / Path(target).name if is_file else self.volume(source)
        return places

    def _mount(self, name: str) -> None:
        for mounted in self.services[name].get("volumes", ()):
            source, target, *_ = mounted.split(":")
            if source.startswith("."):
                here = self._places(name)[target]
                here.parent.mkdir(parents=True, exist_ok=True)
                here.write_text(self.translate(name, (DOCKER / source).read_text()))
                if name == "mosquitto":  # as root it would become a user who may not write into the test's folder
                    here.write_text(f"user {getpass.getuser()}\n{here.read_text()}")

    def _command(self, name: str) -> list[str]:
        service = self.services[name]
        entry = service.get("entrypoint", self._image.entrypoint if self._is_ours(name) else [])
        words = [*entry, *service.get("command", self._image.command)]
        if name == "prometheus":  # its image's entry point, and where it may listen here
            words = [prometheus_program("prometheus"), *words, f"--web.listen-address={self.addresses[name]}:9090"]
        return self._runnable(name, words[2:] if words[:2] == ["/usr/bin/tini", "--"] else words)

    def _health(self, name: str) -> list[str]:
        kind, *words = self.services[name].get("healthcheck", {}).get("test", ["CMD", *self._image.health])
        assert kind == "CMD"
        if words[:2] == ["nc", "-z"]:
            host, port = (self.translate(name, word) for word in words[2:])
            return [sys.executable, str(DOCKER / "healthy.py"), f"tcp://{host}:{port}"]
        if words[0] == "wget":
            return [sys.executable, str(DOCKER / "healthy.py"), self.translate(name, words[-1])]
        return self._runnable(name, words)

    def _runnable(self, name: str, words: Sequence[str]) -> list[str]:
        own = Path(sys.executable).parent
        programs = {"mosquitto": mosquitto.program(), "moto_server": str(own / "moto_server"), "python": sys.executable}
        first = programs.get(words[0]) or self.translate(name, words[0])
        return [first, *(self.translate(name, word) for word in words[1:])]

    def _kafka(self, name: str) -> list[str]:
        told = self.services[name]["environment"]
        settings = {
            variable.removeprefix("KAFKA_").lower().replace("_", "."): self.translate_list(name, value)
            for variable, value in told.items()
            if variable.startswith("KAFKA_") and variable not in _NOT_KAFKAS
        }
        path = self._folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        options = f"{told['KAFKA_HEAP_OPTS']} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".split()
        java = [_java(), *options, "-cp", f"{JARS}/*"]
        form = [*java, "kafka.tools.StorageTool", "format", "-t", "5L6g3nShT-eMCtK--X86sw", "-c", str(path)]
        done = subprocess.run(form, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{json.dumps(settings)}\n{done.stdout}{done.stderr}"
        return [*java, "kafka.Kafka", str(path)]

    def translate_list(self, name: str, value: str) -> str:
        """Translate each of the words that commas separate."""
        return ",".join(self.translate(name, word) for word in value.split(","))
