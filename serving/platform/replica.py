"""What the processes have in common that serve HTTP on Kubernetes without a leader: the webhook and the router."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from clusters.runtime.manager.options import LARGEST_PORT, InvalidOptions


async def until_stopped(stop: asyncio.Event, watching: asyncio.Task[None]) -> None:
    """Wait for `stop`. Raises the error of `watching` if that ends first."""
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((stopped, watching), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if watching.done():
        watching.result()


def port_of(environ: Mapping[str, str], default: int) -> int:
    """Return the port in the variable PORT, or `default`. Raises InvalidOptions."""
    text = environ.get("PORT") or str(default)
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_PORT):
        raise InvalidOptions(f"PORT={text[:80]!r}: a port is a number from 0 (any free one) to {LARGEST_PORT}")
    return int(text)
