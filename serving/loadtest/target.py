"""The model under load: its address, the kind of its users, and the body of their requests."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from clusters.base.errors import NotFound
from clusters.net.authority import url_host
from serving.client.effects import Call
from serving.client.errors import ClientError, Unreachable, UsageError
from serving.client.http import ServerAddress
from serving.client.inference import chat
from serving.client.inference.example import example_request, read_json
from serving.client.inference.ingress import HTTPS, IngressTarget
from serving.loadtest.load import Kind

CHAT: Final = {"messages": [{"role": "user", "content": "Describe the four seasons."}], "max_tokens": 64}
"""The request to a language model without a body of the caller."""
PORTS: Final = {"http": 80, HTTPS: 443}


@dataclass(frozen=True, slots=True)
class Target:
    """Users POST `body` with `headers` to `path` at the server of `ingress`."""

    ingress: IngressTarget
    kind: Kind
    path: str
    body: bytes

    @property
    def url(self) -> str:
        """The URL of the server, without a path."""
        endpoint = self.ingress.endpoint
        return f"http{'s' if endpoint.tls else ''}://{url_host(endpoint.host)}:{endpoint.port}"


def ingress_of(url: str, headers: Mapping[str, str]) -> IngressTarget:
    """Return the server at a URL, whose path precedes every path. Raises UsageError.

    The certificate of an https server must be valid for the header Host, if there is one.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{url} is not a URL ({error}): give one such as http://127.0.0.1:8080") from error
    if parts.scheme not in PORTS or not parts.hostname:
        raise UsageError(f"{url or 'the empty URL'} is not a URL of a server: give one such as http://127.0.0.1:8080")
    host = headers["Host"].partition(":")[0] if "Host" in headers else parts.hostname
    endpoint = ServerAddress(
        parts.hostname, port or PORTS[parts.scheme], "the server", "check the URL, and that the server runs",
        tls=ssl.create_default_context() if parts.scheme == HTTPS else None, tls_name=host,
        tls_remedy="install its certificate authority on this machine", prefix=parts.path.rstrip("/"),
    )  # fmt: skip
    return IngressTarget(endpoint, headers)


def find_target(
    ingress: IngressTarget, name: str, namespace: str, kind: Kind | Literal["auto"], body: bytes, timeout: float
) -> Call[Target]:
    """Return the target for the model `name`. An empty `body` is the model's example, or `CHAT`.

    Without a header Host, the model is searched at its path of a platform's gateway, then at a server of its own.
    Raises the errors of `read_json`, NotFound if neither has the model, UsageError for a body that is not a chat.
    """
    ingress = yield from _where_it_is(ingress, name, namespace, timeout)
    if kind == "auto":
        kind = yield from _kind_of(ingress, name, timeout)
    prefix = ingress.endpoint.prefix
    if kind == "chat":
        return Target(ingress, kind, f"{prefix}{chat.PATH}", _chat_body(name, body))
    if not body:
        body = (yield from example_request(ingress, name, timeout)).encode()
    return Target(ingress, kind, f"{prefix}/v2/models/{name}/infer", body)


def read_body(path: Path) -> bytes:
    """Return the content of a file with a JSON object. Raises UsageError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--body {path} cannot be read: {error.strerror}") from error
    _parse(content, f"--body {path}")
    return content


def _where_it_is(ingress: IngressTarget, name: str, namespace: str, timeout: float) -> Call[IngressTarget]:
    endpoint = ingress.endpoint
    paths = [f"{endpoint.prefix}/namespaces/{namespace}/models/{name}", endpoint.prefix]
    for prefix in paths[1:] if "Host" in ingress.headers else paths:
        found = replace(ingress, endpoint=replace(endpoint, prefix=prefix))
        try:
            yield from read_json(found, name, f"/v2/models/{name}", timeout)
        except NotFound:
            continue
        return found
    raise NotFound(f"{endpoint.where} has no model {name} in namespace {namespace}: `knodel list -A` lists all")


def _kind_of(ingress: IngressTarget, name: str, timeout: float) -> Call[Kind]:
    """Return `chat` for a model whose OpenAPI document has the path of chats."""
    try:
        page = yield from read_json(ingress, name, "/openapi.json", timeout)
    except Unreachable:
        raise
    except (ClientError, NotFound):  # of another server of the protocol
        return "infer"
    paths = page.get("paths") if isinstance(page, dict) else None
    return "chat" if any(chat.PATH.endswith(path) for path in paths or ()) else "infer"


def _chat_body(name: str, body: bytes) -> bytes:
    """Return the body of a chat: the fields `model` and `stream` of the caller's body are replaced."""
    given: dict[str, Any] = {**(_parse(body, "--body") if body else CHAT)}
    messages = chat.messages_of(given.pop("messages", ()))
    parameters = {field: value for field, value in given.items() if field not in ("model", "stream")}
    return chat.chat_body(name, "", messages, parameters, stream=True)


def _parse(content: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise UsageError(f"{what} is not a JSON object")
    return found
