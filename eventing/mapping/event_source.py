"""An EventSource: who may send events, about which Models, and what of. Pure.

The API's own validation (serving) has refused what is wrong; one that is still unreadable here lets nobody in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import Object, key_of, name_of, namespace_of
from eventing.objects.apis import Part
from eventing.objects.ports import HmacAuth, OidcAuth, Translation

ANY: Final = "*"
"""Last character of a `source` that is a prefix."""


Reach = Callable[[str], bool]
"""Whether EventSources of that namespace may speak of Models in others."""


def nowhere(_namespace: str) -> bool:
    """The reach of those who have none."""
    return False


class EventSource(msgspec.Struct, frozen=True):
    """A checked EventSource, as the webhook and the controller read it; for the fields see `ports.EventSource`.

    `allow_code`: whether its events may bring formats that run code of the artifact; `create_models`: whether they may
    make a Model that is not there.
    """

    namespace: str
    name: str
    source: str
    auth: HmacAuth | OidcAuth
    models: tuple[str, ...]
    storage_prefixes: tuple[str, ...] = ()
    allow_code: bool = False
    create_models: bool = False
    mapping: Translation | None = None
    pending: int = 0
    is_counted: bool = True

    @property
    def rank(self) -> tuple[bool, int, str, str]:
        """Which of several that match comes first: the exact, then the longer prefix, then by namespace and name."""
        return self.source.endswith(ANY), -len(self.source), self.namespace, self.name

    def matches(self, source: str) -> bool:
        """Whether it is for events of that `source` attribute."""
        if self.source.endswith(ANY):
            return source.startswith(self.source.removesuffix(ANY))
        return source == self.source


def read_event_source(obj: Object) -> EventSource:
    """The checked EventSource. Raises Invalid."""
    try:
        spec = msgspec.convert(obj.get("spec"), _Spec)
        auth = _auth(spec.auth)
    except (msgspec.ValidationError, ValueError) as exc:
        raise Invalid(f"EventSource {str(key_of(obj))!r}", [FieldError("spec", str(exc))]) from exc
    return EventSource(
        namespace=namespace_of(obj),
        name=name_of(obj),
        source=spec.source,
        auth=auth,
        models=tuple(spec.models),
        storage_prefixes=tuple(spec.storage_prefixes or ()),
        allow_code=spec.allow_code is True,
        create_models=spec.create_models is True,
        mapping=_mapping(obj, spec.mapping),
        pending=pending_of(obj),
        is_counted="observedGeneration" in (obj.get("status") or {}),
    )


def pending_of(obj: Object) -> int:
    """How many of its events wait, as its status says; 0 when it says nothing."""
    pending = (obj.get("status") or {}).get("pending")
    return pending if isinstance(pending, int) and pending > 0 else 0


def within_reach(source: EventSource, reach: Reach) -> EventSource:
    """The EventSource with `models` of its own namespace alone, unless it may speak of those in others."""
    if reach(source.namespace):
        return source
    parted = [pattern.rpartition("/") for pattern in source.models]
    names = [name for of, slash, name in parted if not slash or fnmatchcase(source.namespace, of)]
    return msgspec.structs.replace(source, models=tuple(names))


class _SecretRef(Part, frozen=True):
    name: str


class _Hmac(Part, frozen=True):
    secret_ref: _SecretRef


class _Oidc(Part, frozen=True):
    issuer: str
    audience: str
    subject: str


class _Auth(Part, frozen=True):
    hmac: _Hmac | None = None
    oidc: _Oidc | None = None


class _Spec(Part, frozen=True):
    source: str
    auth: _Auth
    models: list[str]
    storage_prefixes: list[str] | None = None
    allow_code: bool | None = None
    create_models: bool | None = None
    mapping: dict[str, Any] | None = None


def _auth(auth: _Auth) -> HmacAuth | OidcAuth:
    match auth.hmac, auth.oidc:
        case _Hmac() as hmac, None:
            return HmacAuth(hmac.secret_ref.name)
        case None, _Oidc() as oidc:
            return OidcAuth(oidc.issuer, oidc.audience, oidc.subject)
    raise ValueError("auth must have either hmac or oidc")


def _mapping(obj: Object, mapping: Mapping[str, Any] | None) -> Translation | None:
    """Raises Invalid. Paths are a library's matter that takes 0.1 s to import: who has no mapping does without."""
    if not mapping:
        return None
    from eventing.mapping.mapping import compile_mapping

    try:
        return compile_mapping(mapping)
    except Invalid as exc:
        raise Invalid(f"EventSource {str(key_of(obj))!r}", exc.causes) from exc
