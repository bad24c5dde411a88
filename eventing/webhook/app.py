"""The event webhook as an ASGI application: POST /events, and /events/[NAMESPACE/]NAME for one EventSource.

    size 413 → rate 429 → method 405, format 415 → sender 401 → form 400 → rights 403 → meaning 400 → ledger 503 → 202

A request is decoded only if the sender of at least one of its events is authenticated, or if no event can be read
without decoding. The control API mounts the application on one machine; on Kubernetes it has its own process
(`serving/platform/webhook_main.py`). Its server limits the request head and slow bodies. Statuses follow CloudEvents
`http-webhook.md` §2.2. The response for an accepted event has no body: a broker takes a body for a reply event, and
sends the event again if it is not one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from clusters.base.clock import Clock
from clusters.base.redact import quoted
from clusters.net.cloudevents import BadEvent, ContentMode, from_http, mode_of
from clusters.net.exposition import Family
from eventing.auth.auth import Authenticator
from eventing.auth.handshake import ALLOW, validate_webhook_origin
from eventing.auth.signatures import SCHEMES
from eventing.errors import TryLater
from eventing.http import (
    ClientDisconnected,
    Headers,
    RequestBody,
    WebhookResponse,
    error_response,
    retry_after,
    send_response,
)
from eventing.limits import ByteBudget, TokenBucket, WebhookLimits, decoded_size
from eventing.objects.ports import EventLedger, Mapper, Sources
from eventing.webhook.intake import EventVerdict, Intake, Name
from eventing.webhook.metrics import WebhookMetrics
from eventing.webhook.peek import peek
from eventing.webhook.plain_json import event_from_json, is_cloudevent

log = logging.getLogger(__name__)

PATH: Final = "/events"
DEFAULT_NAMESPACE: Final = "default"
"""Namespace of /events/NAME, as on the gateway's paths without a namespace."""
RESULT: Final = "Knodel-Event"
"""Header of a 202: `taken`, `copy` or `ignored`."""
LOGGED: Final = 10.0
"""Maximum number of refusals logged a second, so that unknown senders cannot fill the disk."""
_MOST_SEVERE: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class EventsApp:
    """The webhook. Handles every request below its paths, and answers 404 to all others."""

    def __init__(
        self,
        sources: Sources,
        ledger: EventLedger,
        authenticator: Authenticator,
        mapper: Mapper,
        limits: WebhookLimits,
        clock: Clock,
    ) -> None:
        self._sources = sources
        self._authenticator = authenticator
        self._limits = limits
        self._clock = clock
        self._intake = Intake(sources, ledger, mapper, clock, limits.events, limits.pending)
        self._requests = TokenBucket(limits.requests)
        self._log_lines = TokenBucket(LOGGED)
        self._bodies = ByteBudget(limits.bodies)
        self._decoded = ByteBudget(limits.decoded)
        self._metrics = WebhookMetrics()

    def update_limits(self, limits: WebhookLimits) -> None:
        """Replace the limits on rates and pending events; limits on bytes do not change."""
        self._limits = limits
        self._intake.update_limits(limits.events, limits.pending)

    def families(self) -> Iterable[Family]:
        """Return the webhook's Prometheus metrics."""
        return self._metrics.families(self._bodies.used + self._decoded.used)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        timed = _TimedReceive(receive, self._clock)
        try:
            response = await self._respond(scope, timed if scope["path"] != PATH else receive)
        except ClientDisconnected:
            return
        except BadEvent as error:
            response = error_response(error)
        except Exception:  # a bug of ours: nothing was promised, so a 500 makes the sender retry
            log.exception("an event of %s failed", scope.get("client"))
            body = {"error": "internal error: see the log of the webhook"}
            response = WebhookResponse(HTTPStatus.INTERNAL_SERVER_ERROR, body)
        if response.status == HTTPStatus.UNAUTHORIZED and scope["path"] != PATH:
            await self._clock.sleep(timed.last_at + self._limits.unknown - self._clock.monotonic())
        self._log_refusals(scope, response.errors)
        self._metrics.record_response(response.status)
        await send_response(send, response)

    async def _respond(self, scope: Scope, receive: Receive) -> WebhookResponse:
        headers: Headers = scope["headers"]
        name = _name(scope["path"])
        with RequestBody(headers, receive, self._limits.body, self._bodies, _peer(scope)) as body:
            body.check_length()
            if wait := self._requests.take(self._clock.monotonic()):
                raise TryLater(HTTPStatus.TOO_MANY_REQUESTS, "too many requests, retry later", wait)
            if scope["method"] == "OPTIONS":
                return validate_webhook_origin(headers, self._limits.requests)
            if scope["method"] != "POST":
                message = f"method {scope['method'][:20]} is not allowed: send events with POST"
                return WebhookResponse(HTTPStatus.METHOD_NOT_ALLOWED, {"error": message}, {"Allow": ALLOW})
            if name is not None and not is_cloudevent(headers):
                return await self._accept_plain_json(headers, await body.read(), name)
            mode = mode_of(headers)
            return await self._accept_cloudevents(headers, mode, await body.read(), name)

    async def _accept_cloudevents(
        self, headers: Headers, mode: ContentMode, body: bytes, name: Name | None
    ) -> WebhookResponse:
        credentials = self._authenticator.credentials(headers, body, in_headers=mode is ContentMode.BINARY)
        verdicts = await self._intake.reject_unauthenticated(peek(headers, mode, body), credentials, name)
        if not verdicts:
            with self._decoded.reserved(decoded_size(body)):
                verdicts = await self._intake.accept(from_http(headers, body, mode), credentials, name)
        self._metrics.record_events(verdicts)
        return batch_response(verdicts) if mode is ContentMode.BATCH else _single_response(verdicts[0])

    async def _accept_plain_json(self, headers: Headers, body: bytes, name: Name) -> WebhookResponse:
        """Accept a JSON document for the EventSource `name`.

        An unknown name gets the same response as wrong credentials, so that names cannot be probed.
        """
        credentials = self._authenticator.credentials(headers, body, in_headers=False, schemes=SCHEMES)
        named = self._sources.named(*name)
        candidates = [named] if named is not None else []
        sender = await credentials.authenticate(candidates, f"requests to {quoted('/'.join(name))}")
        with self._decoded.reserved(decoded_size(body)):
            verdicts = await self._intake.accept_from(sender, [event_from_json(headers, body, sender)])
        self._metrics.record_events(verdicts)
        return _single_response(verdicts[0])

    def _log_refusals(self, scope: Scope, errors: Sequence[BadEvent]) -> None:
        peer = _peer(scope)
        for error in errors:
            if self._log_lines.take(self._clock.monotonic()):
                return
            log.warning("%d to %s: %s%s", error.status, peer, error, f" ({error.__cause__})" if error.__cause__ else "")


