"""Detect duplicate names in JSON objects. Decoders accept them and silently use the last value. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from serving.modelserver.base.errors import InvalidRequest

_LARGE_MESSAGE: Final = 64 * 1024  # bytes
_MAX_QUOTED: Final = 100  # characters of a name that a message repeats
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NEXT: Final = re.compile(
    rb'[^{}"]*+(?:' + _STRING + rb'(?!\s*+:)[^{}"]*+)*+([{}]|' + _STRING + rb"(?=\s*+:))", re.DOTALL
)
"""Matches up to the next brace or name, so that numbers and strings before it are skipped without a step of Python."""


def check_names(message: bytes, members: int) -> None:
    """Raise InvalidRequest if an object in the decoded `message` has a duplicate name.

    `members` is the total number of members that the decoder returned, over all objects. Each member needs a colon. A
    message with exactly as many colons as members therefore has no duplicates. This fast check suffices for nearly all
    requests.
    """
    if not _has_colons(message, members):
        try:
            _ = message.isascii() or message.decode()
        except UnicodeDecodeError as error:  # a decoder does not validate the text of members that it skips
            raise InvalidRequest("the body is not valid UTF-8") from error
        _scan(message)


def _has_colons(message: bytes, wanted: int) -> bool:
    """Return whether `message` has exactly `wanted` colons. In large messages, nearly all numbers, `find` is faster."""
    if len(message) < _LARGE_MESSAGE:
        return message.count(b":") == wanted
    place = -1
    for _ in range(wanted):
        place = message.find(b":", place + 1)
        if place < 0:
            return False
    return message.find(b":", place + 1) < 0


def _scan(message: bytes) -> None:
    """Raise InvalidRequest for the first duplicate name."""
    names: list[set[bytes]] = []
    place = 0
    while (found := _NEXT.match(message, place)) is not None:
        token, place = found[1], found.end()
        if token == b"{":
            names.append(set())
        elif token == b"}":
            names.pop()
        else:
            name = token[1:-1]
            if b"\\" in name:  # decoders do not validate escape sequences in names that they skip
                try:
                    name = msgspec.json.decode(token, type=str).encode()
                except (msgspec.DecodeError, UnicodeError) as error:
                    raise InvalidRequest("the name of a member is not a valid string") from error
            if name in names[-1]:
                raise InvalidRequest(f"{name[:_MAX_QUOTED].decode(errors='replace')!r} is given twice")
            names[-1].add(name)
