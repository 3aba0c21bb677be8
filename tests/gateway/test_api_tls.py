"""The API over real TLS: commands, a scrape, a renewed certificate, and addresses that need one."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from gateway import start
from gateway.cli import main
from gateway.config import ConfigError
from gateway.config.models import ApiConfig
from gateway.connectors.servertls import pinned_context
from infra.clienttls import BadTlsFilesError
from infra.statefiles import numbered_files
from tests.connectors.http_data import server_certificate
from tests.connectors.mqtt_trust import Signed, TestAuthority
from tests.connectors.ports import free_port
from tests.gateway.daemon_site import Site, configured, no_texts
from tests.gateway.terminal import Terminal
from tests.support.waiting import until

__all__ = ["no_texts"]
TLS = ", tls: {certificate: api.crt, key: api.key}"


def put(folder: Path, signed: Signed) -> None:
    """Write the files of the config."""
    shutil.copy(signed.certificate, folder / "api.crt")
    shutil.copy(signed.key, folder / "api.key")


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[int]:
    """A daemon with TLS, and its port."""
    site = Site(folder, port=(port := free_port()), api=TLS)
    running = asyncio.create_task(site.daemon.run(False, None))
    await until(lambda: running.done() or site.daemon.phase == "running")
    yield port
    site.query.idle = True
    site.daemon.parts.drain()
    assert await running == 0


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path, "authority")


async def code_of(url: str, context: ssl.SSLContext) -> int:
    """The status of an answer over a new connection."""
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
        return answer.status


async def test_commands_and_a_scrape_use_tls_and_nothing_is_said_in_clear(
    tmp_path: Path, authority: TestAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, authority.sign("one"))
    caplog.set_level(logging.INFO)
    async with served(tmp_path) as port:
        terminal = Terminal(tmp_path)
        assert (await terminal.done("status")).startswith("running, 1 queries")
        assert "words" in await terminal.done("pin", "words", "home")
        assert f"ready: the live page and the API are at https://127.0.0.1:{port}/" in caplog.text
        # As Prometheus does: it knows the authority, and compares the name.
        knows = ssl.create_default_context(cafile=str(authority.certificate))
        for path in ("/metrics", "/", "/readyz"):
            assert await code_of(f"https://127.0.0.1:{port}{path}", knows) == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await code_of(f"https://127.0.0.1:{port}/metrics", ssl.create_default_context())
        with pytest.raises(aiohttp.ClientConnectionError):
            await code_of(f"http://127.0.0.1:{port}/metrics", knows)


async def test_a_command_sends_nothing_to_a_server_with_another_certificate(
    tmp_path: Path, authority: TestAuthority
) -> None:
    put(tmp_path, authority.sign("one"))
    # The same authority has signed it, for the same address.
    other = authority.sign("other")
    terminal, strict = Terminal(tmp_path), tmp_path / "strict.yaml"
    async with served(tmp_path):
        strict.write_text(terminal.config.read_text().replace("api.crt", other.certificate.name))
        result = await terminal.said("pin", "words", "home", config=strict)
        assert result.exit_code == 1
        assert "has another certificate than the one in gateway.api.tls" in result.output
        plain = tmp_path / "plain.yaml"
        plain.write_text(terminal.config.read_text().replace(TLS, ""))
        result = await terminal.said("status", config=plain)
        assert (result.exit_code, "no gateway answers at http://" in result.output) == (1, True), result.output
        assert [*numbered_files(tmp_path / "state" / "audit")] == []


async def test_a_renewed_certificate_is_used_without_a_restart(
    tmp_path: Path, authority: TestAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, authority.sign("one"))
    caplog.set_level(logging.INFO)
    async with served(tmp_path) as port:
        url = f"https://127.0.0.1:{port}/healthz"
        before = pinned_context(tmp_path / "api.crt")
        assert await code_of(url, before) == 200
        renewed = authority.sign("two")
        shutil.copy(renewed.certificate, tmp_path / "api.crt")
        for _ in range(2):  # half of it is written: the earlier pair still counts, and it is logged once
            assert await code_of(url, before) == 200
        assert caplog.text.count("the earlier certificate stays in use: ") == 1
        shutil.copy(renewed.key, tmp_path / "api.key")
        assert await code_of(url, pinned_context(renewed.certificate)) == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await code_of(url, before)
        assert "api.crt has changed: new connections use it" in caplog.text
        assert (await Terminal(tmp_path).done("status")).startswith("running")
        (tmp_path / "api.key").unlink()
        assert await code_of(url, pinned_context(renewed.certificate)) == 200


async def test_a_certificate_that_signed_itself_is_recognized_whatever_its_name(tmp_path: Path) -> None:
    put(tmp_path, Signed(*server_certificate(tmp_path)))
    async with served(tmp_path):
        assert (await Terminal(tmp_path).done("status")).startswith("running")


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----", "é", None])
def test_a_file_without_a_certificate_is_no_pin(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "some.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadTlsFilesError, match=r"some\.pem has no certificate in PEM .*: name the right file"):
        pinned_context(path)


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"])
def test_only_this_machine_needs_no_tls(listen: str) -> None:
    assert ApiConfig(listen=listen).url == f"http://{listen}"


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[fe80::1]:1", "gateway:1", "localhost.org:1"])
def test_an_address_that_others_reach_needs_tls_or_a_word(tmp_path: Path, listen: str) -> None:
    with pytest.raises(ValueError, match=r"without TLS others can read the token on its way; add tls: "):
        ApiConfig(listen=listen)
    assert ApiConfig(listen=listen, insecure=True).url == f"http://{listen}"
    tls = {"certificate": tmp_path / "api.crt", "key": tmp_path / "api.key"}
    assert ApiConfig.model_validate({"listen": listen, "tls": tls}).url == f"https://{listen}"


@pytest.mark.parametrize("command", [["check", "--no-plan"], ["run"]])
def test_check_and_run_refuse_such_an_address(tmp_path: Path, command: list[str]) -> None:
    configured(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(path.read_text().replace("127.0.0.1:0", "0.0.0.0:8088"))
    result = CliRunner().invoke(main, [*command, str(path)])
    assert result.exit_code == 2
    assert f"{path}:4: gateway.api.listen: other machines can reach 0.0.0.0:8088" in result.output
    assert not (tmp_path / "state").exists()


def test_tls_and_its_exception_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.api\.insecure: allows an API without TLS, .*; remove it"):
        configured(tmp_path, api=f"{TLS}, insecure: true")


@pytest.mark.parametrize(("key", "says"), [("none", "are not a certificate with its key"), (None, "is encrypted with")])
def test_check_and_run_refuse_files_that_are_no_certificate(
    tmp_path: Path, authority: TestAuthority, caplog: pytest.LogCaptureFixture, key: str | None, says: str
) -> None:
    put(tmp_path, authority.sign("one"))
    (tmp_path / "api.key").write_bytes(encrypted_key() if key is None else key.encode())
    config = configured(tmp_path, port=free_port(), api=TLS)
    result = CliRunner().invoke(main, ["check", "--no-plan", str(tmp_path / "config.yaml")])
    assert result.exit_code == 2
    assert f"{tmp_path / 'config.yaml'}:4: gateway.api.tls: " in result.output
    assert f"{tmp_path / 'api.key'} {says}" in result.output
    assert start.run(config, until_drained=True, report=None) == 2
    assert f"gateway.api.tls: {tmp_path}" in caplog.text
    assert f"{tmp_path / 'api.key'} {says}" in caplog.text


def encrypted_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.BestAvailableEncryption(b"word")
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, form)
