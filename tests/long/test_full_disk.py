"""A platform whose disk is full: nothing is promised that is not kept, what was promised is, and models answer."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from clusters.base.objects import MODEL_EVENT
from clusters.embedded.store.database import Database
from eventing.objects.model_event import event_name
from serving.types.settings.state import STORE_FILE
from tests.long.trainings import SOURCE, Trainings
from tests.platform.machine import Machine, machine
from tests.platform.test_life import Prober
from tests.support.mounts import MayNotMount
from tests.support.small_disk import fill, make_room, on_small_disk
from tests.support.wait import eventually

DISK = 24
"""MiB; a platform's own files take one."""
ROOM = 300 << 10
"""bytes left at first: some events are taken."""
REFUSALS = 20
MODELS = 2
SETTLED_WITHIN = 150.0
"""s; in a storm a Model is changed once a minute."""


@pytest.mark.timeout(400)
@pytest.mark.fault("E10", "C3")
def test_what_is_acknowledged_is_kept_and_all_else_is_refused_until_there_is_room(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    try:
        on_small_disk(state, DISK, lambda: asyncio.run(full_three_times(tmp_path)))
    except MayNotMount as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")


async def full_three_times(folder: Path) -> None:
    """Once the platform lives through it, once it is killed meanwhile, once it is ended."""
    with machine(folder) as here:
        here.up()
        here.run("deploy", "steady", "--uri", here.artifact("double"), "--min", "1")
        trainings, numbers = Trainings(here, MODELS), iter(range(1_000_000))
        async with probed(here) as prober, aiohttp.ClientSession() as session:
            fill(here.state, leave=ROOM)
            taken, refused = await until_refused(trainings, session, numbers)
            assert taken
            await eventually(lambda: says_ready(here, session, HTTPStatus.SERVICE_UNAVAILABLE))
            make_room(here.state)
            await all_heard(trainings, session, refused)
            await eventually(lambda: says_ready(here, session, HTTPStatus.OK))
            sent = [*taken, *refused]

            fill(here.state)
            taken, refused = await until_refused(trainings, session, numbers)
            sent += [*taken, *refused]
            here.kill()
            assert {event_name(SOURCE, str(number)) for number in (set(sent) - set(refused))} <= kept(here)
            assert "full" in here.up(code=1)
            make_room(here.state)
            here.up()
            await all_heard(trainings, session, refused)
        assert prober.failures == []
        await eventually(trainings.settled, SETTLED_WITHIN)
        trainings.check_effects(sent)
        fill(here.state)
        here.run("down")
        assert here.processes() == []
        make_room(here.state)
        here.up()
        here.run("wait", "steady")
        assert here.ask("steady", 2.0) == 4.0
        here.run("down")


@asynccontextmanager
async def probed(here: Machine) -> AsyncIterator[Prober]:
    """Somebody who asks all the time, until the end of the block."""
    prober = Prober(here.port, "steady")
    try:
        yield prober
    finally:
        await asyncio.to_thread(prober.stop)


async def until_refused(
    trainings: Trainings, session: aiohttp.ClientSession, numbers: Iterator[int]
) -> tuple[list[int], list[int]]:
    """Send events until some were refused; returns those that were taken, and those that were not."""
    taken: list[int] = []
    refused: list[int] = []
    while len(refused) < REFUSALS:
        number = next(numbers)
        status = await trainings.tell(session, number)
        assert status, "the platform is gone"
        (taken if status == HTTPStatus.ACCEPTED else refused).append(number)
    return taken, refused


async def all_heard(trainings: Trainings, session: aiohttp.ClientSession, numbers: list[int]) -> None:
    """Send these until each is acknowledged."""
    async with asyncio.timeout(30):
        await asyncio.gather(*(trainings.until_heard(session, number) for number in numbers))


async def says_ready(here: Machine, session: aiohttp.ClientSession, status: HTTPStatus) -> bool:
    """Whether /readyz answers so."""
    async with session.get(f"http://127.0.0.1:{here.control}/readyz") as answer:
        return answer.status == status


def kept(here: Machine) -> set[str]:
    """The names of the events in a copy of the file as the kill left it. Raises StoreError for one that is damaged."""
    copy = here.folder / "copy"
    copy.mkdir()
    for file in here.state.glob(f"{STORE_FILE}*"):
        shutil.copy(file, copy)
    database = Database.open(copy / STORE_FILE)
    try:
        return {row.key.name for row in database.load() if row.resource == MODEL_EVENT.resource}
    finally:
        database.close()
