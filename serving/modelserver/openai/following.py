"""Follow what an engine in a process of its own is doing: readiness and statistics of the server."""

from __future__ import annotations

import asyncio
import math
from typing import Final

from serving.engines.upstream.remote import EngineState, RemoteEngine
from serving.engines.upstream.usage import TokenCounter
from serving.modelserver.base.stats import Stats
from serving.modelserver.execution.lifecycle import ModelLifecycle

PERIOD: Final = 0.25  # s


async def follow(engine: RemoteEngine, lifecycle: ModelLifecycle, stats: Stats) -> None:
    """Update `lifecycle` and `stats` until the task is cancelled."""
    while True:
        apply(engine.state, lifecycle, stats)
        await asyncio.sleep(PERIOD)


def count_tokens(engine: RemoteEngine, stats: Stats) -> None:
    """Count the tokens of the engine in `stats` from now on, after those of the engine before it.

    The tokens of the warm-up, which no caller asked for, do not count.
    """
    engine.tokens = stats.tokens = stats.tokens or TokenCounter()


def apply(state: EngineState, lifecycle: ModelLifecycle, stats: Stats) -> None:
    """Record the engine's state. The server is not ready while the engine takes no requests."""
    lifecycle.blocked_reason = state.reason
    load = state.load
    held = 0 if load.kv_share is None else math.ceil(load.kv_share * stats.slots)
    stats.set_engine(held=held, waiting=load.waiting, kv_share=load.kv_share)
    if state.lost:
        lifecycle.mark_device_lost()
