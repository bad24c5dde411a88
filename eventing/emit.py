"""Emit an event when a training run ends, from a training script. Needs only the standard library.

    from knodel import emit_training_completed

    emit_training_completed("iris", "s3://models/iris/7/", version="7", metrics={"accuracy": 0.98})

The event is a CloudEvent in structured mode, signed as Standard Webhooks specifies. It is sent under the same id until
the webhook accepts it, so it has one effect however often it arrives. Each failed attempt is logged as a warning, which
Python prints to stderr unless the script configures logging.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import time
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from clusters.base.backoff import Backoff
from clusters.base.errors import KnodelError
from eventing.auth.signing import sign
from eventing.objects.sequence import EventSequence

TYPE: Final = "dev.knodel.training.completed.v1"
URL: Final = "KNODEL_EVENTS_URL"
"""Environment variable: URL of the webhook, `http://127.0.0.1:8081/events` on one machine."""
SECRET: Final = "KNODEL_EVENTS_SECRET"  # noqa: S105
"""Environment variable: the key that `knodel events allow` printed, `whsec_…`."""
SOURCE: Final = "KNODEL_EVENTS_SOURCE"
"""Environment variable: the `source` attribute that the key is for; default: `/training/MODEL`."""
TRACEPARENT: Final = "TRACEPARENT"
"""Environment variable: the W3C trace context of the training, if it is traced."""
WAIT: Final = "KNODEL_EVENTS_WAIT"
"""Environment variable: seconds during which attempts are repeated (`600`); `0` is one attempt."""
TIMEOUT: Final = 10.0
"""Time limit of one attempt in seconds."""
DEFAULT_WAIT: Final = 300.0
"""Time limit of all attempts in seconds: an upgrade of the platform takes less, and an idle training machine costs
money."""
FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 30.0
"""Seconds between attempts: doubled after each, with jitter of up to half; the server's Retry-After is respected."""
_BACKOFF: Final = Backoff(FIRST_WAIT, LONGEST_WAIT, jitter=(0.5, 1.0))
_RETRIED: Final = frozenset({408, 425, 429})
"""Statuses besides 5xx after which the same request may succeed."""
RESULT: Final = "Knodel-Event"
"""Response header with the result for the event."""
FAILED: Final = "copy, failed"
"""Value of RESULT for an event that was recorded before under this id and failed."""
_FORMAT: Final = {"Content-Type": "application/cloudevents+json; charset=utf-8"}


log = logging.getLogger(__name__)


class NotEmitted(KnodelError):
    """The event was not accepted: `status` is the HTTP status of the last response, None without a response."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Timing:
    """The time limit of one attempt in seconds, and the clock between attempts."""

    timeout: float = TIMEOUT
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def emit_training_completed(
    model: str,
    storage_uri: str | os.PathLike[str],
    *,
    namespace: str = "",
    digest: str = "",
    version: str = "",
    model_format: str = "",
    metrics: Mapping[str, Any] | None = None,
    id: str = "",
    source: str = "",
    sequence: str | int = "",
    at: datetime | None = None,
    url: str = "",
    secret: str = "",
    wait: float | None = None,
    timing: Timing | None = None,
) -> str:
    """Emit an event that `storage_uri` (a URI, or a local path) is the newest version of `model`; return its id.

    `id`: the name of the training run, so that a repeated script has no second effect; default: a new UUID.
    `sequence`: the order among events of one source; default: events are ordered by `at`, which is now. An int, or a
    text that is one, is sent with `sequencetype` Integer, so 10 follows 9; other texts are ordered as text. `metrics`:
    numbers by name; NumPy scalars and arrays are accepted. `wait`: seconds during which failed attempts are repeated;
    default: KNODEL_EVENTS_WAIT, else 300. Without either, a connection that loopback refuses is not repeated, because
    no platform runs there.

    Raises NotEmitted if the webhook refuses the event, if no attempt succeeds in time, or if the same event was
    recorded before and failed. Raises ValueError for arguments that do not make a valid event.
    """
    data = {
        "model": model,
        "namespace": namespace,
        "storageUri": _uri(storage_uri),
        "digest": digest,
        "version": version,
        "modelFormat": model_format,
        "metrics": metrics,
    }
    order = EventSequence.of(sequence)
    event_id = id or str(uuid.uuid4())
    event_source = source or os.environ.get(SOURCE) or f"/training/{model}"
    event = {
        "specversion": "1.0",
        "id": event_id,
        "source": event_source,
        "type": TYPE,
        "time": (at or datetime.now(UTC)).astimezone(UTC).isoformat(),
        "datacontenttype": "application/json",
        "sequence": order.value,
        "sequencetype": order.type,
        "traceparent": os.environ.get(TRACEPARENT, ""),
        "data": {name: value for name, value in data.items() if value},
    }
    try:
        body = json.dumps(
            {name: value for name, value in event.items() if value}, allow_nan=False, default=_json_value
        ).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"metrics are not valid JSON (NaN and infinity are not): {error}") from error
    key = _checked_key(secret or os.environ.get(SECRET, ""))
    # `webhook-id` is the same for every attempt. It is a hash, because ids of events may contain points.
    delivery = "msg_" + hashlib.sha256(f"{event_source}\0{event_id}".encode()).hexdigest()[:32]
    seconds = _wait(os.environ.get(WAIT, "")) if wait is None else wait
    webhook = url or os.environ.get(URL, "")
    if not webhook.startswith(("http://", "https://")):
        raise ValueError(
            f"{webhook!r} is not the URL of a webhook: set {URL}, for example to http://127.0.0.1:8081/events"
        )
    if _send(webhook, body, key, delivery, seconds, timing or Timing()) == FAILED:
        raise NotEmitted(
            f"the event {event_id} was recorded before and failed (`knodel events show {event_id}` shows why): fix the "
            f"cause, then run `knodel events replay {event_id}`, or emit it under another id",
            202,
        )
    return event_id


def _uri(storage_uri: str | os.PathLike[str]) -> str:
    if not isinstance(storage_uri, str):
        return Path(storage_uri).resolve().as_uri()
    if "://" not in storage_uri:
        raise ValueError(f"{storage_uri!r} is not a URI such as s3://bucket/folder/: pass a path as a pathlib.Path")
    return storage_uri


def _json_value(value: Any) -> Any:
    """Convert a NumPy scalar or array for `json.dumps`."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is neither a number nor a text")


