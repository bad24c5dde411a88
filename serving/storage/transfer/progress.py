"""Progress of downloads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from clusters.base.sizes import format_size
from serving.storage.base.errors import StorageError

Progress = Callable[[int, int | None], None]
"""Called with the bytes received so far and the expected total (None: unknown), by one thread at a time."""


def ignore_progress(received: int, total: int | None) -> None:
    """Ignore the progress of a download."""


class FolderProgress:
    """Sum the progress of several files that are downloaded at the same time. Thread-safe.

    `report` is called with the sums. `total` is the expected size of all files in bytes (None: unknown), and `limit`
    bounds it.
    """

    def __init__(self, report: Progress, total: int | None, limit: int, uri: str) -> None:
        self._report = report
        self._total = total
        self._limit = limit
        self._uri = uri
        self._lock = threading.Lock()
        self._by_file: dict[int, int] = {}
        self._received = 0

    def of_file(self, index: int) -> Progress:
        """Return the `Progress` of one file, which raises StorageError when all files together exceed the limit."""

        def record(received: int, total: int | None) -> None:
            with self._lock:
                self._received += received - self._by_file.get(index, 0)
                self._by_file[index] = received
                if self._received > self._limit:
                    raise StorageError(f"{self._uri}: has more than {format_size(self._limit)}, the limit")
                self._report(self._received, self._total)

        return record
