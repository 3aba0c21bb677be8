"""The bundle that a rented VM installs: Spillway as it runs here, the same library versions, and the user's code.

The wheel is built from the packages that are running, not from a source tree: an installed gateway has no source tree,
and home and cloud get identical code. Equal content gives an equal bundle, so its hash identifies it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

PROJECT: Final = "spillway"
PACKAGES: Final = ("engines", "gateway", "infra", "policies")
_ROOT: Final = Path(__file__).parents[2]
_LEFT_OUT: Final = {"__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
CODE_BYTES_MAX: Final = 64_000_000
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


class BundleError(Exception):
    """The bundle cannot be built; the message says what to do."""


def make_bundle(code: Mapping[str, bytes], code_bytes_max: int = CODE_BYTES_MAX) -> bytes:
    """Return a ``.tar.gz`` of the wheel, ``constraints.txt``, and ``code/`` with the user's files.

    Args:
        code: contents by path below ``code/``.
        code_bytes_max: the limit on the total size of ``code``.

    Raises:
        BundleError: Spillway is not installed, or the code is too large.
    """
    size_bytes = sum(len(content) for content in code.values())
    if size_bytes > code_bytes_max:
        raise BundleError(
            f"the code beside the config has {size_bytes} bytes and {code_bytes_max} may be sent to each VM: "
            "put the functions into a folder of their own"
        )
    name, wheel = spillway_wheel()
    files = {name: wheel, "constraints.txt": constraints(metadata.distributions()).encode()}
    files |= {f"code/{path}": content for path, content in code.items()}
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def user_code(folder: Path, modules: Iterable[str]) -> dict[str, bytes]:
    """Return the files that a config's functions need: their top modules, whole packages, and the modules beside them.

    Args:
        folder: where they are found.
        modules: their top modules' names.

    Raises:
        OSError: a file cannot be read.
    """
    paths = set(folder.glob("*.py"))
    for module in modules:
        package = folder / module
        if package.is_dir():
            paths.update(path for path in package.rglob("*") if path.is_file() and not _LEFT_OUT & set(path.parts))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(paths)}


def constraints(distributions: Iterable[metadata.Distribution]) -> str:
    """Return a constraints file of everything that is installed here, so that a VM gets the same versions."""
    versions = {_normal(found.name): found.version for found in distributions}
    return "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()) if name != PROJECT)


def spillway_wheel() -> tuple[str, bytes]:
    """Return the name and the content of a wheel of Spillway as it is here.

    Raises:
        BundleError: it is not installed.
    """
    try:
        installed = metadata.distribution(PROJECT)
    except metadata.PackageNotFoundError as error:
        raise BundleError("Spillway is not installed here, so it cannot be sent: run make setup") from error
    files = {
        path.relative_to(_ROOT).as_posix(): path.read_bytes()
        for package in PACKAGES
        for path in sorted((_ROOT / package).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    about = f"{PROJECT}-{installed.version}.dist-info"
    files[f"{about}/METADATA"] = (installed.read_text("METADATA") or "").encode()
    files[f"{about}/entry_points.txt"] = (installed.read_text("entry_points.txt") or "").encode()
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: spillway\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{about}/RECORD"] = _record(files, f"{about}/RECORD")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            wheel.writestr(zipfile.ZipInfo(path, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return f"{PROJECT}-{installed.version}-py3-none-any.whl", packed.getvalue()


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    lines = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{own},,\n"]).encode()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
