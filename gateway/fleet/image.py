"""The files for building a VM image, for clouds without ``bundle``: see docker/image."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from gateway.config.models import Config
from gateway.fleet.clouds import code_of
from infra.clouds.boot import bake_script
from infra.clouds.bundle import make_bundle

BUNDLE: Final = "bundle.tar.gz"
SCRIPT: Final = "bake.sh"


def write_image_files(config: Config, folder: Path) -> Path:
    """Write the bundle and the script that installs it on a machine, and return the script's path.

    Args:
        config: names the functions whose code is included.
        folder: created if it does not exist; files of an earlier call are replaced.

    Raises:
        BundleError: Spillway is not installed, or the code is too large.
        OSError: the folder cannot be written, or the code cannot be read.
    """
    data = make_bundle(code_of(config))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BUNDLE).write_bytes(data)
    script = folder / SCRIPT
    script.write_text(bake_script(hashlib.sha256(data).hexdigest()), encoding="utf-8")
    script.chmod(0o755)
    return script
