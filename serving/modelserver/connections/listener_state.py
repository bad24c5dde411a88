"""What all connections of a listener have in common."""

from __future__ import annotations

import asyncio


class Traffic:
    """`draining`: answers are the last ones; `requests` seen so far; `untaken` bytes of all answers.

    `all_gone` is set when no connection is left, if anybody waits for that.
    """

    def __init__(self) -> None:
        self.draining = False
        self.requests = 0
        self.untaken = 0
        self.all_gone: asyncio.Event | None = None
