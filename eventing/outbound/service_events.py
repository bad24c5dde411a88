"""Outcomes in the words of CDEvents 0.4.1: `service.deployed` and `service.rolledback`. Pure.

Sources: cdevents/spec `continuous-deployment.md` (the subject `service`), `cloudevents-binding.md` (how its context
stands in CloudEvents' attributes); an artifact is a package URL (package-url/purl-spec).
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
"""By the type of ours; CDEvents has no word for what is between a rollout's start and its end."""
MEDIA_TYPE: Final = "application/cdevents+json"

Format = Literal["knodel", "cdevents"]
Translate = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""An event of ours as a sink gets it; None for what it does not get."""


def as_it_is(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Our own words."""
    return event


def in_cdevents(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The CDEvent in CloudEvents' JSON format; None when CDEvents has no word for it."""
    word = TYPES.get(event["type"])
    if word is None:
        return None
    data = event["data"]
    service = f"{data['namespace']}/{data['model']}"
    context = {
        "version": SPEC_VERSION,
        "id": event["id"],
        "source": event["source"],
        "type": word,
        "timestamp": event["time"],
    }
    content = {"environment": {"id": data["namespace"]}, "artifactId": purl_of(data)}
    subject = {"id": service, "source": event["source"], "type": "service", "content": content}
    body = {
        "context": context, "subject": subject, "customData": data, "customDataContentType": "application/json",
    }  # fmt: skip
    return {**event, "type": word, "subject": service, "datacontenttype": MEDIA_TYPE, "data": body}


def purl_of(data: Mapping[str, Any]) -> str:
    """The package URL of a version: `pkg:generic/NAME@VERSION` with its address and its digest as qualifiers."""
    version = data.get("version") or data["revision"]
    qualifiers = {"checksum": data.get("digest", ""), "download_url": data.get("storageUri", "")}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in qualifiers.items() if value)
    return f"pkg:generic/{quote(data['model'])}@{quote(version, safe='')}" + (f"?{query}" if query else "")


TRANSLATIONS: Final[Mapping[Format, Translate]] = {"knodel": as_it_is, "cdevents": in_cdevents}
