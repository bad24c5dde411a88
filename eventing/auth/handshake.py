"""The validation handshake of CloudEvents webhooks: a sender asks with OPTIONS whether it may send events. Pure.

Source: CloudEvents `http-webhook.md` §4 (abuse protection). Every origin is allowed here, because events are only
accepted with the credentials of an EventSource.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from clusters.net.cloudevents import BadEvent
from eventing.http import Headers, WebhookResponse, single_header

ALLOW: Final = "POST, OPTIONS"
_ORIGIN: Final = re.compile(rb"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,252}[A-Za-z0-9])?")
_RATE: Final = re.compile(rb"\*|[1-9][0-9]{0,8}")
_MINUTE: Final = 60


def validate_webhook_origin(headers: Headers, rate: float) -> WebhookResponse:
    """Return the response to OPTIONS. Raises BadEvent (400) for a malformed origin or rate.

    `rate`: the maximum requests a second. The response allows that, or the requested rate if it is lower, in requests a
    minute as the specification requires. Without `WebHook-Request-Origin` the response only lists the methods.
    """
    allowed = {"Allow": ALLOW}
    origin = single_header(headers, b"webhook-request-origin")
    requested = single_header(headers, b"webhook-request-rate")
    if not origin:
        return WebhookResponse(HTTPStatus.NO_CONTENT, headers=allowed)
    if not _ORIGIN.fullmatch(origin):
        raise BadEvent(HTTPStatus.BAD_REQUEST, "WebHook-Request-Origin is not a host name")
    if requested and not _RATE.fullmatch(requested):
        raise BadEvent(HTTPStatus.BAD_REQUEST, "WebHook-Request-Rate is neither * nor a number of requests a minute")
    allowed["WebHook-Allowed-Origin"] = origin.decode("ascii")
    most = int(rate * _MINUTE)
    allowed["WebHook-Allowed-Rate"] = str(min(most, int(requested)) if requested.isdigit() else most)
    return WebhookResponse(HTTPStatus.OK, headers=allowed)
