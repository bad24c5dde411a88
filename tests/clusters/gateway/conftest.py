"""A real Envoy on a free port, its files in the test's folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.clock import SystemClock
from clusters.gateway.envoy import Envoy
from tests.clusters.gateway.backends import free_port


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Envoy]:
    """A started gateway that nobody keeps running."""
    made = Envoy(tmp_path / "gateway", "127.0.0.1", free_port(), SystemClock())
    await made.start()
    try:
        yield made
    finally:
        await made.stop(grace=0.0)
