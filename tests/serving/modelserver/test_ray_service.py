"""A Ray Serve elsewhere behind the model server: paths and bodies as they are, within slots, deadlines and metrics."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from serving.control_api.tls import ensure_certificate
from serving.engines.base.errors import LoadFailed
from serving.engines.ray import service
from serving.engines.upstream.client import Address, tls_context
from serving.engines.upstream.remote import EngineState
from tests.serving.modelserver.client import ask, request
from tests.serving.modelserver.conftest import Running, Serve
from tests.support.ray_service import Application, ray_service
from tests.support.wait import eventually

ALLOWED = {"KNODEL_ALLOW_HOSTS": "127.0.0.1"}


@pytest.fixture
def application() -> Application:
    """The application behind `front`."""
    return Application("1")


@pytest.fixture
async def front(serve: Serve, application: Application, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A model server with two slots, and a queue of one, in front of the service."""
    monkeypatch.setattr(service, "READ_PERIOD", 0.02)
    monkeypatch.setattr(service, "SILENT", 0.1)
    with ray_service(application) as url:
        options = ("--storage-uri", f"ray+{url}", "--format", "ray", "--slots", "2", "--queue", "1", "--timeout", "2")
        yield await serve(b"", *options, **ALLOWED)
        application.released.set()


async def test_requests_are_passed_on_below_the_prefix_with_their_headers_and_bodies(front: Running) -> None:
    answer = await front.post(b"\x00\xff", "/x/%C3%A4?a=b%20c&a=d", **{"X-Tenant": "7", "Authorization": "Bearer mine"})
    assert answer.status == 200
    told: dict[str, Any] = answer.json
    assert (told["method"], told["path"], told["body"]) == ("POST", "/rank/x/%C3%A4?a=b%20c&a=d", "\x00\xff")
    assert (told["headers"]["x-tenant"], told["headers"]["authorization"]) == ("7", "Bearer mine")
    assert told["headers"]["host"].startswith("127.0.0.1:")
    assert not [name for name in told["headers"] if "key" in name]
    assert answer.headers["x-application"] == "1"
    assert (await front.get("/")).json["path"] == "/rank/"


async def test_headers_of_the_connection_are_not_passed_on(front: Running) -> None:
    answer = await front.get("/x", **{"Connection": "x-hop, close", "X-Hop": "1", "X-Tenant": "7"})
    told = answer.json["headers"]
    assert ("x-hop" in told, told["x-tenant"]) == (False, "7")


@pytest.mark.parametrize("path", ["/../other", "/x/%2e%2E/other", "/x%2f..%2fother", "/."])
async def test_a_path_does_not_leave_the_prefix(front: Running, path: str) -> None:
    answer = await front.get(path)
    assert (answer.status, "segment" in answer.body.decode()) == (400, True)


async def test_a_connection_that_is_not_answered_ends_with_the_request(
    front: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent, ExitStack() as pending:
        for _ in range(4):  # the kernel answers no more connections once its queue is full
            one = pending.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(silent.getsockname())
        nowhere = EngineState(Address(Path(), "", silent.getsockname()[1], prefix="/rank"), "")
        monkeypatch.setattr(service.ServiceEngine, "state", property(lambda _: nowhere))
        assert (await front.get("/x")).status == 504

        async def free() -> bool:
            return bool((await front.stats())["active"] == 0)

        await eventually(free)


async def test_a_stream_is_passed_on(front: Running) -> None:
    answer = await front.get("/events")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.body == b"data: 1\n\ndata: 2\n\n"


async def test_errors_of_the_application_are_the_callers_and_count(front: Running, application: Application) -> None:
    application.status = 500
    assert (await front.get("/x")).status == 500
    application.status = 404
    assert (await front.get("/x")).status == 404
    page = (await ask(front.management_port, request("GET", "/metrics"))).body.decode()
    counted = [line for line in page.splitlines() if line.startswith("knodel_requests_total")]
    assert {line.partition('code="')[2][:3]: line.split()[-1] for line in counted} == {"500": "1", "404": "1"}


async def test_slots_queue_and_deadline_are_those_of_the_model(front: Running, application: Application) -> None:
    inside = [asyncio.create_task(front.get("/slow")) for _ in range(2)]

    async def both_are_inside() -> bool:
        return bool((await front.stats())["active"] == 2)

    await eventually(both_are_inside)
    queued = asyncio.create_task(front.get("/x"))

    async def one_waits() -> bool:
        return bool((await front.stats())["queued"] == 1)

    await eventually(one_waits)
    refused = await front.get("/x")
    assert (refused.status, "retry-after" in refused.headers) == (429, True)
    assert [answer.status for answer in await asyncio.gather(*inside)] == [504, 504]
    assert (await queued).status in (200, 504)  # the deadline of all three passes at about the same time
    application.released.set()
    assert (await front.get("/x")).status == 200


async def test_a_caller_that_leaves_frees_the_slot(front: Running, application: Application) -> None:
    caller = await front.connect()
    await caller.send(request("GET", "/slow"))
    assert await asyncio.to_thread(application.waiting.acquire, timeout=10)
    caller.reset()

    async def free() -> bool:
        return bool((await front.stats())["active"] == 0)

    await eventually(free)


async def test_a_service_with_tls_must_have_a_certificate_of_its_name(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, certificate, key = ensure_certificate(tmp_path / "tls", datetime.now(UTC))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    monkeypatch.setattr(service, "START_TIMEOUT", 0.0)
    tls_context.cache_clear()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ray_service(Application("1"), tls=context) as url:
        named = url.replace("127.0.0.1", "localhost")
        running = await serve(b"", "--storage-uri", f"ray+{named}", "--format", "ray", KNODEL_ALLOW_HOSTS="localhost")
        assert (await running.get("/x")).json["headers"]["host"] == named.split("/")[2]
        monkeypatch.delenv("SSL_CERT_FILE")
        tls_context.cache_clear()
        with pytest.raises(LoadFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await serve(b"", "--storage-uri", f"ray+{named}", "--format", "ray", KNODEL_ALLOW_HOSTS="localhost")
    tls_context.cache_clear()


async def test_the_replica_is_ready_only_while_the_service_serves(front: Running, application: Application) -> None:
    assert (await front.get("/v2/health/ready")).status == 200
    application.healthy = False

    async def has(status: int) -> bool:
        return (await front.get("/v2/health/ready")).status == status

    await eventually(lambda: has(503))
    refused = await front.get("/x")
    assert (refused.status, "does not serve" in refused.body.decode()) == (503, True)
    assert (await front.get("/v2/health/live")).status == 200
    application.healthy = True
    await eventually(lambda: has(200))
    assert (await front.get("/x")).status == 200
