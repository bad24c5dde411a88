"""CloudEvents from strangers: what is taken can be stored, named and logged; what is not is the sender's fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from hypothesis import strategies as st

from clusters.net.cloudevents import BATCH, LONGEST, STRUCTURED, BadEvent, Event, Malformed, from_http
from eventing.objects.model_event import event_name
from tests.fuzz.messages import mutilated
from tests.fuzz.target import Target

SENDERS_FAULTS = frozenset({400, 413, 415})
LONGEST_REASON = 1200  # characters of an error: it may repeat a name, not the message

NAMES = ("id", "source", "type", "specversion", "time", "subject", "datacontenttype", "dataschema", "data", "sequence")
WORDS = (
    "1.0",
    "1",
    "/a",
    "a b",
    "2026-01-01T00:00:00Z",
    "application/json",
    "",
    "%0d%0a",
    '"q"',
    "\\",
    "\x00",
    "é",
    "\ud800",
)
GOOD: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t"}
VALUES = st.sampled_from(WORDS) | st.text(max_size=5) | st.none() | st.integers() | st.floats() | st.booleans()
MEMBERS = st.dictionaries(
    st.sampled_from([*NAMES, "data_base64"]) | st.text(max_size=5), VALUES | st.lists(VALUES, max_size=2)
)
OBJECTS = MEMBERS.map(lambda members: {**GOOD, **members})
BODIES = st.one_of(
    OBJECTS.map(lambda one: json.dumps(one).encode()),
    st.lists(OBJECTS | VALUES, max_size=4).map(lambda many: json.dumps(many).encode()),
    mutilated(OBJECTS.map(lambda one: json.dumps(one).encode())),
    st.binary(max_size=20),
)
TYPES = st.sampled_from([STRUCTURED, BATCH, "application/json", "text/plain", "application/cloudevents+xml", ""])
HEADER_VALUES = st.sampled_from([word.encode("utf-8", "surrogatepass") for word in WORDS]) | st.binary(max_size=6)
EVENT_HEADERS = st.dictionaries(st.sampled_from([f"ce-{name}".encode() for name in NAMES]), HEADER_VALUES)
GOOD_HEADERS = {f"ce-{name}".encode(): str(value).encode() for name, value in GOOD.items()}


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body."""
    headers = {**draw(st.sampled_from([GOOD_HEADERS, {}])), **draw(EVENT_HEADERS)}
    return [(b"content-type", draw(TYPES).encode()), *headers.items()], draw(BODIES)


@contextmanager
def opened() -> Iterator[Callable[[tuple[list[tuple[bytes, bytes]], bytes]], None]]:
    """The check of one request."""
    yield check


def check(request: tuple[list[tuple[bytes, bytes]], bytes]) -> None:
    """Raises AssertionError when a promise is broken, and whatever else the decoder raises."""
    try:
        found = from_http(*request)
    except BadEvent as error:
        check_refusal(error)
        return
    for one in found:
        if isinstance(one, Malformed):
            check_refusal(one.error)
        else:
            check_event(one)


def check_refusal(error: BadEvent) -> None:
    """It is the sender's fault, and one line."""
    assert error.status in SENDERS_FAULTS
    assert str(error).isprintable()
    assert len(str(error)) < LONGEST_REASON


def check_event(event: Event) -> None:
    """Everything that the ledger and the logs will do with it works."""
    for text in (event.id, event.source, event.type):
        assert text
    for text in (event.id, event.source, event.type, event.subject, *event.extensions.values()):
        assert len(text) <= LONGEST
        assert not any(ord(character) < 0x20 or ord(character) == 0x7F for character in text)
    assert event.time is None or event.time.tzinfo is not None
    assert event_name(event.source, event.id)
    assert msgspec.json.decode(msgspec.json.encode(event)) is not None


TARGETS = (Target("cloudevents", requests(), opened, everyday=300),)
