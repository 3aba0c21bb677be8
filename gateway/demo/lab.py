"""``spillway lab up``: a test cloud on this machine."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Final

from gateway.views.logs import begin_logging
from infra.lab.lab import BUCKET, REGION, Lab, LabError
from infra.wan.errors import WanError

_LOG: Final = logging.getLogger(__name__)
_SECTION: Final = """\
The lab is up. In a config (with AWS_ACCESS_KEY_ID=lab and AWS_SECRET_ACCESS_KEY=lab in the environment):

cloud:
  provider: ec2
  region: {region}
  endpoint: {endpoint}
  credentials: {{key: lab, secret: lab}}
  image: ami-12c6146b
  sizes: [m5.large]
  address: private
  bundle: {{bucket: {bucket}, region: {region}, endpoint: '{endpoint}'}}

Consoles of its machines: {folder}/i-*/console.log. Ctrl-C ends it, and all its machines.
"""


def up(folder: Path) -> int:
    """Run the lab until SIGINT or SIGTERM.

    Args:
        folder: for logs and consoles.

    Returns:
        The exit code: 0 ok, 1 the lab cannot run.
    """
    begin_logging()
    try:
        asyncio.run(_up(folder.absolute()))
    except (LabError, WanError) as error:
        _LOG.error("%s", error)
        return 1
    return 0


async def _up(folder: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Lab(folder) as lab:
        section = _SECTION.format(region=REGION, endpoint=lab.endpoint, bucket=BUCKET, folder=folder)
        print(section, flush=True)  # noqa: T201 -- the command's output
        await stop.wait()
