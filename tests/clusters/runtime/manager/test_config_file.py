"""Settings from a file that changes while the process runs."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from clusters.base.errors import KnodelError
from clusters.runtime.manager.config_file import READ_EVERY, ConfigFile
from tests.support.clock import SteppedClock
from tests.support.wait import eventually


def read(text: str, where: str) -> int:
    """A number."""
    try:
        return int(text)
    except ValueError as error:
        raise KnodelError(f"{where}: {text!r} is no number") from error


async def look(clock: SteppedClock) -> None:
    """Let the watcher look once."""
    await asyncio.sleep(0)
    clock.step(READ_EVERY)
    for _ in range(5):
        await asyncio.sleep(0)


async def test_another_value_is_told_and_the_same_is_not(tmp_path: Path) -> None:
    clock, file = SteppedClock(), tmp_path / "config"
    file.write_text("1")
    config = ConfigFile(file, read, clock)
    changed = asyncio.create_task(config.changed())
    file.write_text(" 1 ")
    await look(clock)
    assert not changed.done()

    file.write_text("2")
    await look(clock)

    await asyncio.wait_for(changed, 1)
    assert config.value == 2


async def test_a_file_that_cannot_be_read_leaves_the_former_value_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, file = SteppedClock(), tmp_path / "config"
    file.write_text("1")
    config = ConfigFile(file, read, clock)
    changed = asyncio.create_task(config.changed())
    with caplog.at_level(logging.ERROR):
        file.write_text("one")
        await look(clock)
        await look(clock)
        file.unlink()
        await look(clock)

    assert not changed.done()
    assert (config.value, config.refused) == (1, 2)
    assert "the former settings remain in force" in caplog.text
    file.write_text("3")
    await look(clock)
    await asyncio.wait_for(changed, 1)
    assert config.value == 3


def test_at_the_start_a_bad_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(KnodelError, match="cannot read the settings /nowhere"):
        ConfigFile(Path("/nowhere"), read, SteppedClock())
    (tmp_path / "config").write_text("x")
    with pytest.raises(KnodelError, match="'x' is no number"):
        ConfigFile(tmp_path / "config", read, SteppedClock())


async def test_no_file_is_an_empty_one_that_never_changes() -> None:
    clock = SteppedClock()
    config = ConfigFile(None, lambda text, _: text, clock)
    changed = asyncio.create_task(config.changed())
    await look(clock)

    assert config.value == ""
    assert not changed.done()
    changed.cancel()
    await eventually(lambda: _done(changed))


async def _done(task: asyncio.Task[None]) -> bool:
    return task.done()
