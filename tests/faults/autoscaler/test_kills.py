"""The autoscaler is killed under load, with its platform, and comes back to more than one busy replica: fault A1."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.faults.autoscaler.busy import CALLERS, NAME, deploy, grown, watched
from tests.faults.kit.callers import calling
from tests.platform.machine import machine

STABLE_WINDOW = 60.0  # s
SHORT = 15.0  # s: more than the panic window (6 s), and than the first readings of the new process take
PROBES = 400


@pytest.mark.timeout(240)
@pytest.mark.fault("A1", shortened="watched for 15 s after the restart, not a stable window of 60 s")
async def test_a_killed_autoscaler_asks_for_no_fewer_replicas_when_it_is_back(tmp_path: Path, full: bool) -> None:
    with machine(tmp_path) as here:
        await asyncio.to_thread(here.up)
        await deploy(here)
        async with calling(here.port, NAME, CALLERS) as calls:
            before = await grown(here)
            here.kill()
            await asyncio.to_thread(here.up)
            seen = await watched(here, STABLE_WINDOW if full else SHORT)
        assert min(seen) >= before > 1, seen
        assert calls.failures == []
        assert calls.answered >= PROBES
