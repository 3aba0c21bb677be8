"""The config's sections about sites: the gateway itself, the private side, the cloud."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, IPvAnyAddress, model_validator

from engines.spark.sparkconf import DRIVER_MEMORY
from gateway.config.billing import (
    BillingConfig,
    BudgetConfig,
    QuotaConfig,
    billing_findings,
    billing_terms,
    size_prices,
)
from gateway.config.connectors.s3 import BucketConfig, BucketFolderConfig
from gateway.config.connectors.security import ServerTlsConfig
from gateway.config.rented import Name, Provider, RentedConfig, rented_findings
from gateway.config.sections.extras import why_missing
from gateway.config.sections.freezing import FreezeConfig
from gateway.config.words.fields import (
    Address,
    AnyPath,
    CpuSet,
    DriverMemory,
    Duration,
    Finding,
    LinkRate,
    LongerThanZero,
    Master,
    QueryName,
    Section,
    Share,
    Size,
    SparkSetting,
    SparkValue,
    refuse,
)
from infra.clouds.providers.profiles import PROFILES
from policies.money.billing import BillingTerms

_LEASE_LEAST_S = 5.0
_POD_MOUNT: Final = re.compile(r"spark\.kubernetes\.executor\.volumes\.[^.]+\.[^.]+\.mount\.path")
_POD_TEMPLATE: Final = "spark.kubernetes.executor.podTemplateFile"


class ApiConfig(Section):
    """The address of the API, which also answers ``spillway status`` and monitoring.

    Attributes:
        listen: host and port; only this machine can reach the default.
        token_file: a file with the token that every action needs. The gateway creates it, and only its user may be
            able to read it. Default: ``api-token`` in the state_dir.
        tls: the certificate and key of the API; without it, others can read the token on its way.
        insecure: allows an address that other machines can reach without ``tls``, where the network is trusted.
    """

    listen: Address = Field(default="127.0.0.1:8088", examples=["127.0.0.1:9000"])
    token_file: AnyPath | None = Field(default=None, examples=["api-token"])
    tls: ServerTlsConfig | None = None
    insecure: bool = False

    @model_validator(mode="after")
    def _nobody_reads_the_token(self) -> Self:
        if self.tls is not None and self.insecure:
            refuse(
                [Finding(key=("insecure",), what="allows an API without TLS, but there is a tls section; remove it")]
            )
        if self.tls is None and not self.insecure and not _is_loopback(self.host):
            what = (
                f"other machines can reach {self.listen}, and without TLS others can read the token on its way; add "
                "tls: {certificate: FILE, key: FILE}, or listen on 127.0.0.1, or write insecure: true if the network "
                "is trusted"
            )
            refuse([Finding(key=("listen",), what=what)])
        return self

    @property
    def url(self) -> str:
        """Return where the API is, without a slash at the end."""
        return self.url_at(self.port)

    def url_at(self, port: int) -> str:
        """Return the URL with another port: port 0 stands for any that is free."""
        return f"{'http' if self.tls is None else 'https'}://{self.listen.rpartition(':')[0]}:{port}"

    @property
    def host(self) -> str:
        """Return the host part."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Return the port part; 0 lets the system choose."""
        return int(self.listen.rpartition(":")[2])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class TracesConfig(Section):
    """Traces of some runs, sent to a collector of OpenTelemetry.

    Attributes:
        endpoint: of the collector, for OTLP over HTTP: scheme, host and port.
        sample: the part of the runs that is traced.
    """

    endpoint: str = Field(pattern=r"^https?://[^\s/?#]+/?$", examples=["http://127.0.0.1:4318"])
    sample: Annotated[Share, Field(gt=0)] = 0.01


class LogConfig(Section):
    """The log's file; the log goes to stderr, too.

    Attributes:
        file: where the log is kept. Default: ``log/gateway.log`` in the state_dir.
        rotate_bytes: at this size the file is renamed to ``.1``, and a new one begins; three older ones are kept.
    """

    file: AnyPath | None = Field(default=None, examples=["/var/log/spillway.log"])
    rotate_bytes: Annotated[Size, Field(ge=10_000)] = Field(default=10_000_000, alias="rotate")


