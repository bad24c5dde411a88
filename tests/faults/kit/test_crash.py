"""The countdown ends its process at the very write, before it or after it; the transcript has what was committed."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from clusters.base.objects import Key
from clusters.embedded.store.database import Database, Row
from tests.faults.kit.crash import (
    FOREVER,
    UNARMED,
    WHENS,
    Countdown,
    CrashingDatabase,
    When,
    countdown_of,
    read_transcript,
)

WRITES = 3


def write_all(path: Path) -> None:
    """As many transactions as `WRITES`, of an object each."""
    database = CrashingDatabase.open(path)
    for number in range(1, WRITES + 1):
        database.write([Row("things", Key("default", str(number)), b'{"kept": true}')], number)
    database.close()


def ended(work: Callable[[], None]) -> int:
    """Exit status of a process that does the work: negative for a signal."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    state = tmp_path / "state"
    state.mkdir()
    return state / "cluster.db"


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("write", range(1, WRITES + 1))
def test_the_process_dies_around_that_write_and_what_was_written_is_there(path: Path, write: int, when: When) -> None:
    countdown = Countdown(countdown_of(path.parent.parent))
    countdown.arm(write, when)

    assert ended(lambda: write_all(path)) == -signal.SIGKILL

    kept = write if when == "after" else write - 1
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM objects").fetchone() == (kept,)
    connection.close()
    told = list(read_transcript(path.parent.parent)) if kept else []
    assert [one.name for one in told] == [f"default/{number}" for number in range(1, kept + 1)]
    assert countdown.left == UNARMED


@pytest.mark.parametrize("left", [UNARMED, FOREVER, WRITES + 1])
def test_who_is_not_due_lives(path: Path, left: int) -> None:
    countdown = Countdown(countdown_of(path.parent.parent))
    countdown.arm(left)

    assert ended(lambda: write_all(path)) == 0
    assert countdown.left == max(UNARMED, left - WRITES)
    kept = Database.open(path)
    assert len(list(kept.load())) == WRITES
    kept.close()
