"""The context attributes of an event: all that the specification says of them and the SDK does not look at. Pure.

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

from eventing.errors import BadEvent, shown

REQUIRED: Final = ("specversion", "id", "source", "type")
CORE: Final = frozenset({*REQUIRED, "datacontenttype", "dataschema", "subject", "time"})
"""Attributes of the specification; the rest are extensions."""
NO_TEXTS: Final = frozenset({"data", "data_base64", "dataschema"})
"""Members that are looked at by themselves."""
SPECVERSION: Final = "1.0"
JSON: Final = "application/json"
REMEMBERED: Final = 256  # answers about sets of names and about sources, which most events share with others
LONGEST: Final = 2048
"""Characters of one attribute: a label of a broker, a header and a log line must have room for it."""
MOST_FAULTS: Final = 10  # that are told at once
MOST: Final = 100  # attributes, as a request has headers
_NAME: Final = re.compile(r"[a-z0-9]{1,64}")
_INTEGERS: Final = range(-(2**31), 2**31)  # `spec.md`, "Type System"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_URI_REFERENCE: Final = re.compile(r"(?:[\w.~:/?#\[\]@!$&'()*+,;=-]|%[0-9a-fA-F]{2})+", re.ASCII)
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+[ \t]*(;.*)?", re.ASCII)
_URI: Final = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:{_URI_REFERENCE.pattern}", re.ASCII)
_FORMS: Final = {
    "source": (_URI_REFERENCE, "no URI reference (RFC 3986): percent-encode what is none of its characters"),
    "dataschema": (_URI, "no URI (RFC 3986)"),
    "datacontenttype": (_MEDIA_TYPE, "no media type (RFC 2046)"),
}
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_ESCAPED: Final = re.compile(r"\\(.)")


def check(attributes: Mapping[str, Any]) -> None:
    """Raise BadEvent (400) that names the faults of `attributes`, of which `time` is a datetime."""
    faults = "; ".join(islice(_faults(attributes), MOST_FAULTS))
    if faults:
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"this is no CloudEvent 1.0: {faults}")


def are_plain(members: Mapping[str, Any]) -> bool:
    """Whether members of an event in JSON, but its data, are texts beyond doubt without faults, the time aside: a few
    looks at all of them together, where most events end."""
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
            yield f"the attribute's name {shown(name)} is not of a-z and 0-9, or has more than 64 of them"
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
    """A member of an event in JSON as the specification writes it. Raises BadEvent (400)."""
    if isinstance(value, str):
        return time_of(value) if name == "time" else value
    if name in CORE or not isinstance(value, int) or (not isinstance(value, bool) and value not in _INTEGERS):
        kind = "a text" if name in CORE else "a text, a boolean or an integer of 32 bits"
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"this is no CloudEvent 1.0: {shown(name)} is not {kind}")
    return str(value).lower()


def time_of(text: str) -> datetime:
    """A time of RFC 3339. Raises BadEvent (400)."""
    if _TIME.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper())
        except ValueError:
            pass  # the 31st of February
    raise BadEvent(HTTPStatus.BAD_REQUEST, f"this is no CloudEvent 1.0: time {shown(text)} is no time of RFC 3339")


def header_text(name: str, value: bytes) -> str:
    """The value of a header, still percent-encoded, without quotes around it. Raises BadEvent (400).

    `http-protocol-binding.md` §3.1.3.2; the SDK takes quotes for a part of the value, and bad UTF-8 for U+FFFD.
    """
    try:
        text = value.decode("ascii").strip(" \t")
        if len(text) > 1 and text[0] == text[-1] == '"':
            text = _ESCAPED.sub(r"\1", text[1:-1])
        if "%" in text:
            unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        message = f"the header {shown(name)} is no percent-encoded UTF-8"
        raise BadEvent(HTTPStatus.BAD_REQUEST, message) from error
    return text
