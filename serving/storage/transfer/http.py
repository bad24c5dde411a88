"""Downloads over HTTP: the bytes are hashed as they come, and a download that broke off is continued."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue

from clusters.base.sizes import format_size
from serving.storage.base import digest as digests
from serving.storage.base.disk import LARGEST_FILE
from serving.storage.base.errors import Interrupted, StorageError
from serving.storage.transfer.deadline import Deadline
from serving.storage.transfer.limits import DownloadLimits
from serving.storage.transfer.progress import FolderProgress, Progress, ignore_progress
from serving.storage.transfer.received import Received, received_at
from serving.storage.transfer.retry import Retry
from serving.storage.transfer.web import Answer, Request, Web


@dataclass(frozen=True, slots=True)
class Download:
    """One file that is to be had.

    name      stands for it in messages
    request   how it is asked for; called for each connection, since tokens and signed addresses end
    path      the file that it goes into
    size      its bytes, if they are known
    most      bytes that it may have
    digest    `sha256:…` that it must have; "" when none is promised
    """

    name: str
    request: Callable[[], Request]
    path: Path
    size: int | None = None
    most: int = LARGEST_FILE
    digest: str = ""


class Downloader:
    """Downloads files by GET, following redirects; `close` it after use.

    `allow_hosts` as in `ssrf.check_addresses` and `allowed_after`. `sleep` replaces the waiting before retries.
    """

    def __init__(
        self,
        allow_hosts: frozenset[str],
        deadline: Deadline,
        limits: DownloadLimits | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        limits = limits or DownloadLimits()
        self.web = Web(allow_hosts, limits, deadline)
        self.retry = Retry(limits, deadline, sleep)
        self._at_once = limits.files_at_once
        self._deadline = deadline

    def close(self) -> None:
        """Close the connections that were kept for further requests."""
        self.web.pool.close()

    def save(self, wanted: Download, progress: Progress = ignore_progress) -> str:
        """Write the content into the file and return its digest (`sha256:…`).

        A part that an earlier call wrote is continued; a complete file is not requested again. Raises Interrupted,
        Refused, StorageError.
        """
        with received_at(wanted.path, wanted.name) as got:
            if got.etag and got.size == wanted.size:
                progress(got.size, wanted.size)
            else:
                self.retry.run(lambda: self._receive(wanted, got, progress), lambda: got.size)
            digests.check(wanted.name, wanted.digest, got.digest)
            return got.digest

    def save_all(self, wanted: Sequence[Download], progress: FolderProgress) -> list[str]:
        """Save files to different paths, several at once, and return their digests in the order of `wanted`.

        The first error cancels all other downloads of this downloader, for good, and is raised.
        """
        pending: SimpleQueue[int] = SimpleQueue()
        for index in range(len(wanted)):
            pending.put(index)
        found = [""] * len(wanted)
        errors: list[BaseException] = []

        def work() -> None:
            try:
                with contextlib.suppress(Empty):
                    while not errors:
                        index = pending.get_nowait()
                        found[index] = self.save(wanted[index], progress.of_file(index))
            except BaseException as error:
                errors.append(error)
                self._cancel()

        threads = [
            threading.Thread(target=work, name="download", daemon=True)  # the process can end without them
            for _ in range(min(self._at_once, len(wanted)) - 1)
        ]
        try:
            with contextlib.suppress(RuntimeError):  # the machine has no more threads: fewer files at once
                for thread in threads:
                    thread.start()
            work()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        except BaseException:
            self._cancel()
            raise
        if errors:
            raise errors[0]
        return found

    def _cancel(self) -> None:
        self._deadline.cancel()
        self.retry.slots.wake()
        self.web.pool.abort()

    def _receive(self, wanted: Download, got: Received, progress: Progress) -> None:
        if got.size and not got.etag:  # of an earlier attempt; what is there now may be another version
            got.begin()
        request = wanted.request()
        with self.web.ask(replace(request, headers={**request.headers, **got.range})) as answer:
            if (total := got.continued_by(answer)) is not None:
                answer.check_encoding()
                self._add(answer, got, progress, wanted.most, total)
                return
            stale = got.size > 0 and answer.status in (
                http.client.PARTIAL_CONTENT,
                http.client.REQUESTED_RANGE_NOT_SATISFIABLE,
            )
            if not stale:
                answer.check()
                got.begin(answer)
                self._add(answer, got, progress, wanted.most, answer.response.length)  # None when chunked
                return
        got.begin()
        self._receive(wanted, got, progress)

    def _add(self, answer: Answer, got: Received, progress: Progress, most: int, total: int | None) -> None:
        """Add the body. Raises Interrupted when what has come then is not the whole file of `total` bytes."""
        if total is not None and total > most:
            raise StorageError(f"{answer.name}: has {format_size(total)}, and {format_size(most)} is the limit")
        for chunk in self.web.chunks(answer):
            if got.size + len(chunk) > most:
                raise StorageError(f"{answer.name}: has more than {format_size(most)}, the limit")
            progress(got.size + len(chunk), total)
            got.add(chunk)
        if total is not None and got.size != total:
            raise Interrupted(f"{answer.name}: cannot be downloaded: it ended after {got.size} of {total} bytes")
