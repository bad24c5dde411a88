"""Test when `knodel wait` ends: at a failure that only a change of the Model can mend, not at a crash that recovers."""

from __future__ import annotations

import asyncio

import pytest

from clusters.base.objects import Object
from serving.client.models.waiting import has_failed
from serving.types.lifecycle import CONFIGURATIONS_READY, OBJECTS_APPLIED, READY, RECOVERING, ROUTES_READY
from tests.serving.cli.conftest import Served

GOOD, STARTS, CRASHED = ("True", ""), ("Unknown", "Deploying"), ("False", RECOVERING)
FAILED, REFUSED, MISSING = ("False", "ExitCode1"), ("False", "NotOwned"), ("False", "RevisionMissing")
State = tuple[str, str]


def conditions(applied: State, configurations: State, routes: State) -> list[Object]:
    """Return the conditions with Ready, derived as in `Lifecycle`: the first False one, else the first not True."""
    states = (applied, configurations, routes)
    ready = next((one for status in ("False", "Unknown") for one in states if one[0] == status), GOOD)
    names = (OBJECTS_APPLIED, CONFIGURATIONS_READY, ROUTES_READY, READY)
    return [
        {"type": name, "status": status, "reason": reason, "message": "magika-00001: said"}
        for name, (status, reason) in zip(names, (*states, ready), strict=True)
    ]


@pytest.mark.parametrize(
    ("states", "ready_failed", "routes_failed"),
    [
        ((GOOD, GOOD, GOOD), False, False),
        ((GOOD, STARTS, STARTS), False, False),
        ((GOOD, FAILED, GOOD), True, False),
        ((GOOD, STARTS, MISSING), False, True),
        ((GOOD, GOOD, MISSING), True, True),
        ((GOOD, CRASHED, GOOD), False, False),
        ((GOOD, CRASHED, MISSING), False, False),
        ((REFUSED, STARTS, STARTS), True, False),
        ((REFUSED, CRASHED, MISSING), True, True),
    ],
)
def test_only_what_stays_false_has_failed(
    states: tuple[State, State, State], ready_failed: bool, routes_failed: bool
) -> None:
    model: Object = {"status": {"conditions": conditions(*states)}}

    assert (has_failed(model, READY), has_failed(model, ROUTES_READY)) == (ready_failed, routes_failed)


async def test_a_crash_of_a_ready_model_ends_no_waiting_but_that_of_time(served: Served) -> None:
    await served.deploy("magika")
    await served.set_status("magika", {"conditions": conditions(GOOD, CRASHED, MISSING)})

    late = await served.knodel("wait", "magika", "--timeout", "0.1s")
    waiting = asyncio.ensure_future(served.knodel("wait", "magika", "--timeout", "30s"))
    await served.set_status("magika", {"conditions": conditions(GOOD, GOOD, GOOD)})

    assert late.code == 4
    assert f"{RECOVERING}: magika-00001: said" in late.err
    assert (await waiting).code == 0
