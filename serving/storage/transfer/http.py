"""Downloads over HTTP: the bytes are hashed as they come, and a download that broke off is continued."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from clusters.base.sizes import format_size
from serving.storage.base.disk import LARGEST_FILE
from serving.storage.base.errors import Interrupted, StorageError
from serving.storage.transfer.deadline import Deadline
from serving.storage.transfer.limits import DownloadLimits
from serving.storage.transfer.progress import Progress, nobody_looks
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
    """

    name: str
    request: Callable[[], Request]
    path: Path
    size: int | None = None
    most: int = LARGEST_FILE


class Downloader:
    """Gets files by GET, following redirects; `allow_hosts` as in `ssrf.check_addresses` and `allowed_after`."""

    def __init__(
        self,
        allow_hosts: frozenset[str],
        deadline: Deadline,
        limits: DownloadLimits | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        limits = limits or DownloadLimits()
        self.web = Web(allow_hosts, limits, deadline)
        self.retry = Retry(limits, deadline, sleep)

    def save(self, wanted: Download, progress: Progress = nobody_looks) -> str:
        """Write the content into the file; its digest (`sha256:…`).

        What has come there before is continued, and not asked for again when it is complete. Raises Interrupted,
        Refused, StorageError.
        """
        with received_at(wanted.path, wanted.name) as got:
            if got.etag and got.size == wanted.size:
                progress(got.size, wanted.size)
            else:
                self.retry.run(lambda: self._receive(wanted, got, progress), lambda: got.size)
            return got.digest

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
            got.add(chunk)
            progress(got.size, total)
        if total is not None and got.size != total:
            raise Interrupted(f"{answer.name}: cannot be downloaded: it ended after {got.size} of {total} bytes")
