"""A real gateway for a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from clusters.base.clock import SystemClock
from clusters.gateway.envoy import Envoy
from tests.support.ports import free_port


@asynccontextmanager
async def started_gateway(folder: Path) -> AsyncIterator[Envoy]:
    """Envoy on a free port of loopback, which nobody keeps running; it ends with the block."""
    made = Envoy(folder, "127.0.0.1", free_port(), SystemClock())
    await made.start()
    try:
        yield made
    finally:
        await made.stop(grace=0.0)
