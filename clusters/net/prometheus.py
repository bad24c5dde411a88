"""Send queries to the HTTP API of a Prometheus, or of another server with that API.

Answers are in its format: https://prometheus.io/docs/prometheus/latest/querying/api/.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from clusters.base.sizes import format_size
from clusters.net.client import FAILURES, HttpClient, failure_reason, read_at_most

EXPLAINED: Final = frozenset(
    {HTTPStatus.OK, HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE}
)
"""Statuses with an answer in JSON; all but the first explain a missing value."""
LONGEST_REASON: Final = 300
"""Characters of a server's error message: it repeats the query, which has up to 4096."""


class NoValue(KnodelError):
    """A query has no value now."""


class LateAnswer(NoValue):
    """The server did not answer in time."""


class Data(msgspec.Struct, rename={"kind": "resultType"}):
    """The data of an answer: a scalar, a vector or a matrix."""

    kind: str
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    status: str
    data: Data | None = None
    error: str = ""


_ANSWER = msgspec.json.Decoder(_Answer)


def read_data(body: bytes) -> Data:
    """Return the data of an answer. Raises NoValue, DecodeError."""
    answer = _ANSWER.decode(body)
    if answer.status != "success" or answer.data is None:
        raise NoValue(f"the server refused the query: {one_line(answer.error, LONGEST_REASON)}")
    return answer.data


async def post_query(client: HttpClient, url: str, form: Mapping[str, str], setting: str, most: int) -> bytes:
    """Return the body of an answer, of at most `most` bytes. `setting` is the name of the setting with the address.

    Raises NoValue, LateAnswer.
    """
    try:
        async with client.post(url, data=form) as response:
            if response.status not in EXPLAINED:
                raise NoValue(f"the server answered {response.status}: check {setting}")
            body = await read_at_most(response, most)
    except FAILURES as error:
        made = LateAnswer if isinstance(error, TimeoutError) else NoValue
        raise made(f"the server did not answer: {failure_reason(error)}") from error
    if len(body) > most:
        raise NoValue(f"the server answered more than {format_size(most)}: aggregate the query")
    return body
