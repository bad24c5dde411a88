"""Send the requests of one upload: with retries, several at once, with counted bytes, until it is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from clusters.net.ssrf import LOOPBACK_HOSTS
from serving.storage.base.errors import HttpStatusError
from serving.storage.sources.gs_token import METADATA_HOST
from serving.storage.transfer.client import BodySource, StoreClient, StoreRequest
from serving.storage.transfer.limits import TransferDeadline, TransferLimits
from serving.storage.transfer.parallel import run_all
from serving.storage.transfer.retry import Retry
from serving.storage.transfer.urls import parse_url
from serving.storage.upload.answers import LARGEST, Answer
from serving.storage.upload.artifact import Counter
from serving.storage.upload.records import UploadRecords

T = TypeVar("T")

LIMITS: Final = TransferLimits(silence=60.0, total=30 * 86_400.0, files_at_once=4)
"""Limits of an upload: a slow line may take days, and the user can interrupt it. Each of `files_at_once` threads holds
one part in memory."""


class Uploader:
    """Sends requests for the artifact `name` and counts the bytes that need not be sent again; `close` it after use.

    `counter` is advanced by the bytes of parts that are stored, sent now or before. `sent` is the number of bytes of
    contents that were sent, with repetitions.
    """

    def __init__(self, name: str, counter: Counter, records: UploadRecords) -> None:
        limits = LIMITS
        deadline = TransferDeadline(name, limits.total, action="uploaded")
        self.name = name
        self.counter = counter
        self.records = records
        self.client = StoreClient(LOOPBACK_HOSTS | {METADATA_HOST}, limits, deadline)
        self.retry = Retry(limits, deadline, None)
        self._sent = Counter(_ignore, 0)
        self._at_once = limits.files_at_once
        self._deadline = deadline

    @property
    def sent(self) -> int:
        """The bytes of contents that were sent, with repetitions."""
        return self._sent.count

    def close(self) -> None:
        """Close the connections."""
        self.client.pool.close()

    def cancel(self) -> None:
        """End all requests, for good: they raise TransferInterrupted."""
        self._deadline.cancel()
        self.retry.slots.notify_all()
        self.client.pool.abort()

    def run_all(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run tasks, several at once, and return their results in order; the first error cancels the others."""
        return run_all(tasks, self._at_once, self.cancel)

    def send(self, request: Callable[[], StoreRequest], accept: Collection[int], remedy: str) -> Answer:
        """Send a request until it gets a final response, and return that if its status is in `accept`.

        `request` makes the request for each attempt, since signatures expire. Its host may have any address: the user
        or the administrator has named it. Raises TransferInterrupted; HttpStatusError for another status, with the
        store's message and the remedy.
        """
        return self.retry.run(lambda: self._attempt(request(), accept, remedy))

    def send_part(
        self, request: Callable[[], StoreRequest], accept: Collection[int], remedy: str, part: bytes | BodySource
    ) -> Answer:
        """Do as `send` with a part as body, and count its bytes while they are sent."""
        return self.retry.run(lambda: self._counted_attempt(request(), accept, remedy, part))

    def _counted_attempt(
        self, request: StoreRequest, accept: Collection[int], remedy: str, part: bytes | BodySource
    ) -> Answer:
        done = 0

        def record(sent: int) -> None:
            nonlocal done
            self.counter.add(sent - done)
            self._sent.add(max(sent - done, 0))
            done = sent

        try:
            return self._attempt(replace(request, body=part, sent=record), accept, remedy)
        except BaseException:
            self.counter.add(-done)
            raise

    def _attempt(self, request: StoreRequest, accept: Collection[int], remedy: str) -> Answer:
        allowed = frozenset({parse_url(request.url).host})
        with self.client.stream(replace(request, action="uploaded"), allowed) as response:
            body = b"" if request.method == "HEAD" else self.client.read(response, LARGEST)
            headers = {name.lower(): value for name, value in response.response.headers.items()}
            answer = Answer(response.status, headers, body)
            if answer.status in accept:
                return answer
            text = f"{request.name}: cannot be uploaded: the store answered {answer.status}{answer.reason()}"
            raise HttpStatusError(f"{text}: {remedy}", answer.status, response.retry_after)


def _ignore(done: int, total: int) -> None:
    """Ignore progress."""
