"""Log rotation, and the removal of logs of deleted Pods."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from clusters.embedded.kubelet.log_rotation import MONITOR_INTERVAL, REMOVE_EVERY, LogRotator, remove_ended
from clusters.embedded.kubelet.process.folders import ENDED
from serving.platform.platform import LOGS
from tests.support.clock import SteppedClock
from tests.support.wait import eventually


async def test_a_folder_removed_during_the_listing_does_not_prevent_other_rotations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("going", "staying"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.log").write_bytes(b"x" * 10)
    listed = os.scandir

    def scandir(path: Any = ".") -> Any:
        if str(path).endswith("going"):
            shutil.rmtree(tmp_path / "going", ignore_errors=True)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    clock = SteppedClock()
    running = asyncio.create_task(LogRotator(tmp_path, clock, max_size=5).run())
    try:
        await asyncio.sleep(0)
        clock.step(MONITOR_INTERVAL)
        await eventually(lambda: running.done() or (tmp_path / "staying" / "model.log.1").exists())
        assert not running.done()
        assert not (tmp_path / "going").exists()
    finally:
        running.cancel()


@pytest.mark.parametrize(
    ("bounds", "left"),
    [
        ({}, {"1", "2", "3", "lives"}),
        ({"age": 15.0}, {"3", "lives"}),
        ({"size": 250}, {"2", "3", "lives"}),
        ({"number": 1}, {"3", "lives"}),
    ],
)
def test_logs_of_deleted_pods_are_removed_by_age_size_and_number_oldest_first(
    tmp_path: Path, bounds: dict[str, Any], left: set[str]
) -> None:
    for name in ("1", "2", "3", "lives"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.log").write_bytes(b"x" * 100)
        if name != "lives":
            (tmp_path / name / ENDED).touch()
            os.utime(tmp_path / name / ENDED, (0, int(name) * 10))
    (tmp_path / "not a folder").touch()

    remove_ended(tmp_path, 40.0, **bounds)

    assert {one.name for one in tmp_path.iterdir() if one.is_dir()} == left


async def test_a_rotator_removes_logs_of_pods_deleted_a_day_ago(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / ENDED).touch()
    os.utime(tmp_path / "old" / ENDED, (0, 0))
    clock = SteppedClock()
    running = asyncio.create_task(LogRotator(tmp_path, clock).run())
    try:
        for _ in range(REMOVE_EVERY):
            await asyncio.sleep(0)
            clock.step(MONITOR_INTERVAL)
            await asyncio.sleep(0.05)
        await eventually(lambda: not (tmp_path / "old").exists())
    finally:
        running.cancel()


async def test_logs_of_the_platform_and_its_processes_are_rotated(tmp_path: Path) -> None:
    names = ["platform.log", "gateway/envoy.log", "activator/activator.out", "zygotes/abc/zygote.log"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 10)
    (tmp_path / "gateway" / "access.log").write_bytes(b"x" * 10)  # Envoy's log is rotated by renaming
    clock = SteppedClock()
    running = asyncio.create_task(LogRotator(tmp_path, clock, patterns=LOGS, max_size=5, rotated=1).run())
    try:
        await asyncio.sleep(0)
        clock.step(MONITOR_INTERVAL)
        await eventually(lambda: all((tmp_path / name).stat().st_size == 0 for name in names))
        assert all((tmp_path / f"{name}.1").read_bytes() == b"x" * 10 for name in names)
        assert (tmp_path / "gateway" / "access.log").stat().st_size == 10
    finally:
        running.cancel()
