"""Logs are looked at again and again, while their Pods come and go."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from clusters.embedded.kubelet.logs import LOOK_EVERY, LogRotator
from tests.support.clock import SteppedClock
from tests.support.wait import eventually


async def test_a_pod_that_goes_while_logs_are_listed_keeps_no_other_log_from_its_rotation(
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
    running = asyncio.create_task(LogRotator(tmp_path, clock, largest=5).run())
    try:
        await asyncio.sleep(0)
        clock.step(LOOK_EVERY)
        await eventually(lambda: running.done() or (tmp_path / "staying" / "model.log.1").exists())
        assert not running.done()
        assert not (tmp_path / "going").exists()
    finally:
        running.cancel()
