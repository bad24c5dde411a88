"""Request bodies: a bounded read, then JSON or YAML, with every fault a 4xx."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from clusters.errors import KnodelError
from serving.api.status import BadRequest, TooLarge, UnsupportedMediaType
from serving.apis.loader import load_documents

MAX_BODY = 3 * 1024 * 1024  # bytes; the limit of kube-apiserver
TOO_LARGE = f"the body is larger than {MAX_BODY} bytes: send one object a request"

JSON_TYPES = frozenset({"", "application/json"})
APPLY_TYPES = frozenset({"application/apply-patch+yaml", "application/apply-patch+cbor"})
MERGE_TYPE = "application/merge-patch+json"
JSON_PATCH_TYPE = "application/json-patch+json"


def content_type(request: Request) -> str:
    """The media type without parameters, lower case; empty when the header is absent."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read(request: Request) -> bytes:
    """The body. Raises TooLarge before more than MAX_BODY bytes are held, BadRequest when the caller leaves within."""
    try:
        return await _read(request)
    except ClientDisconnect as error:
        raise BadRequest("the body ended before its end: the caller left") from error


async def _read(request: Request) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MAX_BODY:
        raise TooLarge(TOO_LARGE)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY:
            raise TooLarge(TOO_LARGE)
        chunks.append(chunk)
    return b"".join(chunks)


def parse_json(body: bytes) -> Any:
    """Any JSON value. Raises BadRequest."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is no JSON: {error}") from error


def parse_object(body: bytes, media_type: str) -> dict[str, Any]:
    """One object, as JSON or YAML by its media type. Raises BadRequest, UnsupportedMediaType."""
    if media_type in JSON_TYPES:
        value = parse_json(body)
    elif media_type in APPLY_TYPES or media_type == "application/yaml":
        value = _parse_yaml(body)
    else:
        raise UnsupportedMediaType(f"Content-Type {media_type!r} is not taken here: send application/json")
    if not isinstance(value, dict) or not isinstance(value.get("metadata", {}), dict):
        raise BadRequest("the body is no object with metadata")
    return value


def _parse_yaml(body: bytes) -> Any:
    try:
        documents = load_documents(body.decode())
    except (KnodelError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is no YAML: {error}") from error
    if len(documents) != 1:
        raise BadRequest(f"the body holds {len(documents)} documents: send one object a request")
    return documents[0]
