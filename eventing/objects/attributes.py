"""Checks the context attributes of an event by the rules of the specification that the SDK does not check. Pure.

Sources: CloudEvents 1.0.2 `spec.md`, `json-format.md` §2.2, `http-protocol-binding.md` §3.1.3; RFC 3986, RFC 3339.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from http import HTTPStatus
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from eventing.errors import BadEvent, quoted

REQUIRED: Final = ("specversion", "id", "source", "type")
CORE: Final = frozenset({*REQUIRED, "datacontenttype", "dataschema", "subject", "time"})
"""Attributes of the specification; all others are extensions."""
NO_TEXTS: Final = frozenset({"data", "data_base64", "dataschema"})
"""Members that `are_plain` does not handle."""
SPECVERSION: Final = "1.0"
JSON: Final = "application/json"
REMEMBERED: Final = 256
"""Size of the caches for sets of names and for sources, which most events share with others."""
LONGEST: Final = 2048
"""Maximum characters of one attribute, so that it fits in a label of a broker, a header and a log line."""
MOST_FAULTS: Final = 10
"""Maximum number of faults in one message."""
MOST: Final = 100
"""Maximum number of attributes: the number of headers that a request may have."""
_NAME: Final = re.compile(r"[a-z0-9]{1,64}")
_INTEGERS: Final = range(-(2**31), 2**31)  # `spec.md`, "Type System"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_URI_REFERENCE: Final = re.compile(r"(?:[\w.~:/?#\[\]@!$&'()*+,;=-]|%[0-9a-fA-F]{2})+", re.ASCII)
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+[ \t]*(;.*)?", re.ASCII)
_URI: Final = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:{_URI_REFERENCE.pattern}", re.ASCII)
_FORMS: Final = {
    "source": (_URI_REFERENCE, "not a URI reference (RFC 3986): percent-encode other characters"),
    "dataschema": (_URI, "not a URI (RFC 3986)"),
    "datacontenttype": (_MEDIA_TYPE, "not a media type (RFC 2046)"),
}
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_ESCAPED: Final = re.compile(r"\\(.)")


def check(attributes: Mapping[str, Any]) -> None:
    """Check all attributes; `time` is a datetime already. Raises BadEvent (400) that names their faults."""
    faults = "; ".join(islice(_faults(attributes), MOST_FAULTS))
    if faults:
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"invalid CloudEvents 1.0 event: {faults}")


def are_plain(members: Mapping[str, Any]) -> bool:
    """Return whether the JSON members of an event, without its data, are valid texts, except for `time`.

    This fast path handles most events with a few checks of all members at once. False means that `check` must decide.
    """
    try:
        text = "".join(members.values())
    except TypeError:
        return False
    return (
        len(text) <= LONGEST
        and text.isprintable()
        and all(members.values())
        and len(members) <= MOST
        and len("".join(members)) <= LONGEST  # before it is remembered
        and _are_plain_names(tuple(members))
        and members["specversion"] == SPECVERSION
        and _is_uri_reference(members["source"])
        and members.get("datacontenttype", JSON) == JSON
    )


@lru_cache(REMEMBERED)
def _are_plain_names(names: tuple[str, ...]) -> bool:
    return set(REQUIRED).issubset(names) and NO_TEXTS.isdisjoint(names) and all(map(_NAME.fullmatch, names))


@lru_cache(REMEMBERED)
def _is_uri_reference(text: str) -> bool:
    return _URI_REFERENCE.fullmatch(text) is not None


def _faults(attributes: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{name} is missing" for name in REQUIRED if not attributes.get(name))
    if len(attributes) > MOST:
        yield f"it has more than {MOST} attributes"
    for name, value in attributes.items():
        if not _NAME.fullmatch(name):
            yield f"the attribute name {quoted(name)} is not 1 to 64 characters of a-z and 0-9"
        elif isinstance(value, str):
            yield from _text_faults(name, value)


def _text_faults(name: str, value: str) -> Iterator[str]:
    if len(value) > LONGEST:
        yield f"{name} has more than {LONGEST} characters"
    elif _CONTROL.search(value):
        yield f"{name} has control characters"
    elif value and name in _FORMS and not _FORMS[name][0].fullmatch(value):
        yield f"{name} is {_FORMS[name][1]}"


def canonical(name: str, value: object) -> str | datetime:
    """Return a JSON member of an event in the specification's canonical text. Raises BadEvent (400)."""
    if isinstance(value, str):
        return time_of(value) if name == "time" else value
    if name in CORE or not isinstance(value, int) or (not isinstance(value, bool) and value not in _INTEGERS):
        kind = "a string" if name in CORE else "a string, a boolean or a 32-bit integer"
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"invalid CloudEvents 1.0 event: {quoted(name)} is not {kind}")
    return str(value).lower()


def time_of(text: str) -> datetime:
    """Parse an RFC 3339 time. Raises BadEvent (400)."""
    if _TIME.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper())
        except ValueError:
            pass  # for example 31 February
    message = f"invalid CloudEvents 1.0 event: time {quoted(text)} is not an RFC 3339 time"
    raise BadEvent(HTTPStatus.BAD_REQUEST, message)


def header_text(name: str, value: bytes) -> str:
    """Return the value of a header without surrounding quotes, still percent-encoded. Raises BadEvent (400).

    Source: `http-protocol-binding.md` §3.1.3.2. The SDK keeps quotes as part of the value, and replaces bad UTF-8 by
    U+FFFD.
    """
    try:
        text = value.decode("ascii").strip(" \t")
        if len(text) > 1 and text[0] == text[-1] == '"':
            text = _ESCAPED.sub(r"\1", text[1:-1])
        if "%" in text:
            unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        message = f"the header {quoted(name)} is not percent-encoded UTF-8"
        raise BadEvent(HTTPStatus.BAD_REQUEST, message) from error
    return text
