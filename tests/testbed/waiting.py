"""Waiting for something of the machine: polled, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.testbed.errors import TestbedError

INTERVAL: Final = 0.05  # s between two looks: short against any start, nothing for the processor


def becomes(condition: Callable[[], bool], timeout: float, interval: float = INTERVAL) -> bool:
    """Whether `condition` comes true within `timeout` seconds; it is looked at once at least."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(interval)
    return True


def until(what: str, condition: Callable[[], bool], timeout: float, interval: float = INTERVAL) -> None:
    """Return once `condition` is true. Raises TestbedError, naming `what` was awaited, after `timeout` seconds."""
    if not becomes(condition, timeout, interval):
        raise TestbedError(f"{what}: not within {timeout:g} s")
