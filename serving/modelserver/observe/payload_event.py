"""Requests and answers as CloudEvents, by the types and attributes of KServe's inference logger. Pure.

In binary mode (CloudEvents HTTP binding §3.1): the body is the payload as it came over the wire, its own headers beside
it, so that whoever can read a request can read the event.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from serving.modelserver.base.headers import JSON_LENGTH, Headers

REQUEST: Final = "org.kubeflow.serving.inference.request"
RESPONSE: Final = "org.kubeflow.serving.inference.response"
EVENT_ID: Final = b"ce-id"
ID_HEADERS: Final = (EVENT_ID, b"x-request-id")
"""What a caller calls its request by, the first of them that there is; KServe's logger knows `ce-id` only."""
LONGEST_ID: Final = 256  # characters; one of our own replaces a longer one
_DESCRIBING: Final = (b"content-type", b"content-encoding", JSON_LENGTH)
_PLAIN: Final = "!#$&'()*+,/:;=?@[]^`{|}~-._<>\\"
"""What a header's value may hold as it is, beside letters and digits (CloudEvents HTTP binding §3.1.3.2)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose payloads they are; `namespace` is "" where nobody said it."""

    model: str
    revision: str
    namespace: str

    @property
    def source(self) -> str:
        """The events' source."""
        return f"/namespaces/{self.namespace}/models/{self.model}" if self.namespace else f"/models/{self.model}"


@dataclass(frozen=True, slots=True)
class PayloadEvent:
    """An HTTP request to be: its headers and the pieces of its body, `size` bytes together."""

    headers: dict[str, str]
    body: tuple[bytes, ...]
    size: int


def payload_event(
    type: str, id: str, at: str, origin: Origin, headers: Headers, body: list[bytes], trace_parent: str = ""
) -> PayloadEvent:
    """The event of a payload that came, or went, `at` (RFC 3339) with `headers`."""
    attributes = {
        "specversion": "1.0",
        "type": type,
        "id": id,
        "source": origin.source,
        "time": at,
        "inferenceservicename": origin.model,
        "namespace": origin.namespace,
        "component": "predictor",
        "knodelrevision": origin.revision,
        "traceparent": trace_parent,
    }
    described = {name.decode(): value.decode("latin-1") for name, value in headers if name in _DESCRIBING}
    said = {f"ce-{name}": quote(value, safe=_PLAIN) for name, value in attributes.items() if value}
    return PayloadEvent({"content-type": "application/json", **described, **said}, tuple(body), sum(map(len, body)))


def request_id(headers: Headers) -> str:
    """What the caller calls the request, or a new name."""
    for wanted in ID_HEADERS:
        for name, value in headers:
            if name == wanted and 0 < len(value) <= LONGEST_ID:
                return unquote(value.decode("latin-1")) if name == EVENT_ID else value.decode("latin-1")
    return str(uuid.uuid4())
