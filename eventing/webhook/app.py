"""The event webhook as one ASGI application: POST /events, and /events/[NAMESPACE/]NAME for one EventSource.

    size 413 → rate 429 → method 405, format 415 → sender 401 → form 400 → rights 403 → meaning 400 → ledger 503 → 202

A request is decoded once it is known that one of its events is of a sender that we know, or that nobody can be asked.
The control API mounts it on one machine; on Kubernetes it has a process of its own (`main.py`). Whoever runs it bounds
heads, and how slowly bodies come. Statuses by CloudEvents `http-webhook.md` §2.2. An accepted event is answered without
a body: a broker takes a body for an answering event, and sends again what is none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from clusters.base.clock import Clock
from clusters.net.exposition import Family
from eventing.auth.auth import Authenticator
from eventing.auth.handshake import ALLOW, shake
from eventing.auth.signatures import SCHEMES
from eventing.errors import BadEvent, TryLater, shown
from eventing.http import Answer, Body, Headers, SenderLeft, refusal, retry_after, send_answer
from eventing.limits import Limits
from eventing.objects.event import Mode, from_http, mode_of
from eventing.objects.ports import Ledger, Mapper, Sources
from eventing.rate import Room, TokenBucket, decoded_size
from eventing.webhook.counts import Counts
from eventing.webhook.foreign import from_foreign, is_event
from eventing.webhook.heads import heads_of
from eventing.webhook.intake import Intake, Name, Verdict

log = logging.getLogger(__name__)

PATH: Final = "/events"
DEFAULT_NAMESPACE: Final = "default"
"""Of /events/NAME, as on the gateway's paths without one."""
RESULT: Final = "Knodel-Event"
"""Header of a 202: `taken`, `copy` or `ignored`."""
LOGGED: Final = 10.0
"""Refusals a second that are logged: what strangers send does not fill a disk."""
_GRAVEST: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class EventsApp:
    """The webhook. It answers every request of its paths, and 404 to all others."""

    def __init__(
        self,
        sources: Sources,
        ledger: Ledger,
        authenticator: Authenticator,
        mapper: Mapper,
        limits: Limits,
        clock: Clock,
    ) -> None:
        self._sources = sources
        self._authenticator = authenticator
        self._limits = limits
        self._clock = clock
        self._intake = Intake(sources, ledger, mapper, clock, limits.events, limits.pending)
        self._requests = TokenBucket(limits.requests)
        self._log_lines = TokenBucket(LOGGED)
        self._room = Room(limits.bodies)
        self._decoded = Room(limits.decoded)
        self._counts = Counts()

    def adopt(self, limits: Limits) -> None:
        """Go on with other limits of rates and numbers; those of bytes stay."""
        self._limits = limits
        self._intake.adopt(limits.events, limits.pending)

    def families(self) -> Iterable[Family]:
        """Metrics."""
        return self._counts.families(self._room.taken + self._decoded.taken)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        heard = _Heard(receive, self._clock)
        try:
            answer = await self._answer(scope, heard if scope["path"] != PATH else receive)
        except SenderLeft:
            return
        except BadEvent as error:
            answer = refusal(error)
        except Exception:  # a fault of ours: nothing was promised, so the sender is to send it again
            log.exception("an event of %s failed", scope.get("client"))
            answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "the webhook failed: its log has the details"})
        if answer.status == HTTPStatus.UNAUTHORIZED and scope["path"] != PATH:
            await self._clock.sleep(heard.at + self._limits.unknown - self._clock.monotonic())
        self._note(scope, answer.errors)
        self._counts.request(answer.status)
        await send_answer(send, answer)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        headers: Headers = scope["headers"]
        name = _name(scope["path"])
        with Body(headers, receive, self._limits.body, self._room, _peer(scope)) as body:
            body.check_length()
            if wait := self._requests.take(self._clock.monotonic()):
                raise TryLater(
                    HTTPStatus.TOO_MANY_REQUESTS, "more requests come than are looked at: send it later", wait
                )
            if scope["method"] == "OPTIONS":
                return shake(headers, self._limits.requests)
            if scope["method"] != "POST":
                message = f"{scope['method'][:20]} is not for events: POST them"
                return Answer(HTTPStatus.METHOD_NOT_ALLOWED, {"error": message}, {"Allow": ALLOW})
            if name is not None and not is_event(headers):
                return await self._take_foreign(headers, await body.read(), name)
            mode = mode_of(headers)
            return await self._take(headers, mode, await body.read(), name)

    async def _take(self, headers: Headers, mode: Mode, body: bytes, name: Name | None) -> Answer:
        proof = self._authenticator.proof(headers, body, in_headers=mode is Mode.BINARY)
        verdicts = await self._intake.strangers(heads_of(headers, mode, body), proof, name)
        if not verdicts:
            with self._decoded.lent(decoded_size(body)):
                verdicts = await self._intake.take(from_http(headers, body, mode), proof, name)
        self._counts.events(verdicts)
        return batch_answer(verdicts) if mode is Mode.BATCH else self._single(verdicts[0])

    async def _take_foreign(self, headers: Headers, body: bytes, name: Name) -> Answer:
        """An unknown name is answered as a wrong proof is: nobody can try out names."""
        proof = self._authenticator.proof(headers, body, in_headers=False, schemes=SCHEMES)
        named = self._sources.named(*name)
        sender = await proof.sender([named] if named is not None else [], f"anything to {shown('/'.join(name))}")
        with self._decoded.lent(decoded_size(body)):
            verdicts = await self._intake.take_known([from_foreign(headers, body, sender)], sender)
        self._counts.events(verdicts)
        return self._single(verdicts[0])

    def _single(self, verdict: Verdict) -> Answer:
        if verdict.error is not None:
            raise verdict.error
        return Answer(verdict.status, headers={RESULT: verdict.message.partition(":")[0]})

    def _note(self, scope: Scope, errors: Sequence[BadEvent]) -> None:
        peer = _peer(scope)
        for error in errors:
            if self._log_lines.take(self._clock.monotonic()):
                return
            log.warning("%d to %s: %s%s", error.status, peer, error, f" ({error.__cause__})" if error.__cause__ else "")


