"""Settings from a file that may change, such as a mounted ConfigMap.

A change is applied without a restart and without a loss of leadership. Otherwise a replica that reads the file later
could lead with the old settings. An invalid change is logged, and the former settings remain in force.
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

READ_EVERY = 5.0
"""s between two reads of the file. The kubelet updates a mounted ConfigMap within about a minute."""


class ConfigFile(Generic[T]):
    """A value parsed from a file by `read(text, where)`, which raises KnodelError for an invalid text.

    `refused` counts the invalid changes.
    """

    def __init__(self, path: Path | None, read: Callable[[str, str], T], clock: Clock) -> None:
        """Read the file; `path` None is an empty file that never changes. Raises KnodelError."""
        self._path = path
        self._read = read
        self._clock = clock
        self._text = self._load()
        self.value = read(self._text, str(path))
        self.refused = 0

    async def changed(self) -> None:
        """Return once `value` has changed."""
        while True:
            await self._clock.sleep(READ_EVERY)
            if self._path is not None and self._reload():
                return

    def _reload(self) -> bool:
        try:
            text = self._load()
            if text == self._text:
                return False
            self._text = text
            value = self._read(text, str(self._path))
        except KnodelError as error:
            self.refused += 1
            log.error("the former settings remain in force: %s", error)
            return False
        former, self.value = self.value, value
        return value != former

    def _load(self) -> str:
        if self._path is None:
            return ""
        try:
            return self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise KnodelError(f"cannot read the settings {self._path}: {reason}") from error
