"""Authentication of senders: checks a request's credentials against the EventSources that its events may be from.

An EventSource requires either HMAC or OIDC. An HMAC signature covers the id, the time and the body, but no `ce-*`
header. Therefore an event in binary mode, whose attributes are headers, requires OIDC.

A key belongs to one EventSource. A token does not name an EventSource, and any tenant can create an EventSource for the
token's subject. Therefore a service account is only accepted in its own namespace, and any other subject only if no
EventSource in a second namespace claims it.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from clusters.base.clock import Clock
from clusters.base.errors import ClusterError
from clusters.net.cloudevents import BadEvent
from eventing.auth.hmac_keys import Keys
from eventing.auth.oidc import Tokens
from eventing.auth.signatures import STANDARD, Scheme, WebhookSignature, parse_signature
from eventing.auth.subjects import is_allowed_subject
from eventing.errors import TryLater
from eventing.http import Headers, single_header
from eventing.objects.ports import EventSource, HmacAuth, OidcAuth

_BEARER: Final = "bearer "
CLAIMED_TWICE: Final = (
    "EventSources in several namespaces accept this sender and source: send to /events/NAMESPACE/NAME of one of them"
)
UNSIGNED_HEADERS: Final = (
    "HMAC signs the body, not the ce-* headers of binary mode: send structured mode, or an OIDC token"
)


class Authenticator:
    """Reads the credentials of requests. `tolerance`: maximum age of a signature in seconds."""

    def __init__(self, keys: Keys, tokens: Tokens, clock: Clock, tolerance: float) -> None:
        self._keys = keys
        self._tokens = tokens
        self._clock = clock
        self._tolerance = tolerance

    def credentials(
        self, headers: Headers, body: bytes, *, in_headers: bool, schemes: Sequence[Scheme] = (STANDARD,)
    ) -> SenderCredentials:
        """Return the credentials of one request. Raises BadEvent (400) for two Authorization headers.

        `in_headers`: the event's attributes are headers, which a signature does not cover.
        """
        now = self._clock.now().timestamp()
        authorization = single_header(headers, b"authorization").decode("latin-1")
        is_bearer = authorization[: len(_BEARER)].lower() == _BEARER
        token = authorization[len(_BEARER) :].strip() if is_bearer else ""
        signature = UNSIGNED_HEADERS if in_headers else parse_signature(headers, now, self._tolerance, schemes)
        return SenderCredentials(self._keys, self._tokens, token, signature, body)


class SenderCredentials:
    """The bearer token and the signature of one request. Each check of them is made once."""

    def __init__(self, keys: Keys, tokens: Tokens, token: str, signature: WebhookSignature | str, body: bytes) -> None:
        """`signature`: the parsed signature, or why there is none."""
        self._keys = keys
        self._tokens = tokens
        self._token = token
        self._signature = signature
        self._body = body
        self._refusals: dict[tuple[str, HmacAuth | OidcAuth], str] = {}
        self.senders: dict[str, EventSource | BadEvent] = {}
        """Results of authentication by `source` attribute, cached by the caller."""

    async def authenticate(self, candidates: Sequence[EventSource], what: str) -> EventSource:
        """Return the first of `candidates` that accepts these credentials for `what`.

        Raises BadEvent: 401, or 403 for a token that is accepted in two namespaces. Raises TryLater (503) if keys
        cannot be read. The message explains what is wrong with the credentials, but does not reveal EventSources.
        """
        unknown: TryLater | None = None
        found: EventSource | None = None
        for candidate in candidates:
            if found is not None and (candidate.namespace == found.namespace or isinstance(candidate.auth, HmacAuth)):
                continue
            check = (candidate.namespace, candidate.auth)
            try:
                if check not in self._refusals:
                    self._refusals[check] = await self._refusal(*check)
            except TryLater as error:
                unknown = error
                continue
            if self._refusals[check]:
                continue
            if found is not None:
                raise BadEvent(HTTPStatus.FORBIDDEN, CLAIMED_TWICE)
            if isinstance(candidate.auth, HmacAuth):
                return candidate
            found = candidate
        if found is not None:
            return found
        if unknown is not None:
            raise unknown
        raise BadEvent(HTTPStatus.UNAUTHORIZED, f"no EventSource accepts {what} from this sender: {self._fault()}")

    def _fault(self) -> str:
        if self._token:
            return "the token does not match (issuer, audience, subject, expiry, signature)"
        if isinstance(self._signature, str):
            return self._signature
        return "the signature does not match"

    async def _refusal(self, namespace: str, auth: HmacAuth | OidcAuth) -> str:
        """Return why `auth` of an EventSource in `namespace` refuses the credentials, empty if it accepts them."""
        if isinstance(auth, OidcAuth):
            if not is_allowed_subject(namespace, auth.subject):
                return "the subject is a service account of another namespace"
            return await self._tokens.refusal(self._token, auth) if self._token else "it has no bearer token"
        if isinstance(self._signature, str):
            return self._signature
        try:
            known = await self._keys.secrets(namespace, auth.secret)
            if self._signature.is_by(known, self._body):
                return ""
            newer = await self._keys.secrets(namespace, auth.secret, again=True)
            if newer != known and self._signature.is_by(newer, self._body):
                return ""
        except ClusterError as error:
            message = "the keys of senders cannot be read at present, retry later"
            raise TryLater(HTTPStatus.SERVICE_UNAVAILABLE, message) from error
        return "the signature matches no key of the Secret"