class GatewayConfig(Section):
    """The daemon itself.

    Attributes:
        state_dir: the folder for run logs, keys and the records of hosts; one gateway at a time uses it.
        slot_s: time step of the switching functions.
        api: where the gateway answers requests, and shows its page.
        orphan_after_s: an engine host without a gateway exits after this long.
        log: the file of the log.
        memory_bytes: bound on the events and results that all queries hold in memory together.
        fleet: a name that one gateway at a time owns, on any machine; another one waits until the owner stops.
        object_store: where the lease of the fleet, and the quota, are stored: a bucket, or a folder that the gateways
            share.
        watch: whether the config file is read again each time it changes.
        drain_timeout_s: how long a gateway that ends delivers what it has read; the rest is delivered after the next
            start.
        traces: traces of some runs for a collector of OpenTelemetry; None: no traces.
        lease_s: another gateway of the fleet takes over when the owner was silent for this long; at least 5 s.
        quota: limits of VMs and money that this gateway shares with others; see docs/scaling.md.
    """

    state_dir: AnyPath = Field(examples=["./state"])
    slot_s: LongerThanZero = Field(default=1.0, alias="slot")
    api: ApiConfig = ApiConfig()
    log: LogConfig = LogConfig()
    orphan_after_s: LongerThanZero = Field(default=60.0, alias="orphan_after")
    memory_bytes: Annotated[Size, Field(ge=2**24)] = Field(default=2**29, alias="memory")
    watch: bool = False
    drain_timeout_s: LongerThanZero = Field(default=300.0, alias="drain_timeout")
    fleet: QueryName | None = Field(default=None, examples=["shop"])
    object_store: BucketConfig | BucketFolderConfig | None = Field(
        default=None, examples=[{"bucket": "spillway-fleets"}]
    )
    lease_s: Duration = Field(default=30.0, alias="lease")
    traces: TracesConfig | None = None
    quota: QuotaConfig | None = None

    @property
    def log_file(self) -> Path:
        """Return the file of the log."""
        return self.log.file or self.state_dir / "log" / "gateway.log"

    @model_validator(mode="after")
    def _what_is_shared_has_a_store(self) -> Self:
        if self.fleet is not None and self.object_store is None:
            what = "a fleet needs an object_store that its gateways share; add {bucket: NAME} or {folder: PATH}"
            refuse([Finding(key=("object_store",), what=what)])
        if self.quota is not None and self.object_store is None:
            what = "a quota needs an object_store that its gateways share; add {bucket: NAME} or {folder: PATH}"
            refuse([Finding(key=("object_store",), what=what)])
        if self.fleet is None and self.quota is None and self.object_store is not None:
            what = "without a fleet or a quota nothing is kept in the object_store; add fleet: NAME, or remove it"
            refuse([Finding(key=("fleet",), what=what)])
        if isinstance(self.object_store, BucketConfig) and (missing := why_missing("buckets", "s3")):
            refuse([Finding(key=("object_store",), what=missing)])
        if self.traces is not None and (missing := why_missing("traces", "traces")):
            refuse([Finding(key=("traces",), what=missing)])
        if self.lease_s < _LEASE_LEAST_S:
            # It is renewed each third of it, with requests that may take 2 s.
            what = f"is too short for an owner to renew it in time; write at least {_LEASE_LEAST_S:g}s"
            refuse([Finding(key=("lease",), what=what)])
        return self


