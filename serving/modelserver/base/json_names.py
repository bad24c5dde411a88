"""Names that an object of JSON has twice. Decoders let them pass, and silently the last one counts. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from serving.modelserver.base.errors import BadRequest

_LARGE: Final = 64 * 1024  # bytes
_SHOWN: Final = 100  # characters of a caller's name that an error repeats
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NEXT: Final = re.compile(
    rb'[^{}"]*+(?:' + _STRING + rb'(?!\s*+:)[^{}"]*+)*+([{}]|' + _STRING + rb"(?=\s*+:))", re.DOTALL
)
"""The next brace or name: numbers and texts before it are passed over without a step of Python."""


def check_names(message: bytes, members: int) -> None:
    """Raise BadRequest when an object in `message`, which was decoded, has a name twice.

    `members` is how many the decoder has seen, of all objects together. Each needs a colon, so that as many colons as
    members prove that none was lost: nearly all requests are done with that, whatever their size.
    """
    if not _has_colons(message, members):
        _check_text(message)
        _look(message)


def _has_colons(message: bytes, wanted: int) -> bool:
    """Whether there are exactly so many; of a large message, which is nearly all numbers, `find` leaps over these."""
    if len(message) < _LARGE:
        return message.count(b":") == wanted
    place = -1
    for _ in range(wanted):
        place = message.find(b":", place + 1)
        if place < 0:
            return False
    return message.find(b":", place + 1) < 0


def _check_text(message: bytes) -> None:
    """What a decoder passes over, as members that it does not know, it does not read as text either."""
    try:
        _ = message.isascii() or message.decode()
    except UnicodeDecodeError as error:
        raise BadRequest("the body is no UTF-8") from error


def _look(message: bytes) -> None:
    names: list[set[bytes]] = []
    place = 0
    while (found := _NEXT.match(message, place)) is not None:
        token, place = found[1], found.end()
        if token == b"{":
            names.append(set())
        elif token == b"}":
            names.pop()
        else:
            name = _plain(token)
            if name in names[-1]:
                raise BadRequest(f"{name[:_SHOWN].decode(errors='replace')!r} is given twice")
            names[-1].add(name)


def _plain(token: bytes) -> bytes:
    """The name in UTF-8. A decoder passes over names that it does not know, whatever their escape sequences mean."""
    if b"\\" not in token:
        return token[1:-1]
    try:
        return msgspec.json.decode(token, type=str).encode()
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadRequest("the name of a member is no text") from error
