"""Whose events a request says that it carries, before it is decoded: what strangers send stays bytes. Pure.

msgspec passes over all that is not asked for without making values of it. It is less strict than `json_body`, which
has the last word; here it is only about who may be asked for a proof.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eventing.http import only
from eventing.objects.attributes import header_text
from eventing.objects.event import MOST_EVENTS, Headers, Mode


class Head(msgspec.Struct, frozen=True):
    """What an event says of itself."""

    source: str
    id: str = ""


_ONE: Final = msgspec.json.Decoder(Head)
_ALL: Final = msgspec.json.Decoder(list[Head])
_APART: Final = msgspec.json.Decoder(list[msgspec.Raw])
_FAULTS: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def heads_of(headers: Headers, mode: Mode, body: bytes) -> list[Head | None]:
    """The head of each event; None for what is no event. Empty when it takes the decoder to say what is wrong: it needs
    nobody's answer for that. Raises BadEvent (400)."""
    if mode is Mode.BINARY:
        source = header_text("ce-source", only(headers, b"ce-source"))
        return [Head(source, only(headers, b"ce-id").decode("latin-1"))] if source else []
    try:
        found: list[Head | None] = [_ONE.decode(body)] if mode is Mode.STRUCTURED else [*_ALL.decode(body)]
    except _FAULTS:
        found = _apart(body) if mode is Mode.BATCH else []
    return found if len(found) <= MOST_EVENTS else []


def _apart(body: bytes) -> list[Head | None]:
    try:
        members = _APART.decode(body)
    except _FAULTS:
        return []
    return [_head(member) for member in members] if len(members) <= MOST_EVENTS else []


def _head(member: msgspec.Raw) -> Head | None:
    try:
        return _ONE.decode(member)
    except _FAULTS:
        return None
