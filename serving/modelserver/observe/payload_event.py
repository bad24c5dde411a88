"""Build CloudEvents of requests and responses, with the types and attributes of KServe's inference logger. Pure.

The events are in binary mode (CloudEvents HTTP binding §3.1). Their body is the unchanged payload with its own content
headers, so a consumer that can parse a request can parse the event.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from clusters.net.cloudevents import to_headers
from serving.modelserver.base.headers import JSON_LENGTH, Headers

REQUEST: Final = "org.kubeflow.serving.inference.request"
RESPONSE: Final = "org.kubeflow.serving.inference.response"
EVENT_ID: Final = b"ce-id"
ID_HEADERS: Final = (EVENT_ID, b"x-request-id")
"""Headers with the client's id of a request, in order of precedence; KServe's logger uses only `ce-id`."""
MAX_ID_LENGTH: Final = 256  # characters; a longer id is replaced by a generated one
_DESCRIBING: Final = (b"content-type", b"content-encoding", JSON_LENGTH)


@dataclass(frozen=True, slots=True)
class Origin:
    """The model of the payloads; `namespace` is "" when it is not configured."""

    model: str
    revision: str
    namespace: str

    @property
    def source(self) -> str:
        """The `source` attribute of the events."""
        return f"/namespaces/{self.namespace}/models/{self.model}" if self.namespace else f"/models/{self.model}"


@dataclass(frozen=True, slots=True)
class PayloadEvent:
    """The headers and body of an HTTP request that delivers an event. `size` is the total size of the body in bytes."""

    headers: dict[str, str]
    body: tuple[bytes, ...]
    size: int


def payload_event(
    type: str, id: str, at: str, origin: Origin, headers: Headers, body: list[bytes], trace_parent: str = ""
) -> PayloadEvent:
    """Return the event of a payload that was received or sent at the time `at` (RFC 3339) with `headers`."""
    attributes = {
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
    encoded = {
        name.decode(): value.decode()
        for name, value in to_headers({name: text for name, text in attributes.items() if text})
    }
    return PayloadEvent({"content-type": "application/json", **described, **encoded}, tuple(body), sum(map(len, body)))


def request_id(headers: Headers) -> str:
    """Return the client's id of the request, or a generated one."""
    for wanted in ID_HEADERS:
        for name, value in headers:
            if name == wanted and 0 < len(value) <= MAX_ID_LENGTH:
                return unquote(value.decode("latin-1")) if name == EVENT_ID else value.decode("latin-1")
    return str(uuid.uuid4())