class _Heard:
    """`receive` of a request, and when it gave the last of it, in monotonic seconds: from then on the time is ours."""

    def __init__(self, receive: Receive, clock: Clock) -> None:
        self._receive = receive
        self._clock = clock
        self.at = clock.monotonic()

    async def __call__(self) -> Message:
        message = await self._receive()
        self.at = self._clock.monotonic()
        return message


def batch_answer(verdicts: Sequence[Verdict]) -> Answer:
    """The answer to a batch: 202 when all were taken; 503 or 429 when any is to be sent again, copies do no harm;
    what is wrong with it when none was taken; else 207 (Multi-Status, RFC 4918 §13)."""
    told = [{"id": one.id, "source": one.source, "status": one.status, "message": one.message} for one in verdicts]
    refused = [one.error for one in verdicts if one.error is not None]
    later = [error for error in refused if isinstance(error, TryLater)]
    if later:
        gravest = max(later, key=lambda error: (error.status, error.retry_after))
        return Answer(gravest.status, told, {"Retry-After": retry_after(gravest)}, refused)
    if not refused:
        return Answer(HTTPStatus.ACCEPTED, told)
    if len(refused) < len(verdicts):
        return Answer(HTTPStatus.MULTI_STATUS, told, errors=refused)
    statuses = [error.status for error in refused]
    whole = next((status for status in _GRAVEST if status in statuses), max(statuses))
    challenge = {"WWW-Authenticate": "Bearer"} if whole == HTTPStatus.UNAUTHORIZED else {}
    return Answer(whole, told, challenge, refused)


def _peer(scope: Scope) -> str:
    return str((scope.get("client") or ("?",))[0])


def _name(path: str) -> Name | None:
    """(namespace, name) of the EventSource that the path names; None for all. Raises BadEvent (404)."""
    head, *names = path.removeprefix("/").split("/")
    if f"/{head}" != PATH or len(names) > 2 or not all(names):
        raise BadEvent(HTTPStatus.NOT_FOUND, f"events go to {PATH}, {PATH}/NAME or {PATH}/NAMESPACE/NAME")
    if not names:
        return None
    return (DEFAULT_NAMESPACE, names[0]) if len(names) == 1 else (names[0], names[1])
