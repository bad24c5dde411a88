"""Settings out of a file that may change: a mounted ConfigMap is exchanged under a running process.

A change is taken over in place, without a restart and without giving up the lead: a replica that sees the file later
must not lead with the old settings meanwhile. A change that cannot be read is told in the log, and the former settings
stay in force.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from clusters.base.clock import Clock
from clusters.base.errors import KnodelError

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_EVERY = 5.0
"""s between two looks at the file's content: a mounted ConfigMap follows its object within a minute or so anyway."""


class ConfigFile(Generic[T]):
    """The value of a file; `read(text, where)` makes it, and raises KnodelError for a text that it does not take."""

    def __init__(self, path: Path | None, read: Callable[[str, str], T], clock: Clock) -> None:
        """`path` None stands for an empty file that never changes. Raises KnodelError."""
        self._path = path
        self._read = read
        self._clock = clock
        self._text = self._load()
        self.value = read(self._text, str(path))
        self.refused = 0

    async def changed(self) -> None:
        """Return once `value` is another one."""
        while True:
            await self._clock.sleep(LOOK_EVERY)
            if self._path is not None and self._take():
                return

    def _take(self) -> bool:
        try:
            text = self._load()
            if text == self._text:
                return False
            self._text = text
            value = self._read(text, str(self._path))
        except KnodelError as error:
            self.refused += 1
            log.error("the former settings stay in force: %s", error)
            return False
        former, self.value = self.value, value
        return value != former

    def _load(self) -> str:
        if self._path is None:
            return ""
        try:
            return self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise KnodelError(f"cannot read the settings {self._path}: {reason}") from error
