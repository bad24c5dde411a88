"""The oracle of resources: what it sees, and what it calls a leak."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.bench.processes import ProcessUsage
from tests.faults.kit.resources import FEW, SLACK, back_to_base, excess, holdings, zombies
from tests.support.wait import eventually

BASE = {"gateway": ProcessUsage(memory=100 << 20, files=50, tasks=20)}


@pytest.mark.parametrize(
    "after",
    [
        ProcessUsage(memory=(110 << 20) + SLACK + 1, files=50, tasks=20),
        ProcessUsage(memory=100 << 20, files=50 + 6, tasks=20),
        ProcessUsage(memory=100 << 20, files=50, tasks=20 + FEW + 1),
        ProcessUsage(),
    ],
)
def test_what_is_not_back_at_its_base_is_told(after: ProcessUsage) -> None:
    assert excess(BASE, {"gateway": after})


def test_what_is_about_as_before_is_no_leak() -> None:
    assert excess(BASE, {"gateway": ProcessUsage(memory=90 << 20, files=50 + FEW, tasks=20 - FEW)}) == []


async def test_a_zombie_is_found_and_counts_as_not_back(tmp_path: Path) -> None:
    script = "import subprocess, sys; child = subprocess.Popen(['true']); sys.stdin.read(); child.wait()"
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE)
    assert parent.stdin is not None
    try:
        (one,) = await eventually(lambda: zombies(tmp_path))
        assert one != parent.pid
        with pytest.raises(AssertionError, match="zombies"):
            await back_to_base(tmp_path, holdings(tmp_path), within=0.0)
    finally:
        parent.stdin.close()
        parent.wait()
    assert zombies(tmp_path) == []
