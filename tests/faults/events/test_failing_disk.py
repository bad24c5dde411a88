"""A disk on which fsync fails: no event is acknowledged that may be lost, and the store is whole afterwards.

The failure is made by a library that is loaded before the C library (ld.so(8), LD_PRELOAD) and compiled here.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import aiohttp
import pytest

from clusters.base.objects import MODEL_EVENT
from eventing.objects.model_event import event_name
from serving.client.client import Client
from serving.client.state import LocalPlatform
from tests.faults.events.sender import Sender
from tests.platform.machine import Machine, machine
from tests.support.wait import eventually

SOURCE = "/training/disk"
REFUSED, TAKEN = 10, 5
FAILING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int fails(void) {
    const char *while_it_exists = getenv("FSYNC_FAILS_WHILE");
    return while_it_exists && access(while_it_exists, F_OK) == 0;
}

int fsync(int fd) {
    if (fails()) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
    if (fails()) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
"""


def break_disk(here: Machine) -> Path:
    """The platform's fsync fails while the file that is returned exists. Skips where nothing can be compiled."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to make fsync fail with")
    source, library, switch = (here.folder / name for name in ("failing.c", "failing.so", "fsync-fails"))
    source.write_text(FAILING)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    here.environment |= {"LD_PRELOAD": str(library), "FSYNC_FAILS_WHILE": str(switch)}
    return switch


async def status_of(sender: Sender, session: aiohttp.ClientSession, id: str) -> int:
    """Of one event; 0 without an answer. One that is refused for now says when to come back."""
    try:
        status, later = await sender.send(session, sender.event(id, {}, type="com.example.other"))
    except aiohttp.ClientError:
        return 0
    assert status != 503 or later
    return status


@pytest.mark.timeout(120)
@pytest.mark.fault("E10")
async def test_what_was_acknowledged_is_kept_and_nothing_is_while_fsync_fails(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        switch = break_disk(here)
        here.up()
        sender = Sender.allowed(here, SOURCE, "m*")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:

            async def is_taken() -> bool:
                return await status_of(sender, session, "first") == 202

            await eventually(is_taken)
            taken = ["first", *(f"t{number}" for number in range(TAKEN))]
            assert {await status_of(sender, session, one) for one in taken} == {202}
            switch.touch()
            refused = [await status_of(sender, session, f"r{number}") for number in range(REFUSED)]
            assert set(refused) == {503}, refused
            here.kill()
            switch.unlink()
            here.up()
            assert await status_of(sender, session, "t0") == 202
            found = Client(LocalPlatform.find(here.state)).list(MODEL_EVENT, "default")["items"]
            kept = {one["metadata"]["name"] for one in found}
            assert {event_name(SOURCE, one) for one in taken} <= kept
            assert {await status_of(sender, session, f"r{number}") for number in range(REFUSED)} == {202}
        here.run("down")
        assert here.processes() == []
