"""Only requests with the activator's own token count as the gateway's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.clusters.activator.backend import Backend
from tests.clusters.activator.conftest import TOKEN, Running

SPLIT = {"knative_serving_default_route": "true"}
HEADER = "knodel-internal-gateway"


@pytest.mark.parametrize("sent", [None, "", "forged", "of the pod"])
async def test_a_request_that_did_not_pass_the_gateway_gets_no_token(activator: Running, sent: str | None) -> None:
    async with Backend() as backend, await activator.caller() as caller:
        await activator.serve(replace(backend.endpoint, token="of the pod"))
        answer = await caller.post(b"x", knodel_internal_gateway=sent, **SPLIT)
        assert (answer.status, HEADER in backend.calls[-1].headers) == (200, False)


async def test_a_request_from_the_gateway_goes_on_with_the_endpoints_token(activator: Running) -> None:
    async with Backend() as backend, await activator.caller() as caller:
        endpoint = replace(backend.endpoint, token="of the pod")
        await activator.serve(endpoint)
        answer = await caller.post(b"x", knodel_internal_gateway=TOKEN, **SPLIT)
        assert backend.calls[-1].headers[HEADER] == "of the pod"
        assert TOKEN not in backend.calls[-1].head.decode()
        assert not any("of the" in value for value in answer.headers.values())

        await activator.serve(replace(endpoint, token="of its successor"))  # another Pod has the port
        await caller.post(b"x", knodel_internal_gateway=TOKEN, **SPLIT)
        assert backend.calls[-1].headers[HEADER] == "of its successor"
