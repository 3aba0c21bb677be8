"""Creates the configured cloud provider."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from engines.spark.sparkconf import equal_everywhere
from gateway.config.codepath import code_path_for
from gateway.config.models import CloudConfig, Config
from gateway.config.rented import LISTEN_PORT
from gateway.config.settings import boot_within_s
from infra.clock import Clock
from infra.clouds.base import Cloud, OrderError, UnavailableError
from infra.clouds.boot import CODE, BundleAt, DeleteSelf, boot_script
from infra.clouds.bundle import BundleError, make_bundle, user_code
from infra.clouds.cpus import available_cpus, cloud_cpu_sets, cpu_numbers
from infra.clouds.process import Place, ProcessCloud
from infra.link.keys.trust import CODE_PATH, NOTICE, UserData
from infra.objectstore.base import StoreRefusedError, StoreUnavailableError

if TYPE_CHECKING:
    from infra.clouds.providers.account import Account

_URL_VALID_S: Final = 3600
_DIGITALOCEAN: Final = "https://api.digitalocean.com"
_GCE: Final = "https://compute.googleapis.com"


def make_cloud(config: Config, clock: Clock) -> Cloud:
    """Return the cloud of the config; this sends no request to a provider yet."""
    if config.cloud.provider == "process":
        return _processes(config, clock)
    from infra.clouds.rented import RentedCloud

    within_s = boot_within_s(config.cloud)
    conf = equal_everywhere(config.private.spark.conf)
    scripts = BootScripts(config.cloud, lambda: code_of(config), within_s, conf)
    memory = config.gateway.state_dir / "unfit-kinds.json"
    return RentedCloud(account_of(config.cloud), scripts.script, clock, boot_within_s=within_s, memory=memory)


def account_of(cloud: CloudConfig) -> Account:
    """Return the account and the types of VM in the config; not for the process provider."""
    # A slow import that few gateways need.
    from infra.clouds.providers.account import Account, SpotTerms

    assert cloud.credentials is not None, "the config refuses a provider without credentials"
    assert cloud.image is not None, "the config refuses a provider without an image"
    return Account(
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
        spot=None if cloud.spot is None else SpotTerms(cloud.spot.max_usd_per_hour),
        machine_account=cloud.self_delete.id if cloud.provider == "gce" and cloud.self_delete else None,
    )


class BootScripts:
    """Creates the user data of VMs; the bundle is built and stored for the first one.

    Args:
        cloud: the config's section.
        code: returns the user's code, content by path.
        boot_within_s: a VM ends itself if its engine host was not started within this time.
        spark_conf: the user's Spark settings for every host.
    """

    def __init__(
        self,
        cloud: CloudConfig,
        code: Callable[[], dict[str, bytes]],
        boot_within_s: float,
        spark_conf: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._cloud = cloud
        self._code = code
        self._boot_within_s = boot_within_s
        self._spark_conf = spark_conf
        self._stored: str | None = None
        self._storing = asyncio.Lock()

    async def script(self, told: UserData) -> str:
        """Return a VM's user data.

        Raises:
            OrderError: the bundle cannot be built, or the object store refuses it.
            UnavailableError: the object store does not answer.
        """
        try:
            async with self._storing:
                bundle = await asyncio.to_thread(self._bundle)
        except StoreUnavailableError as error:
            raise UnavailableError(f"the bundle for new machines is not stored: {error}") from error
        except (StoreRefusedError, BundleError, OSError) as error:
            raise OrderError(f"the bundle for new machines is not stored: {error}") from error
        # An image has the code in the same place as a bundle: the same commands create both.
        notice = {} if self._cloud.spot is None else {NOTICE: self._cloud.provider}
        told = msgspec.structs.replace(told, extra={**told.extra, **notice, CODE_PATH: CODE})
        told = told.with_spark_conf(self._spark_conf)
        delete_self = _delete_self(self._cloud)
        return boot_script(told, bundle, install_within_s=self._boot_within_s, delete_self=delete_self)

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


def _delete_self(cloud: CloudConfig) -> DeleteSelf | None:
    by = cloud.self_delete
    if by is None:
        return None
    if cloud.provider == "gce":
        return DeleteSelf("gce", _GCE)
    assert by.secret is not None, "the config refuses others without a secret"
    if cloud.provider == "digitalocean":
        return DeleteSelf("digitalocean", _DIGITALOCEAN, secret=by.secret.get_secret_value())
    assert cloud.endpoint is not None, "the config refuses OpenStack without an endpoint"
    assert cloud.region is not None, "the config refuses OpenStack without a region"
    identity_url = cloud.endpoint.rstrip("/").removesuffix("/v3")
    return DeleteSelf("openstack", identity_url, cloud.region, by.id, by.secret.get_secret_value())


def _name(sha256: str) -> str:
    return f"bundles/{sha256}.tar.gz"


def code_of(config: Config) -> dict[str, bytes]:
    """Return the code of functions that are in the config's folder."""
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
        spark_conf=equal_everywhere(config.private.spark.conf),
        cpu_sets=cloud_cpu_sets(available_cpus(), private),
        places=[
            Place(("ip", "netns", "exec", namespace), str(address))
            for namespace, address in config.cloud.namespaces.items()
        ],
    )
