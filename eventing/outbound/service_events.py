"""Translates events about rollouts to CDEvents 0.4.1: `service.deployed` and `service.rolledback`. Pure.

Sources: cdevents/spec `continuous-deployment.md` (the subject `service`), `cloudevents-binding.md` (the context as
CloudEvents attributes); an artifact is a package URL (package-url/purl-spec).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal
from urllib.parse import quote

from eventing.objects.outbox import PROMOTED, ROLLED_BACK

SPEC_VERSION: Final = "0.4.1"
TYPES: Final = {
    PROMOTED: "dev.cdevents.service.deployed.0.2.0",
    ROLLED_BACK: "dev.cdevents.service.rolledback.0.2.0",
}
"""CDEvents types by Knodel's types. CDEvents has none for the start and the steps of a rollout."""
MEDIA_TYPE: Final = "application/cdevents+json"

Format = Literal["knodel", "cdevents"]
Translate = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Returns an event in the sink's format, None for an event that the sink does not get."""


def as_is(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the event unchanged."""
    return event


def to_cdevents(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the CDEvent in CloudEvents' JSON format, None if CDEvents has no type for it."""
    event_type = TYPES.get(event["type"])
    if event_type is None:
        return None
    data = event["data"]
    service = f"{data['namespace']}/{data['model']}"
    context = {
        "version": SPEC_VERSION,
        "id": event["id"],
        "source": event["source"],
        "type": event_type,
        "timestamp": event["time"],
    }
    content = {"environment": {"id": data["namespace"]}, "artifactId": purl_of(data)}
    subject = {"id": service, "source": event["source"], "type": "service", "content": content}
    body = {
        "context": context, "subject": subject, "customData": data, "customDataContentType": "application/json",
    }  # fmt: skip
    return {**event, "type": event_type, "subject": service, "datacontenttype": MEDIA_TYPE, "data": body}


def purl_of(data: Mapping[str, Any]) -> str:
    """Return the package URL of a version: `pkg:generic/NAME@VERSION` with storage URI and digest as qualifiers."""
    version = data.get("version") or data["revision"]
    qualifiers = {"checksum": data.get("digest", ""), "download_url": data.get("storageUri", "")}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in qualifiers.items() if value)
    return f"pkg:generic/{quote(data['model'])}@{quote(version, safe='')}" + (f"?{query}" if query else "")


TRANSLATIONS: Final[Mapping[Format, Translate]] = {"knodel": as_is, "cdevents": to_cdevents}
