"""The error for a failed inference request."""

from __future__ import annotations

import json
from typing import Any

from clusters.base.errors import KnodelError, NotFound
from clusters.base.objects import MODEL, condition_of
from serving.client.effects import Call, HttpAnswer
from serving.client.errors import ClientError, DoesNotExist, ModelError, TimedOut, no_model
from serving.client.platform_ref import PlatformRef

NOT_FOUND = 404


def reason_of(content: bytes) -> tuple[str, str]:
    """Return the error and the request id in the body of a failed response: ours, or in OpenAI's form. Pure."""
    try:
        known: Any = json.loads(content)
        error = known["error"]
        return str(error["message"] if isinstance(error, dict) else error), str(known.get("id") or "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return content[:200].decode("utf-8", "replace"), ""


def failure_of(ref: PlatformRef | None, name: str, namespace: str, answer: HttpAnswer) -> Call[ClientError]:
    """Return the error for a response with a status other than 200; `ref` of None cannot read Models."""
    reason, request_id = reason_of(answer.content)
    retry = answer.retry_after()
    again = "" if retry is None else f" (retry in {retry:.0f} s)"
    message = f"model {name} responded with {answer.status}: {reason}{again}"
    if answer.status == NOT_FOUND:
        return (yield from not_found(ref, name, namespace, message))
    return ModelError(message, answer.status, request_id or answer.headers.get("x-request-id", ""))


def not_found(ref: PlatformRef | None, name: str, namespace: str, message: str) -> Call[ClientError]:
    """Return the error for a 404: the model does not exist, or none of its versions is ready."""
    if ref is None:
        return DoesNotExist(message, NOT_FOUND)
    try:
        api = yield from ref.calls()
        model = yield from api.get(MODEL, name, namespace)
    except NotFound:
        return no_model(name, namespace)
    except KnodelError:  # a caller who may not read Models gets the message of the gateway
        return DoesNotExist(message, NOT_FOUND)
    ready = condition_of(model, "Ready") or {}
    if ready.get("status") == "True":
        return DoesNotExist(message, NOT_FOUND)
    reason = ": ".join(str(ready[part]) for part in ("reason", "message") if ready.get(part)) or "no status yet"
    return TimedOut(f"model {name} is not ready: {reason}: `knodel describe {name}` shows its versions and events")
