"""Runs the steps of the Dockerfile where there is no container engine: in folders that hold a Debian, with chroot.

``python -m tests.docker.build_in_root FOLDER`` needs root and debootstrap, takes some minutes and 3 GB. It runs each
RUN of each stage, copies what each COPY names, and then starts what the image starts, as its user. The base image is
debootstrap's smallest Debian of the same release, which has a few packages more than the slim image. The layers, the
mounts of pip's cache and the limits of a container are not tried.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.docker.docker_files import ROOT, image, instructions

_FLAGS = ("--mount=", "--from=")
_CHROOT = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin") or "chroot"
_AUTHORITIES = "etc/authorities-of-this-machine.crt"
"""Whom this machine trusts, for pip; the Debian in the folder may trust others."""


class Stage:
    """One stage of the Dockerfile as a folder.

    Args:
        root: the folder, which has a Debian already.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workdir = "/"
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.user = ""

    def run(self, command: Sequence[str], *, user: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in the stage; end the program if it fails."""
        who = [f"--userspec={user}"] if user else []
        words = [_CHROOT, *who, str(self.root), "/bin/sh", "-c", f"cd {self.workdir} && exec {shlex.join(command)}"]
        environment = self.environment | {"PIP_CERT": f"/{_AUTHORITIES}", "HOME": self.home_of(user)}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{shlex.join(command)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done

    def home_of(self, user: str) -> str:
        """Return the home of a user (uid:gid), which container engines read there, too; without one, of root."""
        uid = user.partition(":")[0] or "0"
        users = (line.split(":") for line in (self.root / "etc" / "passwd").read_text().splitlines())
        return next(fields[5] for fields in users if fields[2] == uid)

    def copy(self, value: str, stages: dict[str, Stage]) -> None:
        """Carry out a COPY."""
        flags = [word for word in value.split() if word.startswith(_FLAGS)]
        *sources, target = [word for word in value.split() if not word.startswith(_FLAGS)]
        base = stages[flags[0].partition("=")[2]].root if flags else ROOT
        for source in sources:
            place = self.root / str(Path(self.workdir, target)).lstrip("/")
            here = base / source.lstrip("/")
            if here.is_dir():
                shutil.copytree(
                    here, place, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                place = place / here.name if target.endswith("/") else place
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(here, place)

    def follow(self, name: str, value: str, stages: dict[str, Stage]) -> None:
        """Carry out an instruction."""
        match name:
            case "RUN":
                words = value.split()
                text = value[value.index(next(word for word in words if not word.startswith("--mount"))) :]
                self.run(["/bin/sh", "-c", text])
            case "COPY":
                self.copy(value, stages)
            case "ENV":
                pairs = (word.partition("=") for word in shlex.split(value))
                self.environment |= {variable: given for variable, _, given in pairs}
            case "WORKDIR":
                self.workdir = value
                (self.root / value.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "USER":
                self.user = value
            case _:
                pass


@contextmanager
def with_proc(root: Path) -> Iterator[None]:
    """Mount what Java reads about the machine, as a container has it."""
    subprocess.run(["mount", "-t", "proc", "proc", str(root / "proc")], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(root / "proc")], check=True)


def build(folder: Path) -> Stage:
    """Carry out all stages; return the last one."""
    stages: dict[str, Stage] = {}
    for lines in instructions():
        (_, began), *rest = lines
        name = began.split()[-1]
        stage = stages[name] = Stage(folder / name)
        subprocess.run(["cp", "-a", str(folder / "debian"), str(stage.root)], check=True)
        for name_file in ("resolv.conf", "hosts"):
            shutil.copy(Path("/etc", name_file), stage.root / "etc" / name_file)
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", stage.root / _AUTHORITIES)
        with with_proc(stage.root):
            for instruction, value in rest:
                print(f"{name}: {instruction} {value[:80]}", flush=True)
                stage.follow(instruction, value, stages)
    return stage


def main() -> None:
    """Build, and start what the image starts."""
    folder = Path(sys.argv[1])
    if not (folder / "debian").exists():
        release = instructions()[0]
        print(f"debootstrap for {release[0][1]}", flush=True)
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", str(folder / "debian")], check=True)
    last = build(folder)
    with with_proc(last.root):
        try_out(last)
    print("the image's steps work, and what it starts does")


def try_out(last: Stage) -> None:
    """Start what the image starts, as its user."""
    made = image()
    said = last.run([*made.entrypoint, "--help"], user=made.user)
    assert "Keep the latency targets of Spark queries" in said.stdout, said
    config = last.root / "etc" / "spillway" / "config.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "docker" / "spillway.yaml", config)
    last.environment |= {"KAFKA": "k:9092", "MQTT_HOST": "m", "BUCKET": "results", "S3_ENDPOINT": "http://s:5000"}
    last.environment |= {"SPARK_MASTER": "local[1]"}
    said = last.run([*made.entrypoint, "check", made.command[-1]], user=made.user)
    print(said.stdout)
    assert "stateless" in said.stdout
    extras = "from gateway.config.sections.extras import *; assert not any(why_missing(name, name) for name in EXTRAS)"
    last.run(["/opt/spillway/venv/bin/python", "-c", extras], user=made.user)
    unhealthy = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]) != 1)"
    last.run(["/opt/spillway/venv/bin/python", "-c", unhealthy, *made.health], user=made.user)


if __name__ == "__main__":
    main()
