"""The API server refuses or breaks off everything for a while; the controller waits, and catches up (K2)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from clusters.base.objects import LEASE
from tests.faults.controller.test_frozen_leader import all_run, deploy, versions
from tests.faults.controller.weather import BACK_AFTER, Kind, Weather
from tests.faults.kit.served import controller, served
from tests.support.replicas import until_ready
from tests.support.wait import eventually

BACK_WITHIN = 30.0
"""s after its return."""
FIRST_TRIES = 10
"""Of the back-off's first second, 20 ms after the first failure and twice as long after each; then fewer than one a
second come."""


@pytest.mark.fault("K2", shortened="away for 8 s, not 60 s")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["503", "429", "cut"])
async def test_an_api_server_that_is_away_is_waited_for_and_all_is_made_good(
    tmp_path: Path, kind: Kind, full: bool
) -> None:
    away, weather = 60.0 if full else 8.0, Weather()
    async with served(tmp_path, around=weather.around) as here, controller(here.kubeconfig, "only") as only:
        await until_ready(only)
        await eventually(only.leads)
        await deploy(here, 1)
        await all_run(here, 1)
        weather.kind = kind
        await deploy(here, 2)
        await asyncio.sleep(away)  # of the fault's essence
        assert set(await versions(here)) <= {1, 2}
        weather.kind = "fine"
        began = time.monotonic()
        await all_run(here, 2)
        assert time.monotonic() - began < BACK_WITHIN
        assert only.process.returncode is None
        assert here.transcript.went_back() == []
    weather.forget(LEASE.plural)
    assert weather.asked, "nothing was asked for: the weather was not bad"
    what, times = weather.most()
    assert times <= away + FIRST_TRIES, f"{what}: {times} times in {away} s"
    if kind == "429":
        assert weather.shortest_gap() >= BACK_AFTER * 0.95, what
