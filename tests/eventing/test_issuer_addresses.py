"""Allowed addresses of issuers and their key sets: tenants choose issuers, so internal addresses are refused."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import IPv4Network

import pytest
import yarl
from aiohttp import web

from clusters.net import ssrf
from clusters.net.ssrf import LOOPBACK_HOSTS
from eventing.auth.issuers import DISCOVERY, Discovery
from eventing.auth.oidc import IssuerUnreachable

HOSTS = {
    "issuer.example": ["127.0.0.1"],
    "keys.example": ["93.184.215.14", "10.0.0.7"],
    "metadata.example": ["169.254.169.254"],
    "localhost": ["127.0.0.1"],
}
REFUSED = r"private or reserved|not an https URL|is not a URL|no such host|not a canonical"
NOTHING: frozenset[str] = frozenset()


async def resolve(host: str) -> Sequence[str]:
    if host not in HOSTS:
        raise socket.gaierror(socket.EAI_NONAME, "no such host")
    return HOSTS[host]


@asynccontextmanager
async def server(
    answer: Callable[[str], object], address: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[tuple[int, list[str]]]:
    """Run a server on this machine; yield its port and the requested paths."""
    paths: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.json_response(answer(request.path))

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port).start()
        yield runner.addresses[0][1], paths
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("issuer", "allowed"),
    [
        ("https://issuer.example", NOTHING),  # a name of loopback
        ("https://issuer.example", LOOPBACK_HOSTS),
        ("https://keys.example", LOOPBACK_HOSTS),  # one private address among public ones
        ("https://metadata.example", LOOPBACK_HOSTS),
        ("https://unknown.example", LOOPBACK_HOSTS),
        ("https://10.0.0.7", LOOPBACK_HOSTS),
        ("https://[::ffff:10.0.0.7]", LOOPBACK_HOSTS),
        ("https://127.0.0.1:{port}", NOTHING),
        ("https://localhost:{port}", NOTHING),
        ("https://2130706433:{port}", LOOPBACK_HOSTS),  # 127.0.0.1 as one number
        ("https://127.1:{port}", LOOPBACK_HOSTS),
        ("https://0x7f000001:{port}", LOOPBACK_HOSTS),
        ("http://127.0.0.1:{port}", NOTHING),
        ("http://issuer.example:{port}", frozenset({"issuer.example"})),  # http is for loopback hosts only
        ("http://localhost.evil:{port}", LOOPBACK_HOSTS),
        ("http://127.0.0.1@evil.example/", LOOPBACK_HOSTS),
        ("ftp://127.0.0.1", LOOPBACK_HOSTS),
        ("https://", LOOPBACK_HOSTS),
        ("https://[x", LOOPBACK_HOSTS),
    ],
)
async def test_an_issuer_at_an_address_within_is_not_asked(issuer: str, allowed: frozenset[str]) -> None:
    async with server(lambda path: {}) as (port, paths):
        with pytest.raises(IssuerUnreachable, match=REFUSED):
            await Discovery(lambda: allowed, resolve).fetch(issuer.format(port=port))

    assert paths == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_owner_of_one_machine_may_have_an_issuer_on_it(host: str) -> None:
    base = ""

    def answer(path: str) -> object:
        return {"issuer": base, "jwks_uri": f"{base}/keys"} if path == DISCOVERY else {"keys": ["a"]}

    async with server(answer) as (port, _):
        base = f"http://{host}:{port}"
        assert await Discovery(lambda: LOOPBACK_HOSTS, resolve).fetch(base) == {"keys": ["a"]}


@pytest.fixture
def public_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat 127.0.0.1 as public and 127.0.0.2 as private."""
    monkeypatch.setattr(ssrf, "REFUSED_V4", (IPv4Network("127.0.0.2/32"),))


async def test_an_issuer_that_is_resolved_to_another_address_the_second_time_is_connected_to_where_it_was_judged(
    public_loopback: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [["127.0.0.1"]]
    monkeypatch.setattr("eventing.auth.issuers._url", lambda address, allowed: yarl.URL(address))  # also http

    async def rebinds(host: str) -> Sequence[str]:
        return answers.pop() if answers else ["127.0.0.2"]

    base = ""
    async with AsyncExitStack() as stack:
        port, asked = await stack.enter_async_context(server(lambda path: {"issuer": base, "jwks_uri": f"{base}/keys"}))
        _, inside = await stack.enter_async_context(server(lambda path: {"keys": []}, "127.0.0.2", port))
        base = f"http://issuer.example:{port}"
        with pytest.raises(IssuerUnreachable, match=r"127\.0\.0\.2, which is private"):  # the key set, judged anew
            await Discovery(frozenset, rebinds).fetch(base)

    assert (asked, inside) == ([DISCOVERY], [])


async def test_a_public_issuer_cannot_lead_to_what_was_allowed_for_direct_use(
    public_loopback: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventing.auth.issuers._url", lambda address, allowed: yarl.URL(address))  # also http
    base = keys = ""
    async with AsyncExitStack() as stack:
        port, asked = await stack.enter_async_context(server(lambda path: {"issuer": base, "jwks_uri": keys}))
        _, inside = await stack.enter_async_context(server(lambda path: {"keys": []}, "127.0.0.2", port))
        base, keys = f"http://issuer.example:{port}", f"http://127.0.0.2:{port}/keys"
        with pytest.raises(IssuerUnreachable, match=r"127\.0\.0\.2, which is private"):
            await Discovery(lambda: frozenset({"127.0.0.2"}), resolve).fetch(base)

    assert (asked, inside) == ([DISCOVERY], [])
