"""Who sent a request: its proof, held against the EventSources that it may be from.

An EventSource asks for HMAC or for OIDC. HMAC signs the body alone, so an event in binary mode, whose attributes are
headers, needs OIDC (design §6).

Who has an EventSource's key is meant by it. A token says nothing of EventSources, and anybody may write one for its
subject: a service account counts in its own namespace alone, any other subject where no second namespace claims it.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from clusters.base.clock import Clock
from clusters.base.errors import ClusterError
from eventing.auth.hmac_keys import Keys
from eventing.auth.oidc import Tokens
from eventing.auth.signatures import STANDARD, Scheme, Signed, signed
from eventing.auth.subjects import may_name
from eventing.errors import BadEvent, TryLater
from eventing.http import Headers, only
from eventing.objects.ports import EventSource, HmacAuth, OidcAuth

_BEARER: Final = "bearer "
CLAIMED_TWICE: Final = (
    "EventSources of several namespaces are for this sender and source: send to /events/NAMESPACE/NAME of one of them"
)
UNSIGNED_HEADERS: Final = "HMAC signs the body, not the headers ce-*: send structured mode, or a token of OIDC"


class Authenticator:
    """Checks proofs; `tolerance`: seconds that a signature's time may be off."""

    def __init__(self, keys: Keys, tokens: Tokens, clock: Clock, tolerance: float) -> None:
        self._keys = keys
        self._tokens = tokens
        self._clock = clock
        self._tolerance = tolerance

    def proof(
        self, headers: Headers, body: bytes, *, in_headers: bool, schemes: Sequence[Scheme] = (STANDARD,)
    ) -> Proof:
        """Of one request; `in_headers`: attributes of its event are headers."""
        now = self._clock.now().timestamp()
        signature = UNSIGNED_HEADERS if in_headers else signed(headers, now, self._tolerance, schemes)
        return Proof(self._keys, self._tokens, _token(headers), signature, body)


class Proof:
    """What one request proves, asked once for each way to prove it."""

    def __init__(self, keys: Keys, tokens: Tokens, token: str, signature: Signed | str, body: bytes) -> None:
        self._keys = keys
        self._tokens = tokens
        self._token = token
        self._signature = signature
        self._body = body
        self._asked: dict[tuple[str, HmacAuth | OidcAuth], str] = {}
        self.senders: dict[str, EventSource | BadEvent] = {}
        """Whose events of a `source` it makes them, as far as that was asked for."""

    async def sender(self, candidates: Sequence[EventSource], what: str) -> EventSource:
        """The first of `candidates` that it is of. Raises BadEvent: 401, 403 for a token that counts in two namespaces;
        TryLater (503) when that cannot be told now.

        The answer tells what is wrong with the proof's form, but not which EventSources there are.
        """
        unknown: TryLater | None = None
        found: EventSource | None = None
        for candidate in candidates:
            if found is not None and (candidate.namespace == found.namespace or isinstance(candidate.auth, HmacAuth)):
                continue
            try:
                if await self._refusal(candidate):
                    continue
            except TryLater as error:
                unknown = error
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
        raise BadEvent(HTTPStatus.UNAUTHORIZED, f"no EventSource lets this sender send {what}{self._form()}")

    def _form(self) -> str:
        if self._token:
            return ": the token proves nothing to it (issuer, audience, subject, expiry, signature)"
        if isinstance(self._signature, str):
            return f": {self._signature}"
        return ": the signature is by no key of it"

    async def _refusal(self, source: EventSource) -> str:
        asked = (source.namespace, source.auth)
        if asked not in self._asked:
            self._asked[asked] = await self._ask(source.namespace, source.auth)
        return self._asked[asked]

    async def _ask(self, namespace: str, auth: HmacAuth | OidcAuth) -> str:
        if isinstance(auth, OidcAuth):
            if not may_name(namespace, auth.subject):
                return "it is for a service account of another namespace"
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
            message = "the keys of senders cannot be read now: send it again"
            raise TryLater(HTTPStatus.SERVICE_UNAVAILABLE, message) from error
        return "the signature is by no key of the Secret"


def _token(headers: Headers) -> str:
    """The bearer token, empty without one. Raises BadEvent (400) for two headers."""
    given = only(headers, b"authorization").decode("latin-1")
    return given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == _BEARER else ""
