"""From the config to where machines come from."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Final

import msgspec

from gateway.codepath import code_path_for
from gateway.config.models import Cloud as CloudConfig
from gateway.config.models import Config
from gateway.config.rented import LISTEN_PORT
from infra.clock import Clock
from infra.clouds.base import Cloud, OrderError, UnavailableError
from infra.clouds.boot import CODE, BundleAt, boot_script
from infra.clouds.bundle import BundleError, make_bundle, user_code
from infra.clouds.cpus import available_cpus, cloud_cpu_sets, cpu_numbers
from infra.clouds.process import ProcessCloud
from infra.link.trust import CODE_PATH, UserData
from infra.objectstore.base import StoreRefusedError, StoreUnavailableError

_URL_VALID_S: Final = 3600


def make_cloud(config: Config, clock: Clock) -> Cloud:
    """Return the cloud that the config names; nothing is asked of a provider yet."""
    if config.cloud.provider == "process":
        return _processes(config, clock)
    # Heavy, and few gateways want it.
    from infra.clouds.libcloud_dialects import Account
    from infra.clouds.profiles import PROFILES
    from infra.clouds.rented import RentedCloud

    cloud = config.cloud
    assert cloud.credentials is not None, "the config refuses a provider without credentials"
    assert cloud.image is not None, "the config refuses a provider without an image"
    account = Account(
        provider=cloud.provider,  # type: ignore[arg-type]  # it is not "process"
        key=cloud.credentials.key,
        secret=cloud.credentials.secret.get_secret_value(),
        token=cloud.credentials.token.get_secret_value() if cloud.credentials.token else None,
        region=cloud.region,
        endpoint=cloud.endpoint,
        project=cloud.project,
        domain=cloud.domain or "Default",
        image=cloud.image,
        sizes=cloud.sizes,
        zones=cloud.zones,
        network=cloud.network,
        subnet=cloud.subnet,
        security_groups=cloud.security_groups,
        address=cloud.address or "public",
        port=cloud.port or LISTEN_PORT,
    )
    boot_within_s = cloud.boot_within_s or PROFILES[account.provider].boot_within_s
    scripts = BootScripts(cloud, lambda: _code_of(config), boot_within_s)
    return RentedCloud(account, scripts.script, clock, boot_within_s=boot_within_s)


class BootScripts:
    """Makes the user data of machines; the bundle is made and stored at the first one.

    Args:
        cloud: what the user wrote.
        code: returns the user's code, contents by path.
        boot_within_s: a machine ends itself when its engine host was not started after so long.
    """

    def __init__(self, cloud: CloudConfig, code: Callable[[], dict[str, bytes]], boot_within_s: float) -> None:
        self._cloud = cloud
        self._code = code
        self._boot_within_s = boot_within_s
        self._stored: str | None = None
        self._storing = asyncio.Lock()

    async def script(self, told: UserData) -> str:
        """Return a machine's user data.

        Raises:
            OrderError: the bundle cannot be made, or the object store refuses it.
            UnavailableError: the object store does not answer.
        """
        try:
            async with self._storing:
                bundle = await asyncio.to_thread(self._bundle)
        except StoreUnavailableError as error:
            raise UnavailableError(f"the bundle for new machines is not stored: {error}") from error
        except (StoreRefusedError, BundleError, OSError) as error:
            raise OrderError(f"the bundle for new machines is not stored: {error}") from error
        if bundle is not None:
            told = msgspec.structs.replace(told, extra={**told.extra, CODE_PATH: CODE})
        return boot_script(told, bundle, install_within_s=self._boot_within_s)

    def _bundle(self) -> BundleAt | None:
        if self._cloud.bundle is None:
            return None
        from infra.objectstore.s3 import S3Store

        there = self._cloud.bundle
        store = S3Store(there.bucket, prefix=there.prefix, endpoint=there.endpoint, region=there.region)
        if self._stored is None:
            data = make_bundle(self._code())
            sha256 = hashlib.sha256(data).hexdigest()
            store.put(_name(sha256), data)
            self._stored = sha256
        return BundleAt(store.presigned_url(_name(self._stored), valid_s=_URL_VALID_S), self._stored)


def _name(sha256: str) -> str:
    return f"bundles/{sha256}.tar.gz"


def _code_of(config: Config) -> dict[str, bytes]:
    """Return the code of functions that are found beside the config."""
    tops = {
        query.function.partition(":")[0].partition(".")[0]
        for query in config.queries.values()
        if query.function and code_path_for(query.function, config.folder)
    }
    return user_code(config.folder, tops) if tops else {}


def _processes(config: Config, clock: Clock) -> ProcessCloud:
    private = cpu_numbers(config.private.cpus) if config.private.cpus else []
    return ProcessCloud(
        config.gateway.state_dir / "vms",
        clock,
        max_vms=config.cloud.max_vms,
        boot_s=config.cloud.boot_s,
        warm=config.cloud.warm,
        cpu_sets=cloud_cpu_sets(available_cpus(), private),
    )
