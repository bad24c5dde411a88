"""The probe of the activator, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from autoscaler.reconciler.prober import ActivatorProber
from clusters.base.objects import Key
from tests.autoscaler.pages import Behaviour, Server, answer, drip, hang, no_http, pour, serving, slam

KEY = Key("shop", "search-00001")


class Loopback(AbstractResolver):
    """A resolver that resolves every name to this machine."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.names.append(host)
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        """Do nothing."""


class Nowhere(Loopback):
    """A resolver that resolves no name."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        raise OSError("Name or service not known")


@pytest.fixture
async def activator() -> AsyncIterator[Server]:
    async with serving(answer(b"activator")) as server:
        yield server


@pytest.fixture
async def resolver() -> Loopback:
    return Loopback()


@pytest.fixture
async def prober(resolver: Loopback) -> AsyncIterator[ActivatorProber]:
    made = ActivatorProber(timeout=0.2, resolver=resolver)
    yield made
    await made.close()


async def test_the_activators_word_is_the_proof(activator: Server, resolver: Loopback, prober: ActivatorProber) -> None:
    assert await prober.in_path(KEY, activator.port)
    assert resolver.names == ["search-00001.shop.svc.cluster.local"]
    (request,) = activator.requests
    assert request.startswith(b"GET /healthz HTTP/1.1\r\n")
    assert b"K-Network-Probe: activator\r\n" in request
    assert b"User-Agent: Knative-Autoscaling-Probe\r\n" in request


async def test_each_probe_goes_where_the_service_leads_now(activator: Server, prober: ActivatorProber) -> None:
    assert [await prober.in_path(KEY, activator.port) for _ in range(3)] == [True] * 3
    assert activator.connections == 3


@pytest.mark.parametrize(
    "behave",
    [
        answer(b"queue"),
        answer(b"activator", "503 Service Unavailable"),
        answer(b"activators and more"),
        answer(b"", "302 Found"),
        answer(b'unexpected probe header value: "activator"', "400 Bad Request"),
        hang,
        drip,
        pour,
        slam,
        no_http,
    ],
)
async def test_any_other_answer_is_no_proof(activator: Server, prober: ActivatorProber, behave: Behaviour) -> None:
    activator.behave = behave
    assert not await prober.in_path(KEY, activator.port)
    assert (prober.probes, prober.failed) == (1, 1)


async def test_a_name_that_nobody_knows_is_no_proof_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    prober = ActivatorProber(domain="corp.example", resolver=Nowhere())
    try:
        assert not await prober.in_path(KEY, 80)
        assert not await prober.in_path(KEY, 80)
    finally:
        await prober.close()
    assert caplog.text.count("http://search-00001.shop.svc.corp.example:80/healthz: no answer") == 1
