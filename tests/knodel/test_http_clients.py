"""HTTP clients of the caller, of httpx and httpx2, that send the inference requests."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import pytest

import knodel
from tests.knodel.test_transports import ANSWER, METADATA


def answers(request: Any) -> tuple[int, object]:
    return 200, ANSWER if request.url.path.endswith("/infer") else METADATA


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_client_of_the_caller_sends_inference_requests(library: Any) -> None:
    seen = []

    def handle(request: Any) -> Any:
        seen.append(request)
        status, value = answers(request)
        return library.Response(status, json=value)

    with library.Client(transport=library.MockTransport(handle), headers={"X-Mine": "1"}) as mine:
        with knodel.Client("http://models/models/m", api_key="k", http_client=mine) as client:
            assert client.predict("m", [1.0]).to_numpy().tolist() == [2.0]
        assert not mine.is_closed
    assert {request.headers["authorization"] for request in seen} == {"Bearer k"}
    assert seen[-1].headers["x-mine"] == "1"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        _, value = answers(SimpleNamespace(url=SimpleNamespace(path=scope["path"])))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(value).encode()})

    async def call() -> None:
        for transport in (library.ASGITransport(app), library.MockTransport(handle)):
            async with (
                library.AsyncClient(transport=transport) as mine,
                knodel.AsyncClient("http://models/models/m", http_client=mine) as client,
            ):
                assert (await client.predict("m", [1.0])).to_numpy().tolist() == [2.0]

    asyncio.run(call())


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_errors_of_a_client_of_the_caller_are_translated(library: Any) -> None:
    def fail(request: Any) -> Any:
        raise library.ReadError("cut")

    with library.Client(transport=library.MockTransport(fail)) as mine:
        client = knodel.Client("http://models/models/m", http_client=mine, retries=0)
        with pytest.raises(knodel.Unreachable, match=r"the server at models:80 does not respond \(cut\)"):
            client.predict("m", [1.0])


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_client_of_the_caller_that_raises_or_is_closed(library: Any) -> None:
    def check(answer: Any) -> None:
        answer.raise_for_status()

    refusing = library.MockTransport(lambda _: library.Response(400, json={"error": "bad"}))
    with library.Client(transport=refusing, event_hooks={"response": [check]}) as mine:
        client = knodel.Client("http://models/models/m", http_client=mine)
        with pytest.raises(knodel.KnodelError, match="http_client raised HTTP 400 of the server at models:80") as seen:
            client.predict("m", [1.0])
        assert not isinstance(seen.value, knodel.Unreachable)
    with pytest.raises(knodel.Invalid, match="http_client is closed: give an open one"):
        client.predict("m", [1.0])


def test_a_client_of_the_wrong_kind_is_refused() -> None:
    with httpx2.Client() as mine, pytest.raises(knodel.Invalid, match="not an AsyncClient of httpx2"):
        knodel.AsyncClient(http_client=mine)
    with pytest.raises(knodel.Invalid, match=r"not a Client of httpx2: give one, or use knodel\.AsyncClient"):
        knodel.Client(http_client=httpx2.AsyncClient())
