"""Responses of stores, read as a whole, and errors with the store's own message."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree  # nosec B405 - see `parse_xml`

from clusters.base.redact import printable, redact, truncate
from serving.storage.base.errors import StorageError

LARGEST: Final = 16 << 20  # bytes; a page of a listing is the largest response
_LONGEST_MESSAGE: Final = 300  # characters of the store's message in an error
_OTHER_REGION: Final = (301, 307, 400)
"""Statuses of S3 for a request to another region than that of the bucket; responses to HEAD have no message."""
_SECRETS: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b|\bya29\.[-\w.]+|\beyJ[-\w]+\.[-\w.]+")
"""Key ids of AWS, access tokens of Google, and JSON web tokens."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: status, headers with names in lower case, and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str:
        """Return the value of a header (its name in lower case); "" when it is absent."""
        return self.headers.get(name, "")

    def json(self, name: str) -> dict[str, Any]:
        """Return the body as a JSON object. Raises StorageError."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise StorageError(f"{name}: cannot be uploaded: the response of the store is not JSON") from error
        return found if isinstance(found, dict) else {}

    def reason(self) -> str:
        """Return the store's message in parentheses, redacted and with a leading space; "" without one."""
        code, message = _xml_error(self.body) or _json_error(self.body)
        region = self.header("x-amz-bucket-region") if self.status in _OTHER_REGION else ""
        place = f"the bucket is in the region {region}" if region else ""
        parts = [part for part in (code, message, place) if part]
        text = _SECRETS.sub("…", redact(printable(": ".join(parts))))
        return f" ({truncate(text, _LONGEST_MESSAGE)})" if text else ""


def parse_xml(body: bytes) -> ElementTree.Element | None:
    """Return the root of an XML document; None for anything else, and for one with a document type."""
    if b"<!" in body or b"\0" in body:  # a document type could define entities; NUL bytes occur in UTF-16
        return None
    try:
        return ElementTree.fromstring(body)  # noqa: S314 - without document types, and bounded
    except (ElementTree.ParseError, ValueError):
        return None


def error_code(body: bytes) -> str:
    """Return the code of an error of S3, such as `NoSuchUpload`; "" for another body."""
    return (_xml_error(body) or ("", ""))[0]


def _xml_error(body: bytes) -> tuple[str, str] | None:
    root = parse_xml(body)
    if root is None or root.tag.rpartition("}")[2] != "Error":
        return None
    return (root.findtext("{*}Code") or "").strip(), (root.findtext("{*}Message") or "").strip()


def _json_error(body: bytes) -> tuple[str, str]:
    """Return code and message of an error of Google (`error.message`) or of a registry (`errors[0]`)."""
    try:
        found = json.loads(body)
        error = found["errors"][0] if "errors" in found else found["error"]
        code = error.get("code", "")
        return (code if isinstance(code, str) else ""), str(error.get("message") or "")
    except (ValueError, RecursionError, KeyError, IndexError, TypeError, AttributeError):
        return "", ""
