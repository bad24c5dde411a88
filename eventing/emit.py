"""Emit an event when a training run ends, from a training script. The standard library alone.

    from knodel import emit_training_completed

    emit_training_completed("iris", "s3://models/iris/7/", version="7", metrics={"accuracy": 0.98})

The event is a CloudEvent in structured mode, signed by Standard Webhooks. It is sent again until it is taken, under the
same id, so it has one effect however often it arrives. Each failed attempt is logged as a warning, which Python prints
to stderr unless the script configures logging.
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
from email.message import Message
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
"""Environment: the webhook, `http://127.0.0.1:8081/events` on one machine."""
SECRET: Final = "KNODEL_EVENTS_SECRET"  # noqa: S105
"""Environment: the key that `knodel events allow` printed, `whsec_…`."""
SOURCE: Final = "KNODEL_EVENTS_SOURCE"
"""Environment: the `source` attribute that the key is for; absent: `/training/MODEL`."""
TRACEPARENT: Final = "TRACEPARENT"
"""Environment: the W3C trace context of the training, if it is traced."""
WAIT: Final = "KNODEL_EVENTS_WAIT"
"""Environment: seconds during which attempts are repeated (`600`); `0` is one attempt."""
TIMEOUT: Final = 10.0
"""Seconds for one attempt."""
DEFAULT_WAIT: Final = 300.0
"""Seconds for all attempts: an upgrade of the platform takes less, and the training's machine costs money."""
FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 30.0
"""s between attempts: doubled from the first on, a random half of it taken off; the server's Retry-After is kept."""
_BACKOFF: Final = Backoff(FIRST_WAIT, LONGEST_WAIT, jitter=(0.5, 1.0))
_AGAIN: Final = frozenset({408, 425, 429})
"""Besides 5xx: a moment later the answer may be another one."""
RESULT: Final = "Knodel-Event"
"""Header of an answer: what became of the event."""
FAILED: Final = "copy, failed"
"""Of one whose id was taken before, without an effect."""
_FORMAT: Final = {"Content-Type": "application/cloudevents+json; charset=utf-8"}


log = logging.getLogger(__name__)


class NotEmitted(KnodelError):
    """The event was not taken: `status` is the last answer's, None when there was none."""

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
    """Emit that `storage_uri` (an address, or a path on this machine) is the newest `model`; return the event's id.

    `id`: the training run's name, so that a repeated script has no second effect; absent: a new one each time.
    `sequence`: orders events of one source; absent: they are ordered by `at`, which is now. An int, or a text that is
    one, is sent with `sequencetype` Integer, so 10 follows 9; other texts are ordered as text. `metrics`: numbers by
    name; NumPy's are taken. `wait`: seconds during which failed attempts are repeated; absent: KNODEL_EVENTS_WAIT, else
    300. Without either, a connection that is refused on loopback is not repeated: no platform runs there.

    Raises NotEmitted when the event is refused, when no attempt succeeds in time, or when the same event was taken
    before and has failed. Raises ValueError for arguments that make no event.
    """
    data = {
        "model": model,
        "namespace": namespace,
        "storageUri": _address(storage_uri),
        "digest": digest,
        "version": version,
        "modelFormat": model_format,
        "metrics": metrics,
    }
    order = EventSequence.of(sequence)
    event = {
        "specversion": "1.0",
        "id": id or str(uuid.uuid4()),
        "source": source or os.environ.get(SOURCE) or f"/training/{model}",
        "type": TYPE,
        "time": (at or datetime.now(UTC)).astimezone(UTC).isoformat(),
        "datacontenttype": "application/json",
        "sequence": order.value,
        "sequencetype": order.type,
        "traceparent": os.environ.get(TRACEPARENT, ""),
        "data": {name: value for name, value in data.items() if value},
    }
    body = _encoded({name: value for name, value in event.items() if value})
    key = _key(secret or os.environ.get(SECRET, ""))
    given = _wait(os.environ.get(WAIT, "")) if wait is None else wait
    result = _send(_webhook(url or os.environ.get(URL, "")), body, key, _delivery(event), given, timing or Timing())
    if result == FAILED:
        raise NotEmitted(_failed(str(event["id"])), 202)
    return str(event["id"])


def _address(storage_uri: str | os.PathLike[str]) -> str:
    if not isinstance(storage_uri, str):
        return Path(storage_uri).resolve().as_uri()
    if "://" not in storage_uri:
        raise ValueError(f"{storage_uri!r} is no address such as s3://bucket/folder/: give a path as a pathlib.Path")
    return storage_uri


