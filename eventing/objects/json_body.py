"""JSON of senders: what `clusters.net.strict_json` refuses is an event that is not taken."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from clusters.net import strict_json
from clusters.net.strict_json import BadJson, TooManyValues
from eventing.errors import BadEvent


def decode_json(body: bytes) -> Any:
    """Any JSON value. Raises BadEvent (400; 413 for too many values)."""
    try:
        return strict_json.decode(body)
    except TooManyValues as error:
        raise BadEvent(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from error
    except BadJson as error:
        raise BadEvent(HTTPStatus.BAD_REQUEST, str(error)) from error
