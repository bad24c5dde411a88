"""The last request against zero, at random, with and without a warm pool. By hand with more: `tests.platform.zero`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.platform.machine import machine
from tests.platform.zero import SHOWN, Races, Tally

SCHEDULES = 20  # twice; `make races` runs 10 000
MODELS = 10
MEMBERS = 3
LIMIT = 120.0  # s; they take 4 on a quiet machine


@pytest.mark.fault("A10", shortened="20 schedules twice, not 10 000")
@pytest.mark.timeout(420)
def test_no_request_is_lost_when_it_races_the_end_of_the_last_replica(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        races = Races(here, MODELS)
        races.deploy()
        cold = asyncio.run(races.run(SCHEDULES, LIMIT))
        races.pool(MEMBERS)
        warm = asyncio.run(races.run(SCHEDULES, LIMIT))

    for tally in (cold, warm):
        assert tally.failures[:SHOWN] == []
        assert tally.schedules == SCHEDULES or tally.seconds >= LIMIT
        assert _raced(tally)
    assert warm.found["claim"] > 0


def _raced(tally: Tally) -> bool:
    """Whether the schedules met models that were up, and such that were not."""
    away = tally.found["start"] + tally.found["claim"]
    return tally.found["ready"] > 0 and away > 0
