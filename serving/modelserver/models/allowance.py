"""What a model may take of the time in which no other one can be loaded."""

from __future__ import annotations

import time
from typing import TypeVar

from serving.modelserver.base.errors import NotReady
from serving.modelserver.execution.workers import Job, Workers

T = TypeVar("T")


class TookTooLong(NotReady):
    """A thread is left alone that was to do something for a model."""


class Allowance:
    """`seconds` for all that threads of `workers` do to load the model `name`. What takes longer is left alone."""

    def __init__(self, workers: Workers, name: str, seconds: float) -> None:
        self.spent = 0.0  # s
        self._workers = workers
        self._name = name
        self._seconds = seconds

    async def do(self, job: Job[T]) -> T:
        """The result of `job`. Raises TookTooLong when the time is over, NotReady, and as the job does."""
        late = TookTooLong(
            f"model {self._name!r} was not loaded within {self._seconds:g} s: "
            "see what its store or its code waits for, or raise --load-timeout"
        )
        begun = time.monotonic()
        try:
            return await self._workers.within(self._seconds - self.spent, job, late)
        finally:
            self.spent += time.monotonic() - begun
