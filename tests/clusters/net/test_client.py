"""The HTTP client of controllers: deadlines, redirects, bounded bodies, and checked addresses."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Sequence

import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from clusters.net import ssrf
from clusters.net.client import FAILURES, HttpClient, checked_connector, failure_reason, read_at_most
from clusters.net.ssrf import AddressRefused


async def hang(request: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(b"x" * 1000)
    return response


async def redirect(request: web.Request) -> web.Response:
    return web.Response(status=302, headers={"Location": "/echo"})


async def echo(request: web.Request) -> web.Response:
    response = web.json_response({"encoding": request.headers.get("Accept-Encoding"), "cookies": dict(request.cookies)})
    response.set_cookie("session", "1")
    return response


async def compressed(request: web.Request) -> web.Response:
    return web.Response(body=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})


@contextlib.asynccontextmanager
async def serve() -> AsyncIterator[BaseTestServer]:
    app = web.Application()
    for handler in (hang, endless, redirect, echo, compressed):
        app.router.add_get(f"/{handler.__name__}", handler)
    async with TestServer(app) as server:
        yield server


async def test_a_request_has_a_deadline_with_a_reason() -> None:
    async with serve() as server, HttpClient(0.05) as client:
        with pytest.raises(FAILURES) as caught:
            async with client.get(server.make_url("/hang")):
                pass
    assert isinstance(caught.value, TimeoutError) and failure_reason(caught.value)


async def test_a_body_without_end_is_read_to_its_limit() -> None:
    async with serve() as server, HttpClient(5.0) as client, client.get(server.make_url("/endless")) as response:
        assert len(await read_at_most(response, 5000)) == 5001


async def test_redirects_are_not_followed() -> None:
    async with serve() as server, HttpClient(5.0) as client, client.get(server.make_url("/redirect")) as response:
        assert response.status == 302


async def test_requests_have_no_cookies_of_earlier_responses_and_ask_for_no_compression() -> None:
    async with serve() as server, HttpClient(5.0) as client:
        url = str(server.make_url("/echo")).replace("127.0.0.1", "localhost")
        for _ in range(2):
            async with client.get(url) as response:
                assert await response.json() == {"encoding": "identity", "cookies": {}}


@pytest.mark.parametrize("decompress", [True, False])
async def test_compressed_bodies_are_decompressed_only_on_request(decompress: bool) -> None:
    async with (
        serve() as server,
        HttpClient(5.0, decompress=decompress) as client,
        client.get(server.make_url("/compressed")) as response,
    ):
        assert (await read_at_most(response, 100) == b"{}") == decompress


async def test_a_closed_client_can_be_used_again() -> None:
    async with serve() as server:
        client = HttpClient(5.0)
        for _ in range(2):
            async with client.get(server.make_url("/echo")) as response:
                assert response.status == 200
            await client.close()


async def test_a_private_address_is_refused_unless_its_host_is_allowed() -> None:
    async with serve() as server:
        for allowed in (frozenset({"127.0.0.1"}), frozenset[str]()):
            async with HttpClient(5.0, lambda allowed=allowed: checked_connector(allowed)) as client:  # type: ignore[misc]
                if allowed:
                    async with client.get(server.make_url("/echo")) as response:
                        assert response.status == 200
                    continue
                with pytest.raises(AddressRefused):
                    async with client.get(server.make_url("/echo")):
                        pass


async def test_a_name_that_resolves_to_another_address_later_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssrf, "is_global", lambda address: address == "127.0.0.1")
    answers = iter(["127.0.0.1", "10.0.0.1"])

    async def resolve(host: str) -> Sequence[str]:
        return [next(answers)]

    async with serve() as server, HttpClient(5.0, lambda: checked_connector(frozenset(), resolve)) as client:
        url = str(server.make_url("/redirect")).replace("127.0.0.1", "models.example")
        async with client.get(url, headers={"Connection": "close"}) as response:
            assert response.status == 302
        with pytest.raises(AddressRefused, match=r"10\.0\.0\.1"):
            async with client.get(url):
                pass
