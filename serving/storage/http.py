"""Downloads over HTTP: the bytes are hashed as they come, and a download that broke off is continued."""

from __future__ import annotations

import http.client
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from serving.storage.addresses import shown
from serving.storage.errors import Interrupted, StorageError
from serving.storage.progress import Progress, nobody_looks
from serving.storage.received import Received, received_at
from serving.storage.web import Answer, DownloadLimits, Request, Web

__all__ = ["DownloadLimits", "Downloader"]

log = logging.getLogger(__name__)


class Downloader:
    """Gets files by GET, following redirects; `allow_hosts` as in `addresses.check_addresses` and `allowed_after`."""

    def __init__(
        self,
        allow_hosts: frozenset[str],
        limits: DownloadLimits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.web = Web(allow_hosts, limits, monotonic)
        self._limits = self.web.limits
        self._monotonic = monotonic
        self._sleep = sleep

    def download(self, url: str, into: BinaryIO) -> str:
        """Write the content into `into` and return its digest (`sha256:…`). Raises StorageError."""
        return self.receive(Request(url, shown(url)), Received(into))

    def save(self, request: Request, path: Path, progress: Progress = nobody_looks, size: int | None = None) -> str:
        """Write the content, `size` bytes if that is known, into the file at `path`; its digest.

        What has come there before is continued, and not asked for again when it is complete. Raises Interrupted,
        Refused, StorageError.
        """
        with received_at(path, request.name) as got:
            if not got.etag or got.size != size:
                return self.receive(request, got, progress)
            progress(got.size, size)
            return got.digest

    def receive(self, request: Request, got: Received, progress: Progress = nobody_looks) -> str:
        """Complete what has come; its digest. Raises Interrupted, Refused, StorageError."""
        deadline = self.web.deadline()
        fruitless = 0
        while True:
            before = got.size
            try:
                self._receive(request, got, progress, deadline)
                return got.digest
            except Interrupted as error:
                fruitless = 0 if got.size > before else fruitless + 1
                pause = self._limits.pause * 2**fruitless
                if not got.etag or fruitless > self._limits.retries or self._monotonic() + pause > deadline:
                    raise
                log.warning("%s; it goes on from byte %d in %g s", error, got.size, pause)
                self._sleep(pause)

    def _receive(self, request: Request, got: Received, progress: Progress, deadline: float) -> None:
        with self.web.ask(replace(request, headers={**request.headers, **got.range})) as answer:
            if got.continued_by(answer):
                self._add(answer, got, progress, deadline)
                return
            stale = got.size > 0 and answer.status in (
                http.client.PARTIAL_CONTENT,
                http.client.REQUESTED_RANGE_NOT_SATISFIABLE,
            )
            if not stale:
                answer.check()
                got.begin(answer)
                self._add(answer, got, progress, deadline)
                return
        got.begin()
        self._receive(request, got, progress, deadline)

    def _add(self, answer: Answer, got: Received, progress: Progress, deadline: float) -> None:
        announced = answer.response.length  # None when chunked
        total = None if announced is None else got.size + announced
        if total is not None and total > self._limits.size:
            raise StorageError(f"{answer.name}: has {total} bytes, and {self._limits.size} is the limit")
        for chunk in self.web.chunks(answer, deadline):
            if got.size + len(chunk) > self._limits.size:
                raise StorageError(f"{answer.name}: has more than {self._limits.size} bytes, the limit")
            got.add(chunk)
            progress(got.size, total)
        if total is not None and got.size != total:
            raise Interrupted(f"{answer.name}: cannot be downloaded: it ended after {got.size} of {total} bytes")
