"""The handshake of webhooks: who means to send events asks first whether they are wanted. Pure.

Source: CloudEvents `http-webhook.md` §4 (abuse protection). Any origin may send as far as this goes: what it sends is
taken only under an EventSource.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from eventing.errors import BadEvent
from eventing.http import Answer, Headers, only

ALLOW: Final = "POST, OPTIONS"
_ORIGIN: Final = re.compile(rb"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,252}[A-Za-z0-9])?")
_RATE: Final = re.compile(rb"\*|[1-9][0-9]{0,8}")
_MINUTE: Final = 60


def shake(headers: Headers, rate: float) -> Answer:
    """The answer to OPTIONS; `rate` is of requests a second. Raises BadEvent (400)."""
    answered = {"Allow": ALLOW}
    origin, asked = only(headers, b"webhook-request-origin"), only(headers, b"webhook-request-rate")
    if not origin:
        return Answer(HTTPStatus.NO_CONTENT, headers=answered)
    if not _ORIGIN.fullmatch(origin):
        raise BadEvent(HTTPStatus.BAD_REQUEST, "WebHook-Request-Origin is no host name")
    if asked and not _RATE.fullmatch(asked):
        raise BadEvent(HTTPStatus.BAD_REQUEST, "WebHook-Request-Rate is neither * nor a number of requests a minute")
    answered["WebHook-Allowed-Origin"] = origin.decode("ascii")
    most = int(rate * _MINUTE)
    answered["WebHook-Allowed-Rate"] = str(min(most, int(asked)) if asked.isdigit() else most)
    return Answer(HTTPStatus.OK, headers=answered)
