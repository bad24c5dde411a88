"""Send a request to a model, again while it certainly was not executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from clusters.base.errors import KnodelError
from knodel.inference.entrance import DENIED, denied, entrance_of
from knodel.operations.core import ClientCore
from serving.client.effects import Call, HttpAnswer, HttpRequest, exchange, now, sleep
from serving.client.errors import ClientError, NotConnected, Unreachable
from serving.client.inference.failures import NOT_FOUND, failure_of
from serving.client.platform_ref import PlatformRef

RETRY_DELAY = 0.2  # s before the second attempt to connect; doubled for each further one
BUSY = frozenset({429, 503})
"""Statuses of a server that did not execute the request, if it says when to send it again."""
Explain = Callable[[PlatformRef | None, str, str, HttpAnswer], Call[ClientError]]


class Destination(NamedTuple):
    """A model: its name and tag, and the limit of a request in seconds."""

    name: str
    tag: str
    timeout: float


def send(
    core: ClientCore,
    to: Destination,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes | None,
    perform: Callable[[HttpRequest], Call[HttpAnswer]] = exchange,
) -> Call[HttpAnswer]:
    """Send a request, again while it certainly was not executed, and return the response.

    Raises Unreachable; if the request may have run, the message has that.
    """
    deadline, attempt = (yield from now()) + to.timeout, 0
    while True:
        entrance = yield from entrance_of(core, to.name, to.tag)
        left = deadline - (yield from now())
        made = HttpRequest(
            entrance.endpoint, method, f"{entrance.path}{path}", {**entrance.headers, **headers}, body,
            max(left, 0.001), inference=True,
        )  # fmt: skip
        try:
            answer = yield from perform(made)
        except NotConnected:
            core.entrances.pop((to.name, to.tag), None)  # a platform that was started again has moved
            delay = RETRY_DELAY * 2**attempt
            if attempt >= core.retries or (yield from now()) + delay > deadline:
                raise
        except Unreachable as error:
            if method != "GET":
                raise Unreachable(
                    f"{error}; the request to model {to.name} may have run, so it was not sent again"
                ) from error
            delay = RETRY_DELAY * 2**attempt
            if attempt >= core.retries or (yield from now()) + delay > deadline:
                raise
        else:
            wanted = answer.retry_after(RETRY_DELAY) if answer.status in BUSY else None
            if wanted is None or attempt >= core.retries or (yield from now()) + wanted > deadline:
                return answer
            delay = wanted
        attempt += 1
        yield from sleep(delay)


def error_of(core: ClientCore, to: Destination, answer: HttpAnswer, explain: Explain = failure_of) -> Call[KnodelError]:
    """Return the error for a response with a status other than 200."""
    if answer.status == NOT_FOUND:
        core.entrances.pop((to.name, to.tag), None)
    if core.url is not None and answer.status in DENIED:
        return denied(core.url.endpoint, answer.status)
    return (yield from explain(core.ref, to.name, core.namespace, answer))
