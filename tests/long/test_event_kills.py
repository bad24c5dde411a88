"""Ten thousand events while the platform is killed at random moments: none is missed, none has two effects."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from tests.long.trainings import Trainings
from tests.platform.machine import KNODEL, Machine, machine
from tests.support.wait import eventually

EVENTS = 10_000
MODELS = 2
SENDERS = 16
KILLS = 12
LIVES = (0.0, 4.0)
"""s from the first acknowledgement of a platform to its kill, at random between these."""
STARTS = (0.2, 2.0)
"""s from its start to its kill, of every `STILLBORN`th."""
STILLBORN = 4
FIRST_WITHIN = 60.0
"""s from a platform's start to its first acknowledgement; a second on a quiet machine."""
ACCEPTED = HTTPStatus.ACCEPTED
SETTLED_WITHIN = 150.0
"""s; at the end of a storm a Model is changed once a minute."""


@pytest.mark.timeout(600)
@pytest.mark.fault("E3")
async def test_none_is_missed_and_none_has_two_effects(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        trainings = Trainings(here, MODELS)
        sending = asyncio.create_task(send_all(trainings))
        here.kill()
        kills = 1 + await kill_at_random(here, trainings, sending, random.Random(7))
        await asyncio.to_thread(here.up)
        await sending
        await eventually(trainings.settled, SETTLED_WITHIN)

        assert kills >= KILLS
        assert trainings.answers[ACCEPTED] >= EVENTS
        await asyncio.to_thread(trainings.check_effects, range(EVENTS))
        here.run("down")
        assert here.processes() == []


async def send_all(trainings: Trainings) -> None:
    """Several senders, each an event after the other, every one until it is acknowledged."""
    waiting = iter(range(EVENTS))
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for _ in range(SENDERS):
            group.create_task(send(trainings, session, waiting))


async def send(trainings: Trainings, session: aiohttp.ClientSession, numbers: Iterator[int]) -> None:
    """One sender."""
    for number in numbers:
        await trainings.until_heard(session, number)


async def kill_at_random(
    here: Machine, trainings: Trainings, sending: asyncio.Task[None], chance: random.Random
) -> int:
    """Start the platform and kill it until all is sent, and often in any case; returns how often."""
    kills = 0
    ports = ("--port", str(here.port), "--control-port", str(here.control))
    with (here.folder / "platforms.log").open("wb") as log:
        while kills < KILLS - 1 or not sending.done():
            platform = subprocess.Popen([*KNODEL, "up", *ports], env=here.environment, stdout=log, stderr=log)
            if kills % STILLBORN == STILLBORN - 1:
                await asyncio.sleep(chance.uniform(*STARTS))
            else:
                await heard_again(trainings, sending)
                await asyncio.sleep(chance.uniform(*LIVES))
            assert platform.poll() is None, (here.folder / "platforms.log").read_text()
            platform.kill()
            await asyncio.to_thread(platform.wait)
            kills += 1
    return kills


async def heard_again(trainings: Trainings, sending: asyncio.Task[None]) -> None:
    """Return once one more event is acknowledged, or all are."""
    before = trainings.answers[ACCEPTED]
    await eventually(lambda: trainings.answers[ACCEPTED] > before or sending.done(), FIRST_WITHIN)
