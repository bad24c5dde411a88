"""A webhook for tests: the real application with listed sources, and a ledger that can be read and broken."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Message

from clusters.base.errors import KnodelError
from eventing.auth.auth import Authenticator
from eventing.auth.oidc import IssuerKeys, Tokens
from eventing.limits import WebhookLimits
from eventing.mapping.training import TYPE, EventMapper
from eventing.objects.model_event import event_name
from eventing.objects.ports import EventSource, HmacAuth, NewEvent, RecordResult
from eventing.webhook.app import EventsApp
from tests.support.clock import SteppedClock

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
SOURCE = "https://ci.example/train"
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"


def event_source(**fields: Any) -> EventSource:
    """Return an EventSource for `SOURCE` with HMAC; `fields` replace its own."""
    given: dict[str, Any] = {
        "namespace": "default",
        "name": "training",
        "source": SOURCE,
        "auth": HmacAuth("training-key"),
        "models": ("*",),
        "storage_prefixes": ("s3://models/",),
    }
    return EventSource(**given | fields)


def event(**members: Any) -> dict[str, Any]:
    """Return Knodel's own event in JSON; `members` replace its members, None removes one."""
    data = {"model": "magika", "storageUri": "s3://models/magika/7", "version": "7", "metrics": {"accuracy": 0.99}}
    given = {"specversion": "1.0", "id": "1", "source": SOURCE, "type": TYPE, "data": data} | members
    return {name: value for name, value in given.items() if value is not None}


def changed(**data: Any) -> dict[str, Any]:
    """Return the event with other data."""
    sent = event()
    return sent | {"data": sent["data"] | data}


class ListedSources:
    """`ports.Sources` over a list, in its order."""

    def __init__(self, *sources: EventSource) -> None:
        self._sources = sources

    def matching(self, source: str) -> Sequence[EventSource]:
        """Return the EventSources that match."""
        return [one for one in self._sources if one.matches(source)]

    def named(self, namespace: str, name: str) -> EventSource | None:
        """One of them."""
        return next((one for one in self._sources if (one.namespace, one.name) == (namespace, name)), None)


class ListedLedger:
    """`ports.EventLedger` in memory; `failure` is raised while it is set, `answers` are results by id."""

    def __init__(self) -> None:
        self.entries: dict[str, NewEvent] = {}
        self.failure: KnodelError | None = None
        self.answers: dict[str, RecordResult | KnodelError] = {}

    async def record(self, entries: Sequence[NewEvent]) -> Sequence[RecordResult | KnodelError]:
        """Store the events."""
        if self.failure is not None:
            raise self.failure
        return [self._record(entry) for entry in entries]

    def _record(self, entry: NewEvent) -> RecordResult | KnodelError:
        if entry.mapped.id in self.answers:
            return self.answers[entry.mapped.id]
        name = event_name(entry.mapped.source, entry.mapped.id)
        if name in self.entries:
            return RecordResult.DUPLICATE
        self.entries[name] = entry
        return RecordResult.NEW


class ListedKeys:
    """`hmac_keys.Keys` of a map by Secret name; `failure` is raised while it is set."""

    def __init__(self, secrets: Mapping[str, Sequence[str]]) -> None:
        self.given = dict(secrets)
        self.failure: KnodelError | None = None

    async def secrets(self, namespace: str, name: str, *, again: bool = False) -> tuple[str, ...]:
        """Return the keys of that Secret."""
        if self.failure is not None:
            raise self.failure
        return tuple(self.given.get(name, ()))


class NoIssuers:
    """`oidc.IssuerKeys` without any issuer."""

    async def key(self, issuer: str, kid: str) -> None:
        """None."""
        return


@dataclass
class Reply:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Decode the body."""
        return json.loads(self.body)


@dataclass
class Webhook:
    """The application with its parts."""

    sources: Sequence[EventSource] = field(default_factory=lambda: [event_source()])
    limits: WebhookLimits = field(default_factory=lambda: WebhookLimits(unknown=0.0))
    issuers: IssuerKeys = field(default_factory=NoIssuers)
    clock: SteppedClock = field(default_factory=SteppedClock)
    keys: ListedKeys = field(default_factory=lambda: ListedKeys({"training-key": [SECRET]}))
    ledger: ListedLedger = field(default_factory=ListedLedger)

    def __post_init__(self) -> None:
        tokens = Tokens(self.issuers, self.clock, self.limits.leeway)
        authenticator = Authenticator(self.keys, tokens, self.clock, self.limits.tolerance)
        sources = ListedSources(*self.sources)
        self.app = EventsApp(sources, self.ledger, authenticator, EventMapper(), self.limits, self.clock)

    async def send(
        self,
        body: bytes | Any = b"",
        content_type: str = STRUCTURED,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        *,
        path: str = "/events",
        method: str = "POST",
        sign: bool = True,
    ) -> Reply:
        """Send `body` (bytes, or a value that is encoded as JSON), signed unless `sign` is False."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        pairs = [("content-type", content_type), *(headers.items() if isinstance(headers, Mapping) else headers)]
        if sign:
            pairs += signature(content, self.clock.now().timestamp()).items()
        return await ask(self.app, method, path, pairs, [content])


def signature(body: bytes, now: float, key: bytes = KEY, id: str = "msg-1") -> dict[str, str]:
    """Return the signature headers of Standard Webhooks."""
    timestamp = str(int(now))
    made = hmac.new(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    signed = "v1," + base64.b64encode(made).decode()
    return {"webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signed}


async def ask(
    app: EventsApp, method: str, path: str, headers: Iterable[tuple[str, str]], pieces: Sequence[bytes]
) -> Reply:
    """Send one request over ASGI, with its body in `pieces`."""
    sent: list[Message] = []
    waiting = list(pieces)

    async def receive() -> Message:
        if not waiting:
            return {"type": "http.disconnect"}
        piece = waiting.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(waiting)}

    async def send(message: Message) -> None:
        sent.append(message)

    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "method": method, "path": path, "headers": raw, "client": ("127.0.0.1", 1)}
    await app(scope, receive, send)
    if not sent:
        return Reply(0, {}, b"")
    start, *rest = sent
    answered = {name.decode(): value.decode() for name, value in start["headers"]}
    return Reply(start["status"], answered, b"".join(one.get("body", b"") for one in rest))
