"""The garbage collector settings of long-lived processes."""

from __future__ import annotations

import asyncio
import gc

import pytest

from clusters.base.process_setup import EVERY, MIDDLE, SHARE, YOUNG, collect_rarely, freeze_loaded_objects
from tests.support.clock import SteppedClock


def test_what_is_there_is_spared_and_what_comes_is_looked_at_less_often() -> None:
    before = gc.get_threshold()
    try:
        freeze_loaded_objects()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (YOUNG, MIDDLE, before[2])
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


@pytest.mark.parametrize(("takes", "wait"), [(0.001, EVERY), (0.3, 0.3 / SHARE)])
async def test_full_collections_come_each_minute_or_as_seldom_as_their_share_of_the_time_wants(
    takes: float, wait: float
) -> None:
    clock, seen = SteppedClock(), list[None]()

    def collect() -> None:
        clock.step(takes)
        seen.append(None)

    task = asyncio.create_task(collect_rarely(clock, collect))
    try:
        await asyncio.sleep(0)
        numbers = []
        for seconds in (EVERY - 1.0, 1.0, wait - 1.0, 1.0):
            clock.step(seconds)
            for _ in range(3):
                await asyncio.sleep(0)
            numbers.append(len(seen))
        assert numbers == [0, 1, 1, 2]
    finally:
        task.cancel()
