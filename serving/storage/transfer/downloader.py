"""Download files over HTTP: hash the bytes as they arrive, and resume interrupted downloads."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from clusters.base.sizes import format_size
from serving.storage.base import digest as digests
from serving.storage.base.disk import LARGEST_FILE
from serving.storage.base.errors import StorageError, TransferInterrupted
from serving.storage.transfer.client import StoreClient, StoreRequest, StoreResponse
from serving.storage.transfer.limits import TransferDeadline, TransferLimits
from serving.storage.transfer.parallel import run_all
from serving.storage.transfer.partial_file import PartialFile, open_partial_file
from serving.storage.transfer.progress import FolderProgress, Progress, ignore_progress
from serving.storage.transfer.retry import Retry


@dataclass(frozen=True, slots=True)
class Download:
    """One file to download.

    name      its name in messages
    request   makes the request; called for each attempt, since tokens and signed URLs expire
    path      the local file
    size      its size in bytes, if known
    most      limit of its size in bytes
    digest    the expected digest (`sha256:…`), or "" for any
    """

    name: str
    request: Callable[[], StoreRequest]
    path: Path
    size: int | None = None
    most: int = LARGEST_FILE
    digest: str = ""


class Downloader:
    """Downloads files by GET, following redirects; `close` it after use.

    `allow_hosts` as in `ssrf.check_addresses` and `ssrf.allowed_after`. `sleep` replaces the wait before retries.
    """

    def __init__(
        self,
        allow_hosts: frozenset[str],
        deadline: TransferDeadline,
        limits: TransferLimits | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        limits = limits or TransferLimits()
        self.client = StoreClient(allow_hosts, limits, deadline)
        self.retry = Retry(limits, deadline, sleep)
        self._at_once = limits.files_at_once
        self._deadline = deadline

    def close(self) -> None:
        """Close the connections that were kept for further requests."""
        self.client.pool.close()

    def save(self, wanted: Download, progress: Progress = ignore_progress) -> str:
        """Download a file and return its digest (`sha256:…`).

        Resume the part that an earlier call wrote; do not request a complete file again. Raises TransferInterrupted,
        HttpStatusError, StorageError.
        """
        with open_partial_file(wanted.path, wanted.name) as part:
            if part.etag and part.size == wanted.size:
                progress(part.size, wanted.size)
            else:
                self.retry.run(lambda: self._receive(wanted, part, progress), lambda: part.size)
            digests.check(wanted.name, wanted.digest, part.digest)
            return part.digest

    def save_all(self, wanted: Sequence[Download], progress: FolderProgress) -> list[str]:
        """Download files to different paths, several at once, and return their digests in the order of `wanted`.

        The first error cancels all other downloads of this downloader, for good, and is raised.
        """
        tasks = [partial(self.save, one, progress.of_file(index)) for index, one in enumerate(wanted)]
        return run_all(tasks, self._at_once, self.cancel)

    def cancel(self) -> None:
        """End all downloads of this downloader, for good: they raise TransferInterrupted."""
        self._deadline.cancel()
        self.retry.slots.notify_all()
        self.client.pool.abort()

    def _receive(self, wanted: Download, part: PartialFile, progress: Progress) -> None:
        """Request the file, or the rest of it, and append the body to `part`."""
        if part.size and not part.etag:  # of an earlier attempt; the store may have another version now
            part.restart()
        request = wanted.request()
        with self.client.stream(replace(request, headers={**request.headers, **part.range_headers})) as response:
            if (total := part.resumed_size(response)) is not None:
                response.check_encoding()
                self._append(response, part, progress, wanted.most, total)
                return
            stale = part.size > 0 and response.status in (
                http.client.PARTIAL_CONTENT,
                http.client.REQUESTED_RANGE_NOT_SATISFIABLE,
            )
            if not stale:
                response.raise_for_status()
                part.restart(response)
                self._append(response, part, progress, wanted.most, response.response.length)  # None when chunked
                return
        part.restart()
        self._receive(wanted, part, progress)

    def _append(
        self, response: StoreResponse, part: PartialFile, progress: Progress, most: int, total: int | None
    ) -> None:
        """Append the body. Raises TransferInterrupted unless the file has `total` bytes then."""
        if total is not None and total > most:
            raise StorageError(f"{response.name}: has {format_size(total)}, and {format_size(most)} is the limit")
        for chunk in self.client.iter_bytes(response):
            if part.size + len(chunk) > most:
                raise StorageError(f"{response.name}: has more than {format_size(most)}, the limit")
            progress(part.size + len(chunk), total)
            part.append(chunk)
        if total is not None and part.size != total:
            raise TransferInterrupted(
                f"{response.name}: cannot be downloaded: it ended after {part.size} of {total} bytes"
            )