class SparkConfig(Section):
    """How Spark is started at home.

    Attributes:
        master: as Spark understands it: ``local[N]``, ``spark://host:port``, ``k8s://…`` or ``yarn``.
        memory_bytes: heap of the engine host's JVM: Spark's driver, and with ``local`` its executors. Default: 1 GiB,
            Spark's own. Executors of a cluster get theirs by ``conf: {spark.executor.memory: 4g}``.
        checkpoints: the folder for the state of stateful queries. A cluster's executors need it at the same path; so it
            is on storage that they share with this machine. Default: the state_dir, which only ``local`` can use.
        conf: Spark's own settings. Those that begin with ``spark.sql.`` apply to VMs, too, since they can change
            answers; all others apply to home only.
    """

    master: Master = Field(default="local[1]", examples=["spark://spark-master:7077"])
    memory_bytes: DriverMemory | None = Field(default=None, alias="memory", examples=["2GiB"])
    checkpoints: AnyPath | None = Field(default=None, examples=["/mnt/shared/spillway"])
    conf: dict[SparkSetting, SparkValue] = Field(
        default_factory=dict, max_length=256, examples=[{"spark.executor.memory": "4g"}]
    )

    @model_validator(mode="after")
    def _pods_have_the_checkpoints(self) -> Self:
        if self.checkpoints is None or not self.master.startswith("k8s://") or _POD_TEMPLATE in self.conf:
            return self
        mounts = [Path(value) for name, value in self.conf.items() if _POD_MOUNT.fullmatch(name)]
        if not any(self.checkpoints.is_relative_to(mount) for mount in mounts):
            what = (
                f"is in no volume of the executors' pods; add one to conf (spark.kubernetes.executor.volumes.TYPE.NAME."
                f"mount.path: {self.checkpoints}, and its options), or {_POD_TEMPLATE}"
            )
            refuse([Finding(key=("checkpoints",), what=what)])
        return self

    @property
    def settings(self) -> dict[str, str]:
        """Return all settings of the engine host at home, besides Spillway's own."""
        memory = {} if self.memory_bytes is None else {DRIVER_MEMORY: f"{self.memory_bytes >> 20}m"}
        return {**self.conf, **memory}

    @property
    def fingerprint(self) -> str:
        """Return a hash that identifies these settings; the settings themselves may hold secrets."""
        text = json.dumps(self.settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class PrivateConfig(Section):
    """The private side.

    Attributes:
        spark: how Spark is started.
        cpus: pins its engine host to these CPUs. Default: all.
        standby: keeps a second engine host ready, which takes over within seconds when the first one dies; it costs
            the memory of one more Spark driver.
        host: ``shared``, all queries run on one engine host; ``own``, each query has its own host, at the cost of one
            Spark driver's memory each. A query that crashes a shared host is found by running each suspect alone.
        data_path: ``gateway``, all events pass through the gateway; ``reference``, Spark's executors read the events of
            Kafka, files or S3 that stay at home, if the query allows it; ``direct``, Spark carries the query from Kafka
            to Kafka by itself while that keeps the target, if the query allows it; ``auto``, the last of these that the
            query allows (docs/data-path.md).
    """

    spark: SparkConfig = SparkConfig()
    cpus: CpuSet | None = Field(default=None, examples=["0-1,3"])
    standby: bool = False
    host: Literal["shared", "own"] = "shared"
    data_path: Literal["gateway", "reference", "direct", "auto"] = "gateway"

    @model_validator(mode="after")
    def _standby_is_of_a_shared_host(self) -> Self:
        if self.standby and self.host == "own":
            what = "a standby takes over for a shared host; write host: shared, or remove standby"
            refuse([Finding(key=("standby",), what=what)])
        return self


class EmulateLinkConfig(Section):
    """Shapes the links of process VMs in user space.

    Attributes:
        delay_s: how long each way takes.
        rate_bits_per_s: how much passes each way.
    """

    delay_s: Duration = Field(alias="delay")
    rate_bits_per_s: LinkRate = Field(alias="rate")

    @property
    def bytes_per_s(self) -> float:
        """Return how many bytes pass each way in a second."""
        return self.rate_bits_per_s / 8


class CloudConfig(RentedConfig):
    """Where VMs are rented.

    Attributes:
        provider: who rents VMs; ``process`` runs them as processes of this machine.
        max_vms: at most this many at a time.
        usual_boot_s: expected time from the order to ready; it counts as the first boot, and the boots that are seen
            correct it. Default: the provider's (2.5 to 3 minutes); required for ``process``.
        freeze: when no VM is launched or given back. A VM that lives then is kept and paid for as the budget allows.
        warm: process provider only: hosts are launched in advance and ``boot`` is emulated.
        emulate_link: process provider only: behave as if the VMs were this far away.
        namespaces: process provider only: network namespaces of this machine, with the address that each has there;
            each VM runs in one of them.
        billing: what VMs and traffic cost.
        budget: the most that may be spent.
    """

    provider: Provider
    max_vms: int = Field(ge=0, le=1000, examples=[2])
    usual_boot_s: Duration | None = Field(default=None, alias="boot")
    warm: bool = False
    billing: BillingConfig
    budget: BudgetConfig
    freeze: tuple[FreezeConfig, ...] = Field(default=(), max_length=64)
    emulate_link: EmulateLinkConfig | None = None
    namespaces: dict[Name, IPvAnyAddress] = Field(default_factory=dict, examples=[{"site-1": "10.99.0.2"}])

    @model_validator(mode="after")
    def _fits_the_provider(self) -> Self:
        if self.provider != "process" and (what := why_missing("rented VMs", "clouds")):
            refuse([Finding(key=("provider",), what=what)])  # the prices of VMs are in that library, too
        findings = rented_findings(self.provider, self)
        if self.provider != "process":
            for key in ("warm", "emulate_link", "namespaces"):
                if getattr(self, key):
                    findings.append(Finding(key=(key,), what="is for provider process only; remove it"))
        elif self.namespaces:
            findings += self._namespace_findings()
        if self.provider == "process" and self.usual_boot_s is None:
            findings.append(Finding(key=("boot",), what="is missing; add it, as in boot: 10s"))
        if not any(finding.key[0] in ("region", "sizes") for finding in findings):
            findings += billing_findings(self.provider, self.billing, self)
        refuse(findings)
        return self

    @property
    def boot_s(self) -> float:
        """Expected time from the order to ready: the configured time, or the provider's default."""
        if self.usual_boot_s is not None:
            return self.usual_boot_s
        assert self.provider != "process", "the config refuses processes without it"
        return PROFILES[self.provider].usual_boot_s

    @property
    def terms(self) -> BillingTerms:
        """The price of a VM of the most expensive size."""
        return billing_terms(self.provider, self.billing, self)

    @property
    def size_prices(self) -> dict[str, float]:
        """What an hour of each size costs, where sizes have prices of their own."""
        return size_prices(self.provider, self.billing, self)

    @classmethod
    def none(cls) -> Self:
        """Return the section that means no cloud: no VM may be rented."""
        billing = {"period": "60s", "minimum": "60s", "usd_per_hour": 0.0, "usd_per_gb_sent": 0.0}
        said = {"provider": "process", "max_vms": 0, "boot": "0s", "billing": billing, "budget": {"usd_per_day": 0.0}}
        return cls.model_validate(said)

    def _namespace_findings(self) -> list[Finding]:
        findings = []
        if len(self.namespaces) < self.max_vms:
            what = f"names {len(self.namespaces)} for up to {self.max_vms} VMs; give each VM one of its own"
            findings.append(Finding(key=("namespaces",), what=what))
        if self.emulate_link is not None:
            what = "the network of the namespaces defines the link; remove emulate_link or namespaces"
            findings.append(Finding(key=("emulate_link",), what=what))
        return findings


def _none_is_no_cloud(value: object) -> object:
    return CloudConfig.none() if value == "none" else value


CloudConfigOrNone = Annotated[
    CloudConfig, BeforeValidator(_none_is_no_cloud, json_schema_input_type=CloudConfig | Literal["none"])
]
