"""The routes ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gateway.views.http.probes.metrics import MeasuredGateway, metrics_of


@dataclass(frozen=True, slots=True)
class Probed:
    """What the probes ask.

    Attributes:
        phase: returns the phase of the gateway.
        troubles: returns why it does not take or deliver events, by what is concerned; empty if nothing is wrong.
        measured: returns the figures.
    """

    phase: Callable[[], str]
    troubles: Callable[[], Mapping[str, str]]
    measured: Callable[[], MeasuredGateway]


class _Figures(Collector):
    """Makes the metrics when they are asked for."""

    def __init__(self, measured: Callable[[], MeasuredGateway]) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Metric]:
        return metrics_of(self._measured())

    def describe(self) -> list[Metric]:
        """Return none: the figures are not there yet when this is registered."""
        return []


def probe_routes(probed: Probed) -> list[web.RouteDef]:
    """Return the routes.

    ``/healthz`` answers 200 as long as the gateway answers at all. ``/readyz`` answers 200 if it takes and delivers
    events, else 503, with the reasons. ``/metrics`` has the figures for Prometheus.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(probed.measured))
    ProcessCollector(registry=registry)

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"alive": True, "phase": probed.phase()})

    async def readyz(_: web.Request) -> web.Response:
        phase = probed.phase()
        reasons = {} if phase == "running" else {"gateway": f"it is {phase}"}
        reasons |= probed.troubles()
        body = {"ready": not reasons, "reasons": [{"what": what, "why": why} for what, why in reasons.items()]}
        return web.json_response(body, status=503 if reasons else 200)

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # Nothing else runs meanwhile, so that all figures are of the same moment.
        response = web.Response(body=encode(registry), headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    return [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