def _checked_key(secret: str) -> str:
    """Return `secret`. Raises ValueError if it cannot sign."""
    try:
        sign(secret, "", datetime.now(UTC), b"")
    except ValueError as error:
        remedy = (
            "`knodel events allow SOURCE --models NAME --storage-prefix PREFIX` prints the key of a new source, "
            "`knodel events allow SOURCE --rotate` a new key of an existing one"
        )
        raise ValueError(f"{SECRET} is not set to a key whsec_…: {remedy}") from error
    return secret


def _wait(text: str) -> float | None:
    """Return the value of KNODEL_EVENTS_WAIT in seconds, None when unset. Raises ValueError."""
    try:
        seconds = float(text) if text else None
    except ValueError:
        seconds = -1.0
    if seconds is not None and not 0 <= seconds < float("inf"):
        raise ValueError(f"{WAIT} is {text!r}: set it to a number of seconds, for example 600, or to 0 for one attempt")
    return seconds


def _send(url: str, body: bytes, secret: str, delivery: str, wait: float | None, timing: Timing) -> str:
    """Send until the event is accepted or `wait` seconds are over; return the header RESULT. Raises NotEmitted."""
    opener = urllib.request.build_opener(_NoRedirects)
    total = DEFAULT_WAIT if wait is None else wait
    end = timing.monotonic() + total
    deadline = datetime.now().astimezone() + timedelta(seconds=total)
    failures = 0
    while True:
        headers = {**_FORMAT, **sign(secret, delivery, datetime.now(UTC), body)}  # each attempt: it includes the time
        request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310  only http(s), checked above
        try:
            with opener.open(request, timeout=timing.timeout) as answer:
                return str(answer.headers.get(RESULT, ""))
        except HTTPError as error:
            failure, retry_after = _refusal(url, error), error.headers.get("Retry-After", "")
            if error.code < 500 and error.code not in _RETRIED:
                raise failure from error
        except (OSError, HTTPException) as error:
            if wait is None and _is_refused_by_loopback(url, error):
                raise NotEmitted(
                    f"no platform listens at {url} (connection refused): start it with `knodel up --detach`, or set "
                    f"{WAIT}={DEFAULT_WAIT:g} to wait up to {DEFAULT_WAIT:g} s for it"
                ) from error
            failure, retry_after = NotEmitted(f"{url} does not answer: {error}"), ""
        # A Retry-After that is a date is ignored.
        least = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
        pause = max(least, _BACKOFF.delay(failures, random.random))
        if timing.monotonic() + pause > end:
            raise failure
        log.warning("%s; waiting for the platform until %s (%s), next attempt in %.1f s",
                    failure, f"{deadline:%H:%M:%S}", f"{WAIT}={total:g}", pause)  # fmt: skip
        timing.sleep(pause)
        failures += 1


def _is_refused_by_loopback(url: str, error: Exception) -> bool:
    """Return whether a loopback address refused the connection: no process listens there."""
    cause = error.reason if isinstance(error, URLError) else error
    host = urlsplit(url).hostname or ""
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost" or host.endswith(".localhost")
    return is_loopback and isinstance(cause, ConnectionRefusedError)


def _refusal(url: str, error: HTTPError) -> NotEmitted:
    try:
        text = error.read(500).decode("utf-8", "replace").strip()
    except (OSError, HTTPException):
        text = ""
    return NotEmitted(f"{url} answered {error.code} {error.reason}: {text}", error.code)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirects (CloudEvents HTTP webhook §2.2): the event is signed for one address."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, so that the redirect is treated as an error."""
