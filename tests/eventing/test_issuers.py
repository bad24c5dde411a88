"""Key sets of issuers: discovery, caching, and failures."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from clusters.base.errors import Forbidden, Unavailable
from clusters.net.ssrf import LOOPBACK_HOSTS
from eventing.auth import issuers
from eventing.auth.cluster_issuer import ClusterIssuer
from eventing.auth.issuers import LARGEST, MOST_KEYS, CachedIssuerKeys, Discovery
from eventing.auth.oidc import IssuerUnreachable
from tests.eventing.issuer import ISSUER, Issuer
from tests.support.clock import SteppedClock


class CountedFetcher:
    """A `Fetcher` that returns `document`; None is an unreachable issuer."""

    def __init__(self, document: Mapping[str, Any] | None) -> None:
        self.document = document
        self.asked = 0

    async def fetch(self, issuer: str) -> Mapping[str, Any]:
        """Once more."""
        self.asked += 1
        await asyncio.sleep(0)
        if self.document is None:
            raise IssuerUnreachable(f"{issuer} does not answer")
        return self.document


async def test_keys_are_asked_for_once_in_ten_minutes_however_many_want_them() -> None:
    clock = SteppedClock()
    fetcher = CountedFetcher(Issuer(clock).key_set())
    keys = CachedIssuerKeys(fetcher, clock)

    found = await asyncio.gather(*(keys.key(ISSUER, "k1") for _ in range(20)))
    assert all(key is not None for key in found)
    assert fetcher.asked == 1

    clock.step(601)
    await keys.key(ISSUER, "k1")
    assert fetcher.asked == 2


async def test_an_unknown_key_is_asked_for_at_once_but_twice_a_minute_at_most() -> None:
    clock = SteppedClock()
    fetcher = CountedFetcher(Issuer(clock).key_set())
    keys = CachedIssuerKeys(fetcher, clock)
    await keys.key(ISSUER, "k1")

    for _ in range(10):
        assert await keys.key(ISSUER, "k2") is None
    assert fetcher.asked == 1
    clock.step(2)
    with pytest.raises(IssuerUnreachable):  # whoever keeps the question from being asked, a new key is not refused
        await keys.key(ISSUER, "k2")
    assert await keys.key(ISSUER, "") is not None

    clock.step(28)
    fetcher.document = Issuer(clock, kid="k2").key_set()
    assert await keys.key(ISSUER, "k2") is not None
    assert fetcher.asked == 2


async def test_known_keys_outlast_an_issuer_that_is_silent_for_an_hour() -> None:
    clock = SteppedClock()
    fetcher = CountedFetcher(Issuer(clock).key_set())
    keys = CachedIssuerKeys(fetcher, clock)
    await keys.key(ISSUER, "k1")
    fetcher.document = None

    clock.step(3600)
    assert await keys.key(ISSUER, "k1") is not None
    with pytest.raises(IssuerUnreachable):
        await keys.key(ISSUER, "k2")
    clock.step(1)
    with pytest.raises(IssuerUnreachable):
        await keys.key(ISSUER, "k1")


async def test_what_an_issuer_answered_is_not_told_to_senders(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(IssuerUnreachable) as caught:
        await CachedIssuerKeys(CountedFetcher(None), SteppedClock()).key(ISSUER, "k1")

    assert ISSUER not in str(caught.value)
    assert f"{ISSUER} does not answer" in caplog.text


async def test_a_key_of_a_kind_that_is_not_known_here_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteppedClock()
    good = Issuer(clock).key_set()["keys"][0]
    read = jwt.PyJWK

    def odd(member: dict[str, Any]) -> jwt.PyJWK:
        if member["kid"] == "odd":
            raise UnsupportedAlgorithm("a curve of tomorrow")
        return read(member)

    monkeypatch.setattr(jwt, "PyJWK", odd)
    keys = CachedIssuerKeys(CountedFetcher({"keys": [{**good, "kid": "odd"}, good]}), clock)

    assert await keys.key(ISSUER, "k1") is not None


async def test_private_members_of_a_key_are_not_read() -> None:
    """The check of a private key takes a second to an hour, and key sets are read in the event loop."""
    private = json.loads(RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2048)))
    keys = CachedIssuerKeys(CountedFetcher({"keys": [{**private, "kid": "k1"}]}), SteppedClock())
    found = await keys.key(ISSUER, "k1")

    assert found is not None
    assert isinstance(found.key, rsa.RSAPublicKey)


@pytest.mark.parametrize(
    "other",
    [
        {"alg": "none"},
        {"kty": "RSA", "alg": "RS256", "e": "AQAB", "n": "_" * 2734},  # 16 404 bits
        {"kty": "RSA", "alg": "ES256"},
        {"use": {"sig": 1}},
        {"crv": ["P-256"], "kty": "EC"},
    ],
)
async def test_a_key_that_cannot_be_used_leaves_the_others(other: dict[str, Any]) -> None:
    clock = SteppedClock()
    good = Issuer(clock).key_set()["keys"][0]
    keys = CachedIssuerKeys(CountedFetcher({"keys": [{**good, **other, "kid": "other"}, good]}), clock)

    assert await keys.key(ISSUER, "k1") is not None
    assert await keys.key(ISSUER, "other") is None


async def test_so_many_keys_of_a_set_are_read() -> None:
    clock = SteppedClock()
    good = Issuer(clock).key_set()["keys"][0]
    many = [{**good, "kid": str(number)} for number in range(MOST_KEYS + 1)]
    keys = CachedIssuerKeys(CountedFetcher({"keys": many}), clock)

    assert await keys.key(ISSUER, str(MOST_KEYS - 1)) is not None
    assert await keys.key(ISSUER, str(MOST_KEYS)) is None


async def test_a_silent_issuer_is_asked_twice_a_minute() -> None:
    clock = SteppedClock()
    fetcher = CountedFetcher(None)
    keys = CachedIssuerKeys(fetcher, clock)

    for _ in range(5):
        with pytest.raises(IssuerUnreachable):
            await keys.key(ISSUER, "k1")
    assert fetcher.asked == 1


@pytest.mark.parametrize("document", [{}, {"keys": []}, {"keys": 7}, {"keys": [{"kty": "oct"}]}, {"keys": [None]}])
async def test_what_is_no_key_set_is_an_issuer_that_does_not_answer(document: dict[str, Any]) -> None:
    with pytest.raises(IssuerUnreachable):
        await CachedIssuerKeys(CountedFetcher(document), SteppedClock()).key(ISSUER, "k1")


@asynccontextmanager
async def issuer_at(answer: Callable[[str, str], web.Response]) -> AsyncIterator[tuple[str, Discovery]]:
    """Run an issuer on this machine with the answers of `answer(base, path)`."""
    base = ""

    async def handle(request: web.Request) -> web.Response:
        return answer(base, request.path)

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield base, Discovery(lambda: LOOPBACK_HOSTS)
    finally:
        await runner.cleanup()


async def test_discovery_follows_the_issuers_own_document() -> None:
    key_set = Issuer(SteppedClock()).key_set()

    def answer(base: str, path: str) -> web.Response:
        if path == "/.well-known/openid-configuration":
            return web.json_response({"issuer": base, "jwks_uri": f"{base}/keys"})
        return web.json_response(key_set)

    async with issuer_at(answer) as (base, discovery):
        assert await discovery.fetch(base) == key_set


async def test_a_key_set_of_many_packets_is_read_whole() -> None:
    key_set = {**Issuer(SteppedClock()).key_set(), "padding": "x" * 700_000}

    def answer(base: str, path: str) -> web.Response:
        document = {"issuer": base, "jwks_uri": f"{base}/keys"}
        return web.json_response(document if "well-known" in path else key_set)

    async with issuer_at(answer) as (base, discovery):
        assert await discovery.fetch(base) == key_set


@pytest.mark.parametrize(
    "answer",
    [
        lambda base, path: web.Response(status=500),
        lambda base, path: web.Response(status=302, headers={"Location": f"{base}/keys"}),
        lambda base, path: web.Response(body=b"<html>"),
        lambda base, path: web.Response(body=b"[" * 100_000),
        lambda base, path: web.Response(body=b" " * (LARGEST + 1)),
        lambda base, path: web.Response(body=gzip.compress(bytes(LARGEST + 1)), headers={"Content-Encoding": "gzip"}),
        lambda base, path: web.json_response({"issuer": "https://other.example", "jwks_uri": f"{base}/keys"}),
        lambda base, path: web.json_response({"issuer": base}),
        lambda base, path: web.json_response({"issuer": base, "jwks_uri": "http://169.254.169.254/keys"}),
        lambda base, path: web.json_response({"issuer": base, "jwks_uri": "file:///etc/passwd"}),
    ],
)
async def test_another_answer_is_none(answer: Callable[[str, str], web.Response]) -> None:
    async with issuer_at(answer) as (base, discovery):
        with pytest.raises(IssuerUnreachable):
            await discovery.fetch(base)


async def test_an_issuer_whose_answer_does_not_end_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuers, "TIMEOUT", 0.1)

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()
    async with await asyncio.start_server(begin, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(IssuerUnreachable, match="is not reachable: no response in time"):
            await Discovery(lambda: LOOPBACK_HOSTS).fetch(address)
        await ended.wait()


async def test_an_issuer_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(IssuerUnreachable):
        await Discovery(lambda: LOOPBACK_HOSTS).fetch("http://127.0.0.1:1")


async def test_the_api_server_tells_the_keys_of_its_own_issuer() -> None:
    asked = []

    async def get(path: str) -> Any:
        asked.append(path)
        return {"issuer": "https://kubernetes.default.svc"} if "openid-configuration" in path else {"keys": []}

    others = CountedFetcher({"keys": ["other"]})
    issuers = ClusterIssuer(get, others)

    assert await issuers.fetch("https://kubernetes.default.svc") == {"keys": []}
    assert await issuers.fetch("https://elsewhere.example") == {"keys": ["other"]}
    assert asked == ["/.well-known/openid-configuration", "/openid/v1/jwks"]


async def test_an_api_server_that_may_not_be_asked_leaves_other_issuers_alone() -> None:
    async def get(path: str) -> Any:
        raise Forbidden("no right")

    assert await ClusterIssuer(get, CountedFetcher({"keys": []})).fetch("https://elsewhere.example") == {"keys": []}


async def test_an_api_server_that_does_not_answer_makes_no_issuer_unknown() -> None:
    async def get(path: str) -> Any:
        raise Unavailable("no answer")

    with pytest.raises(IssuerUnreachable):
        await ClusterIssuer(get, CountedFetcher(None)).fetch("https://kubernetes.default.svc")