class _TimedReceive:
    """`receive` of a request. `last_at` is when its last message came (monotonic seconds); the rest is our time."""

    def __init__(self, receive: Receive, clock: Clock) -> None:
        self._receive = receive
        self._clock = clock
        self.last_at = clock.monotonic()

    async def __call__(self) -> Message:
        message = await self._receive()
        self.last_at = self._clock.monotonic()
        return message


def batch_response(verdicts: Sequence[EventVerdict]) -> WebhookResponse:
    """Return the response to a batch.

    202 if all events were accepted; 503 or 429 if any should be sent again, because duplicates have no effect; 207
    (Multi-Status, RFC 4918 §13) if some were refused; the most severe status if all were refused.
    """
    results = [{"id": one.id, "source": one.source, "status": one.status, "message": one.message} for one in verdicts]
    refused = [one.error for one in verdicts if one.error is not None]
    later = [error for error in refused if isinstance(error, TryLater)]
    if later:
        latest = max(later, key=lambda error: (error.status, error.retry_after))
        return WebhookResponse(latest.status, results, {"Retry-After": retry_after(latest)}, refused)
    if not refused:
        return WebhookResponse(HTTPStatus.ACCEPTED, results)
    if len(refused) < len(verdicts):
        return WebhookResponse(HTTPStatus.MULTI_STATUS, results, errors=refused)
    statuses = [error.status for error in refused]
    status = next((status for status in _MOST_SEVERE if status in statuses), max(statuses))
    challenge = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else {}
    return WebhookResponse(status, results, challenge, refused)


def _single_response(verdict: EventVerdict) -> WebhookResponse:
    if verdict.error is not None:
        raise verdict.error
    return WebhookResponse(verdict.status, headers={RESULT: verdict.message.partition(":")[0]})


def _peer(scope: Scope) -> str:
    return str((scope.get("client") or ("?",))[0])


def _name(path: str) -> Name | None:
    """Return (namespace, name) of the EventSource in the path, None for PATH itself. Raises BadEvent (404)."""
    head, *names = path.removeprefix("/").split("/")
    if f"/{head}" != PATH or len(names) > 2 or not all(names):
        raise BadEvent(HTTPStatus.NOT_FOUND, f"not found: send events to {PATH}, {PATH}/NAME or {PATH}/NAMESPACE/NAME")
    if not names:
        return None
    return (DEFAULT_NAMESPACE, names[0]) if len(names) == 1 else (names[0], names[1])