def _encoded(event: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(event, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"metrics have what is no JSON, as NaN and infinity are: {error}") from error


def _plain(value: Any) -> Any:
    """A NumPy scalar or array as JSON has it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is neither a number nor a text")


def _webhook(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is no address of a webhook: set {URL}, for example http://127.0.0.1:8081/events")
    return url


def _key(secret: str) -> str:
    try:
        sign(secret, "", datetime.now(UTC), b"")
    except ValueError as error:
        remedy = (
            "`knodel events allow SOURCE --models NAME --storage-prefix PREFIX` prints that of a new source, "
            "`knodel events allow SOURCE --rotate` a new one of a source that exists"
        )
        raise ValueError(f"{SECRET} is not set to a key whsec_…: {remedy}") from error
    return secret


def _delivery(event: Mapping[str, Any]) -> str:
    """`webhook-id`: the same for every attempt, without the points that ids of events may have."""
    return "msg_" + hashlib.sha256(f"{event['source']}\0{event['id']}".encode()).hexdigest()[:32]


def _wait(text: str) -> float | None:
    try:
        seconds = float(text) if text else None
    except ValueError:
        seconds = -1.0
    if seconds is not None and not 0 <= seconds < float("inf"):
        raise ValueError(f"{WAIT} is {text!r}: set it to a number of seconds, for example 600, or to 0 for one attempt")
    return seconds


def _send(url: str, body: bytes, secret: str, delivery: str, wait: float | None, timing: Timing) -> str:
    """Send until it is taken or `wait` seconds are over; return the result that the answer names. Raises NotEmitted."""
    opener = urllib.request.build_opener(_NoRedirects)
    total = DEFAULT_WAIT if wait is None else wait
    end = timing.monotonic() + total
    deadline = datetime.now().astimezone() + timedelta(seconds=total)
    failures = 0
    while True:
        headers = {**_FORMAT, **sign(secret, delivery, datetime.now(UTC), body)}  # signed anew: it bears the time
        request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310  http(s) alone, by `_webhook`
        try:
            with opener.open(request, timeout=timing.timeout) as answer:
                return str(answer.headers.get(RESULT, ""))
        except HTTPError as error:
            failure, asked = _refused(url, error), _seconds(error.headers)
            if error.code < 500 and error.code not in _AGAIN:
                raise failure from error
        except (OSError, HTTPException) as error:
            if wait is None and _is_refused_here(url, error):
                raise NotEmitted(_not_running(url)) from error
            failure, asked = NotEmitted(f"{url} does not answer: {error}"), 0.0
        pause = max(asked, _BACKOFF.delay(failures, random.random))
        if timing.monotonic() + pause > end:
            raise failure
        log.warning("%s; waiting for the platform until %s (%s), next attempt in %.1f s",
                    failure, f"{deadline:%H:%M:%S}", f"{WAIT}={total:g}", pause)  # fmt: skip
        timing.sleep(pause)
        failures += 1


def _is_refused_here(url: str, error: Exception) -> bool:
    """Return whether a loopback address refused the connection: no process listens there."""
    cause = error.reason if isinstance(error, URLError) else error
    host = urlsplit(url).hostname or ""
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost" or host.endswith(".localhost")
    return is_loopback and isinstance(cause, ConnectionRefusedError)


def _not_running(url: str) -> str:
    return (
        f"no platform listens at {url} (connection refused): start it with `knodel up --detach`, or set "
        f"{WAIT}={DEFAULT_WAIT:g} to wait up to {DEFAULT_WAIT:g} s for it"
    )


def _failed(id: str) -> str:
    return (
        f"the event {id} was taken before and has failed (`knodel events show {id}` tells why): mend that, then "
        f"`knodel events replay {id}`, or emit under another id"
    )


def _refused(url: str, error: HTTPError) -> NotEmitted:
    try:
        said = error.read(500).decode("utf-8", "replace").strip()
    except (OSError, HTTPException):
        said = ""
    return NotEmitted(f"{url} answered {error.code} {error.reason}: {said}", error.code)


def _seconds(headers: Message) -> float:
    """`Retry-After` in seconds; 0 without it, or with a date."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A webhook is never redirected (CloudEvents HTTP webhook §2.2): the signed event is for this address alone."""

    def redirect_request(self, *_: Any) -> None:
        """None: the redirect is the answer."""
