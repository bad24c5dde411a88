"""What the control API refuses of a connection before it looks at any token: with raw sockets, plain and over TLS."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from msgspec.structs import replace

from serving.control_api import server
from tests.serving.control_api.conftest import TOKEN, Served

PATIENCE = 5.0  # s
WHOLE = f"GET /apis HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"


async def exchange(served: Served, data: bytes, tls: bool = False) -> bytes:
    """Everything that comes back until the server ends the connection."""
    context = ssl.create_default_context() if tls else None
    if context is not None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = served.tls_port if tls else served.port
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            writer.write(data)
            return await reader.read()
        finally:
            writer.close()


@pytest.mark.bad_input("framing-ambiguous", "framing-heads")
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Connection: close\r\n", 200),
        ("Host: evil.example\r\n", 400),
        (f"X-A: {'a' * 40_000}\r\n", 431),
        ("X-A: b\r\n" * 101, 431),
        ("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Connection: close\r\nOrigin: http://evil.example\r\nOrigin: http://localhost\r\n", 400),
        ("Connection: close\r\nAuthorization: Bearer other\r\n", 400),
    ],
)
async def test_heads_that_two_parties_could_read_differently_are_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch, headers: str, status: int, tls: bool
) -> None:
    monkeypatch.setattr(server, "LIMITS", replace(server.LIMITS, linger=0.05))  # TLS has no end of one direction
    answer = await exchange(served, f"{WHOLE}{headers}\r\n".encode(), tls)
    assert answer.startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.bad_input("framing-ambiguous")
async def test_a_target_in_absolute_form_is_refused(served: Served) -> None:
    answer = await exchange(served, WHOLE.replace("/apis", "http://localhost/apis", 1).encode() + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.bad_input("framing-heads")
@pytest.mark.parametrize("tls", [False, True])
async def test_a_caller_that_never_ends_its_head_is_cut_off(
    served: Served, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    monkeypatch.setattr(server, "LIMITS", replace(server.LIMITS, head_time=0.05, linger=0.05))
    assert (await exchange(served, b"GET /apis HTTP/1.1\r\nHost: loc", tls)).startswith(b"HTTP/1.1 408 ")


async def test_the_head_of_a_watch_comes_before_its_first_event(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(WHOLE.replace("/apis", "/apis/knodel.dev/v1alpha1/models?watch=1", 1).encode() + b"\r\n")
    async with asyncio.timeout(PATIENCE):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await writer.wait_closed()
