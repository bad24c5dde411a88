"""The scenarios of CloudEvents' conformance suite for HTTP, read from its Go module, against the real application."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from tests.eventing.issuer import AUTH, Issuer
from tests.eventing.webhook import Webhook, ask, event_source
from tests.long.feature import Scenario, scenarios
from tests.support.clock import SteppedClock
from tests.testbed import golang

MODULE = "github.com/cloudevents/conformance@v0.2.0"
FEATURE = "features/http-protocol-binding.feature"


@pytest.fixture(scope="module")
def feature() -> str:
    """The feature file, out of the module cache, which a first run fills."""
    said = json.loads(golang.run("mod", "download", "-json", MODULE))
    return (Path(said["Dir"]) / FEATURE).read_text()


async def test_every_scenario_of_the_http_binding_passes(feature: str) -> None:
    found = list(scenarios(feature))

    assert len(found) == 4
    for scenario in found:
        await _run(scenario)


async def _run(scenario: Scenario) -> None:
    blocks = {step.text: step for step in scenario.steps}
    head, _, body = blocks["an HTTP request"].block.partition("\n\n")
    request, *lines = head.splitlines()
    method = request.split(" ")[0]
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    clock = SteppedClock()
    issuer = Issuer(clock)
    webhook = Webhook(sources=[event_source(source="/mycontext/*", auth=AUTH)], clock=clock, issuers=issuer)

    token = ("authorization", f"Bearer {issuer.token()}")
    reply = await ask(webhook.app, method, "/events", [*headers, token], [body.encode()])

    assert reply.status == 202, (scenario.name, reply.body)
    [entry] = webhook.ledger.entries.values()
    event = entry.event
    expected = {key: value for key, value in blocks["the attributes are:"].table[1:]}  # noqa: C416 - rows are lists
    assert expected.pop("specversion") == "1.0"
    assert event.time == datetime.fromisoformat(expected.pop("time"))
    assert {name: getattr(event, name) for name in expected} == expected
    assert event.data == json.loads(blocks["the data is equal to the following JSON:"].block)
