"""Test the usage of processes from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from loadtests.bench.processes import ProcessUsage, bytes_of, cpu_seconds, members_of, pss, stat_of, usage_of

WAITS = "print('up', flush=True); input()"
MARGIN = 1 << 20
"""Bytes by which the kernel's counters of one process may differ."""


def test_the_usage_of_a_process_has_memory_files_and_tasks() -> None:
    before = usage_of(os.getpid())
    with Path("/dev/null").open() as one, Path("/dev/null").open() as other:
        assert usage_of(os.getpid()).files == before.files + len((one, other))
    assert before.memory > 1 << 20 and before.tasks >= 1


def test_an_ended_process_has_no_usage() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert usage_of(process.pid) == ProcessUsage()
    assert (pss(process.pid), cpu_seconds(process.pid), stat_of(process.pid)) == (0, 0.0, None)


def test_memory_uses_the_requested_measure() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        shared, alone = usage_of(process.pid), usage_of(process.pid, pss)
        most = bytes_of(process.pid, "VmHWM")
        process.communicate(b"\n")
    assert (shared.files, shared.tasks) == (alone.files, alone.tasks) == (3, 1)
    assert 0 < alone.memory < shared.memory <= most + MARGIN


def test_usages_are_added() -> None:
    assert ProcessUsage(1, 2, 3) + ProcessUsage(10, 20, 30) == ProcessUsage(11, 22, 33)


def test_a_process_is_of_its_group_session_and_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE, start_new_session=True) as process:
        stat, members = stat_of(process.pid), list(members_of(process.pid))
        process.communicate(b"\n")
    assert stat is not None
    assert (stat.parent, stat.group, stat.session) == (os.getpid(), process.pid, process.pid)
    assert members == [process.pid]
