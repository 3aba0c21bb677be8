"""HTTP connectors that are made from a config work together: a sink that posts to a source."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import TypeAdapter, ValidationError

from gateway.config.connectors.http import HttpSinkConfig, HttpSourceConfig
from gateway.config.models import SinkConfig, SourceConfig
from gateway.sinks.base import SinkUnavailableError
from gateway.sinks.choose import SinkContext, make_sink
from gateway.sources.choose import SourceContext, make_source
from infra.clock import SystemClock
from tests.connectors.ports import free_port
from tests.connectors.sink_contract import at, release
from tests.connectors.source_contract import events, read

SCHEMA = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])


async def test_results_posted_to_another_gateway_are_there_once(tmp_path: Path) -> None:
    clock, address = SystemClock(), f"127.0.0.1:{free_port()}"
    source = make_source(
        TypeAdapter(SourceConfig).validate_python(
            {"type": "http", "listen": address, "path": "/in", "token": "t", "journal": {"limit": "1MiB"}}
        ),
        SourceContext("q", "me", tmp_path / "in", clock, upstream=lambda _: pytest.fail("it has none")),
    )
    sink_config = TypeAdapter(SinkConfig).validate_python({"type": "http", "url": f"http://{address}/in", "token": "t"})
    folder = tmp_path / "out"
    folder.mkdir()
    context = SinkContext("p", "them", epoch=1, ordered=True, folder=folder, clock=clock)
    sink = make_sink(sink_config, context)
    await sink.open()
    with pytest.raises(SinkUnavailableError):
        await sink.commit([release(0, 4)], at(4))
    await source.open(SCHEMA)
    await sink.commit([release(0, 4)], at(4))
    await sink.close()
    # As after a kill before the progress was saved: the key tells the receiver.
    (folder / "progress.json").unlink()
    again = make_sink(sink_config, context)
    await again.open()
    await again.commit([release(0, 4), release(5, 9)], at(9))
    await again.close()
    assert [row["id"] for row in events(await read(source, 10))] == list(range(10))
    assert list((tmp_path / "in" / "journal").glob("*.journal"))
    await source.close()


def test_the_defaults_of_an_http_source() -> None:
    config = HttpSourceConfig.model_validate({"type": "http", "listen": "[::1]:8090"})
    assert (config.host, config.port, config.path) == ("::1", 8090, "/events")
    assert (config.remember_keys_s, config.max_body_bytes) == (86_400.0, 16 * 2**20)
    assert (config.journal.limit_bytes, config.journal.segment_bytes) == (2**30, 2**26)


@pytest.mark.parametrize(
    "said",
    [
        {"listen": "8090"},
        {"path": "events"},
        {"path": "/a{b"},
        {"path": "/a?b"},
        {"max_body": "1GB"},
        {"journal": {"limit": "1kB"}},
        {"tls": {}},
    ],
)
def test_what_an_http_source_cannot_be(said: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        HttpSourceConfig.model_validate({"type": "http", "listen": "127.0.0.1:8090", **said})


@pytest.mark.parametrize("url", ["ftp://a/b", "see http://a/b", "http://", "http://a b"])
def test_what_an_http_sink_cannot_post_to(url: str) -> None:
    with pytest.raises(ValidationError):
        HttpSinkConfig.model_validate({"type": "http", "url": url})
