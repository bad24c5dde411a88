"""Reads `source` and `id` of a request's events without decoding the rest, for authentication. Pure.

msgspec skips all other members without creating values for them, so requests of unknown senders stay bytes. It is less
strict than `decode_json`, which decides later; here the result only selects the EventSources to authenticate against.
"""

from __future__ import annotations

from typing import Final

import msgspec

from clusters.net.cloudevents import MOST_EVENTS, ContentMode, Headers, decode_header
from eventing.http import single_header


class EventHead(msgspec.Struct, frozen=True):
    """The attributes that identify an event."""

    source: str
    id: str = ""


_ONE: Final = msgspec.json.Decoder(EventHead)
_ALL: Final = msgspec.json.Decoder(list[EventHead])
_APART: Final = msgspec.json.Decoder(list[msgspec.Raw])
_FAULTS: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def peek(headers: Headers, mode: ContentMode, body: bytes) -> list[EventHead | None]:
    """Return the head of each event, None for one that has none.

    The list is empty if the request is malformed as a whole: only the decoder can name the fault, and it needs no
    authentication for that. Raises BadEvent (400).
    """
    if mode is ContentMode.BINARY:
        source = decode_header("ce-source", single_header(headers, b"ce-source"))
        return [EventHead(source, single_header(headers, b"ce-id").decode("latin-1"))] if source else []
    try:
        found: list[EventHead | None] = [_ONE.decode(body)] if mode is ContentMode.STRUCTURED else [*_ALL.decode(body)]
    except _FAULTS:
        found = _peek_each(body) if mode is ContentMode.BATCH else []
    return found if len(found) <= MOST_EVENTS else []


def _peek_each(body: bytes) -> list[EventHead | None]:
    """Return the heads of a batch of which at least one is malformed."""
    try:
        members = _APART.decode(body)
    except _FAULTS:
        return []
    heads: list[EventHead | None] = []
    for member in members[: MOST_EVENTS + 1]:
        try:
            heads.append(_ONE.decode(member))
        except _FAULTS:
            heads.append(None)
    return heads
