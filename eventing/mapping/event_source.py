"""Parses EventSources. Pure.

The API's validation (`serving`) refuses invalid EventSources; one that is invalid here accepts no events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import Object, key_of, name_of, namespace_of
from eventing.objects.apis import ObjectPart
from eventing.objects.ports import EventSource, HmacAuth, OidcAuth, Translation

Reach = Callable[[str], bool]
"""Returns whether EventSources in a namespace may change Models in other namespaces."""


def nowhere(_namespace: str) -> bool:
    """Return False: a `Reach` without any namespace."""
    return False


def read_event_source(obj: Object) -> EventSource:
    """Return the checked EventSource. Raises Invalid."""
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
    """Return the number of pending events in its status, 0 if absent."""
    pending = (obj.get("status") or {}).get("pending")
    return pending if isinstance(pending, int) and pending > 0 else 0


def within_reach(source: EventSource, reach: Reach) -> EventSource:
    """Return the EventSource with only the `models` of its own namespace, unless it may change those in others."""
    if reach(source.namespace):
        return source
    parted = [pattern.rpartition("/") for pattern in source.models]
    names = [name for of, slash, name in parted if not slash or fnmatchcase(source.namespace, of)]
    return msgspec.structs.replace(source, models=tuple(names))


class _SecretRef(ObjectPart, frozen=True):
    name: str


class _Hmac(ObjectPart, frozen=True):
    secret_ref: _SecretRef


class _Oidc(ObjectPart, frozen=True):
    issuer: str
    audience: str
    subject: str


class _Auth(ObjectPart, frozen=True):
    hmac: _Hmac | None = None
    oidc: _Oidc | None = None


class _Spec(ObjectPart, frozen=True):
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
    """Compile the mapping. Raises Invalid.

    The import is lazy, because its JSONPath library takes 0.1 s to import and most EventSources have no mapping.
    """
    if not mapping:
        return None
    from eventing.mapping.mapping import compile_mapping

    try:
        return compile_mapping(mapping)
    except Invalid as exc:
        raise Invalid(f"EventSource {str(key_of(obj))!r}", exc.causes) from exc
