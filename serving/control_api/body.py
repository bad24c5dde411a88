"""Read request bodies within bounds and parse JSON or YAML. Every fault is a 4xx."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request

from clusters.base.errors import KnodelError
from clusters.base.sizes import format_size
from clusters.net import strict_json
from clusters.net.strict_json import BadJson, TooManyValues
from clusters.net.strict_yaml import load_documents
from serving.control_api import protobuf
from serving.control_api.status import BodyTooLarge, MalformedRequest, UnsupportedMediaType

MAX_BODY = 3 * 1024 * 1024  # bytes; the limit of kube-apiserver
MAX_YAML = 256 * 1024
"""Maximum bytes of a YAML body, which takes a hundred times as long to parse as JSON."""
QUICK = 16 * 1024
"""Maximum bytes of a body that is parsed in the event loop; larger ones are parsed in a thread."""
TOO_LARGE = f"the body is larger than {format_size(MAX_BODY)}: send one object in each request"

_CHARSET = re.compile(r"charset\s*=\s*\"?([^\s\";]*)")
JSON_TYPES = frozenset({"", "application/json"})
APPLY_TYPES = frozenset({"application/apply-patch+yaml", "application/apply-patch+cbor"})
MERGE_TYPE = "application/merge-patch+json"
JSON_PATCH_TYPE = "application/json-patch+json"
STRATEGIC_TYPE = "application/strategic-merge-patch+json"


def content_type(request: Request) -> str:
    """Return the media type in lower case without parameters, or an empty string if the header is absent.

    Raises UnsupportedMediaType for a body with another charset or content coding.
    """
    media_type, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    coding = request.headers.get("content-encoding", "").strip().lower()
    charset = _CHARSET.search(parameters)
    if coding not in ("", "identity"):
        raise UnsupportedMediaType(f"Content-Encoding {coding[:40]!r} is not supported: send the body without it")
    if charset is not None and charset[1] not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaType(f"the charset {charset[1][:40]!r} is not supported: send UTF-8")
    return media_type.strip()


async def read(request: Request, take: Callable[[int], object]) -> bytes:
    """Return the body. `take` is called with the size of each chunk before it is kept.

    Raises BodyTooLarge before more than MAX_BODY bytes are held, MalformedRequest if the caller disconnects, and the
    errors of `take`.
    """
    try:
        return await _read(request, take)
    except ClientDisconnect as error:
        raise MalformedRequest("the body is incomplete: the caller disconnected") from error


async def _read(request: Request, take: Callable[[int], object]) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MAX_BODY:
        raise BodyTooLarge(TOO_LARGE)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY:
            raise BodyTooLarge(TOO_LARGE)
        take(len(chunk))
        chunks.append(chunk)
    return b"".join(chunks)


def parse_json(body: bytes) -> Any:
    """Return the value of a JSON body, without duplicate names and NaN, and within limits of depth and size.

    Raises MalformedRequest, BodyTooLarge.
    """
    try:
        return strict_json.decode(body)
    except TooManyValues as error:
        raise BodyTooLarge(str(error)) from error
    except BadJson as error:
        raise MalformedRequest(str(error)) from error


def parse_object(body: bytes, media_type: str) -> dict[str, Any]:
    """Return one object from JSON, YAML or protobuf. Raises MalformedRequest, BodyTooLarge, UnsupportedMediaType."""
    if media_type in JSON_TYPES:
        value = parse_json(body)
    elif media_type == protobuf.MEDIA_TYPE:
        value = parse_json(protobuf.to_json(body))
    elif media_type in APPLY_TYPES or media_type == "application/yaml":
        value = _parse_json_or_yaml(body)
    else:
        raise UnsupportedMediaType(f"Content-Type {media_type!r} is not supported: send application/json")
    if not isinstance(value, dict) or not isinstance(value.get("metadata", {}), dict):
        raise MalformedRequest("the body is not an object with metadata")
    return value


def _parse_json_or_yaml(body: bytes) -> Any:
    """Parse JSON or else YAML. kubectl sends JSON and users write YAML, so errors are those of the YAML parser."""
    try:
        return parse_json(body)
    except MalformedRequest:
        if len(body) > MAX_YAML:
            raise BodyTooLarge(
                f"the body is larger than {format_size(MAX_YAML)} and is not JSON: send JSON, or less YAML"
            ) from None
        return _parse_yaml(body)


def _parse_yaml(body: bytes) -> Any:
    try:
        documents = load_documents(body.decode())
    except (KnodelError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"the body is not YAML: {error}") from error
    if len(documents) != 1:
        raise MalformedRequest(f"the body has {len(documents)} documents: send one object in each request")
    return documents[0]
