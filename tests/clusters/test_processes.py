"""Processes that outlive the process that started them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clusters.base import processes
from clusters.base.identity import Identity, identify, is_running
from tests.support.wait import eventually

WAITS = "import signal; print('ready', flush=True); signal.pause()"
IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"


def start(folder: Path, script: str) -> Identity:
    return processes.start_detached([sys.executable, "-c", script], log=folder / "log", cwd=folder)


async def started(folder: Path, script: str) -> Identity:
    """A process that runs `script`, once it has said so."""
    identity = start(folder, script)
    await eventually(lambda: "ready" in (folder / "log").read_text())
    return identity


async def test_it_leads_a_session_of_its_own_and_writes_to_its_log(tmp_path: Path) -> None:
    identity = await started(tmp_path, WAITS)
    assert is_running(identity)
    assert os.getsid(identity.pid) == identity.pid
    await processes.terminate(identity, grace=5.0)
    assert not is_running(identity)


async def test_who_does_not_heed_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    identity = await started(tmp_path, IGNORES)
    await processes.terminate(identity, grace=0.05)
    assert identify(identity.pid) is None


async def test_its_end_is_seen_and_it_is_reaped(tmp_path: Path) -> None:
    identity = await started(tmp_path, WAITS)
    waiting = asyncio.create_task(processes.wait_ended(identity))
    processes.send_signal(identity, signal.SIGKILL)
    await waiting
    with pytest.raises(ProcessLookupError):
        os.kill(identity.pid, 0)
    await processes.wait_ended(identity)
    await processes.terminate(identity, grace=0.0)


async def test_another_process_with_the_pid_is_left_alone(tmp_path: Path) -> None:
    identity = await started(tmp_path, WAITS)
    stranger = Identity(identity.pid, identity.start_ticks + 1)
    assert not is_running(stranger)
    assert not processes.send_signal(stranger, signal.SIGKILL)
    await processes.wait_ended(stranger)
    assert is_running(identity)
    await processes.terminate(identity, grace=5.0)


async def test_a_record_finds_the_process_while_it_runs(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    assert processes.read_record(record) is None
    identity = await started(tmp_path, WAITS)
    processes.write_record(record, processes.ProcessRecord(identity, "1"))
    assert processes.read_record(record) == processes.ProcessRecord(identity, "1")
    await processes.terminate(identity, grace=5.0)
    assert processes.read_record(record) is None
    record.write_text("{")
    assert processes.read_record(record) is None


async def test_a_record_in_a_copied_folder_and_one_of_another_boot_are_none(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    identity = await started(original, WAITS)
    processes.write_record(original / "record.json", processes.ProcessRecord(identity))
    shutil.copytree(original, copy)
    before = processes.ProcessRecord(replace(identity, boot="00000000-0000-0000-0000-000000000000"))
    processes.write_record(tmp_path / "before.json", before)

    assert processes.read_record(copy / "record.json") is None
    assert processes.read_record(tmp_path / "before.json") is None
    assert not processes.send_signal(before.identity, signal.SIGKILL)
    original.rename(tmp_path / "moved")
    assert processes.read_record(tmp_path / "moved" / "record.json") == processes.ProcessRecord(identity)
    (tmp_path / "link").symlink_to(tmp_path / "moved")
    assert processes.read_record(tmp_path / "link" / "record.json") == processes.ProcessRecord(identity)
    await processes.terminate(identity, grace=5.0)


async def test_one_that_ends_at_once_is_no_running_process(tmp_path: Path) -> None:
    identity = start(tmp_path, "raise SystemExit(3)")
    await processes.wait_ended(identity)
    assert not is_running(identity)
    with pytest.raises(ProcessLookupError):
        os.kill(identity.pid, 0)
