"""Request bodies: a bounded read, then JSON or YAML, with every fault a 4xx."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request

from clusters.base.errors import KnodelError
from clusters.base.sizes import format_size
from clusters.net import strict_json
from clusters.net.strict_json import BadJson, TooManyValues
from serving.control_api import protobuf
from serving.control_api.status import BadRequest, TooLarge, UnsupportedMediaType
from serving.types.loader import load_documents

MAX_BODY = 3 * 1024 * 1024  # bytes; the limit of kube-apiserver
MAX_YAML = 256 * 1024
"""Bytes of a body that is YAML and no JSON, which takes a hundred times as long to read."""
QUICK = 16 * 1024
"""Bytes of a body that is parsed while others wait; larger ones are read in a thread."""
TOO_LARGE = f"the body is larger than {format_size(MAX_BODY)}: send one object a request"

_CHARSET = re.compile(r"charset\s*=\s*\"?([^\s\";]*)")
JSON_TYPES = frozenset({"", "application/json"})
APPLY_TYPES = frozenset({"application/apply-patch+yaml", "application/apply-patch+cbor"})
MERGE_TYPE = "application/merge-patch+json"
JSON_PATCH_TYPE = "application/json-patch+json"
STRATEGIC_TYPE = "application/strategic-merge-patch+json"


def content_type(request: Request) -> str:
    """The media type without parameters, lower case; empty when the header is absent.

    Raises UnsupportedMediaType for a body in another charset or coding: it would be read as what it is not.
    """
    media_type, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    coding = request.headers.get("content-encoding", "").strip().lower()
    charset = _CHARSET.search(parameters)
    if coding not in ("", "identity"):
        raise UnsupportedMediaType(f"Content-Encoding {coding[:40]!r} is not taken here: send the body as it is")
    if charset is not None and charset[1] not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaType(f"the charset {charset[1][:40]!r} is not taken here: send UTF-8")
    return media_type.strip()


async def read(request: Request, take: Callable[[int], object]) -> bytes:
    """The body, whose pieces' sizes `take` is told before they are kept.

    Raises TooLarge before more than MAX_BODY bytes are held, BadRequest when the caller leaves within, and as `take`.
    """
    try:
        return await _read(request, take)
    except ClientDisconnect as error:
        raise BadRequest("the body ended before its end: the caller left") from error


async def _read(request: Request, take: Callable[[int], object]) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MAX_BODY:
        raise TooLarge(TOO_LARGE)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY:
            raise TooLarge(TOO_LARGE)
        take(len(chunk))
        chunks.append(chunk)
    return b"".join(chunks)


def parse_json(body: bytes) -> Any:
    """Any JSON value that all parsers read alike, as the YAML of a file is read: nothing twice, nothing without end.

    Raises BadRequest, TooLarge.
    """
    try:
        return strict_json.decode(body)
    except TooManyValues as error:
        raise TooLarge(str(error)) from error
    except BadJson as error:
        raise BadRequest(str(error)) from error


def parse_object(body: bytes, media_type: str) -> dict[str, Any]:
    """One object, as JSON, YAML or protobuf by its media type. Raises BadRequest, TooLarge, UnsupportedMediaType."""
    if media_type in JSON_TYPES:
        value = parse_json(body)
    elif media_type == protobuf.MEDIA_TYPE:
        value = parse_json(protobuf.to_json(body))
    elif media_type in APPLY_TYPES or media_type == "application/yaml":
        value = _parse_json_or_yaml(body)
    else:
        raise UnsupportedMediaType(f"Content-Type {media_type!r} is not taken here: send application/json")
    if not isinstance(value, dict) or not isinstance(value.get("metadata", {}), dict):
        raise BadRequest("the body is no object with metadata")
    return value


def _parse_json_or_yaml(body: bytes) -> Any:
    """kubectl sends JSON; people write YAML. What is no JSON is told as what is wrong with it as YAML."""
    try:
        return parse_json(body)
    except BadRequest:
        if len(body) > MAX_YAML:
            raise TooLarge(
                f"the body is larger than {format_size(MAX_YAML)} and no JSON: send JSON, or less YAML"
            ) from None
        return _parse_yaml(body)


def _parse_yaml(body: bytes) -> Any:
    try:
        documents = load_documents(body.decode())
    except (KnodelError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is no YAML: {error}") from error
    if len(documents) != 1:
        raise BadRequest(f"the body holds {len(documents)} documents: send one object a request")
    return documents[0]
