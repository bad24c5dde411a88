"""Test random schedules of a last request against scale to zero, with and without a warm pool.

`python -m tests.platform.zero` runs more of them.
"""

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
def test_no_request_fails_while_the_last_replica_stops(tmp_path: Path) -> None:
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
    """Return whether some schedules found ready models, and some did not."""
    away = tally.found["start"] + tally.found["claim"]
    return tally.found["ready"] > 0 and away > 0
