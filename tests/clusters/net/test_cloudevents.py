"""The codec of CloudEvents: valid and invalid events, and agreement with the SDK on valid ones."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.net.cloudevents import (
    MOST_EVENTS,
    BadEvent,
    Event,
    Malformed,
    from_headers,
    from_http,
    from_members,
    to_headers,
    to_members,
)
from clusters.net.strict_json import MOST_VALUES
from tests.eventing.webhook import BATCH, SOURCE, STRUCTURED, event

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HEADERS = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": SOURCE, "ce-type": "t"}


def structured(body: bytes | Any, content_type: str = STRUCTURED) -> Event:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    [found] = from_http([(b"content-type", content_type.encode())], content)
    assert isinstance(found, Event)
    return found


def binary(headers: dict[str, str], body: bytes = b"") -> Event:
    [found] = from_http([(name.encode(), value.encode("latin-1")) for name, value in headers.items()], body)
    assert isinstance(found, Event)
    return found


def refused(body: bytes | Any, content_type: str = STRUCTURED) -> tuple[int, str]:
    with pytest.raises(BadEvent) as caught:
        structured(body, content_type)
    return caught.value.status, str(caught.value)


def test_a_structured_event_has_all_its_attributes_and_data() -> None:
    sent = event(time="2026-01-01T12:00:00Z", subject="s", sequence="7", attempt=3, final=True, dataschema="a:b")

    found = structured(sent)

    assert (found.id, found.source, found.type) == ("1", SOURCE, sent["type"])
    assert (found.time, found.subject, found.dataschema) == (NOON, "s", "a:b")
    assert found.extensions == {"sequence": "7", "attempt": "3", "final": "true"}
    assert found.data == sent["data"]


def test_an_event_without_time_gets_none_made_up() -> None:
    assert structured(event()).time is None
    assert binary(HEADERS).time is None


def test_members_that_are_null_are_not_there() -> None:
    found = structured(event(subject="s") | {"subject": None, "time": None})

    assert (found.subject, found.time) == ("", None)


def test_data_in_base64_are_bytes() -> None:
    sent = event(data=None, data_base64=base64.b64encode(b"\x00\xff").decode())

    assert structured(sent).data == b"\x00\xff"


def test_a_binary_event_is_decoded_from_percents_and_quotes() -> None:
    headers = HEADERS | {"ce-subject": '"Euro %E2%82%AC \\"x\\""', "content-type": "application/json"}

    found = binary(headers, b'{"a": 1}')

    assert found.subject == 'Euro € "x"'
    assert found.data == {"a": 1}
    assert found.datacontenttype == "application/json"


@pytest.mark.parametrize(
    ("content_type", "body", "data"),
    [
        ("text/plain", b"hello", "hello"),
        ("application/octet-stream", b"\xff", b"\xff"),
        ("application/vnd.x+json; charset=utf-8", b"[1]", [1]),
        ("application/json", b"", None),
    ],
)
def test_binary_data_is_read_by_its_type(content_type: str, body: bytes, data: object) -> None:
    assert binary(HEADERS | {"content-type": content_type}, body).data == data


BAD_ATTRIBUTES: list[tuple[dict[str, Any], str]] = [
    ({"id": None}, "id is missing"),
    ({"id": ""}, "id is missing"),
    ({"specversion": None}, "specversion is missing"),
    ({"specversion": "9"}, "specversion"),
    ({"specversion": "0.3"}, "specversion"),
    ({"source": None}, "source is missing"),
    ({"type": None}, "type is missing"),
    ({"id": 7}, "'id' is not a string"),
    ({"id": "x" * 1_000_000}, "id has more than 2048"),
    ({"id": "a\r\nb"}, "id has control characters"),
    ({"subject": "\ufffe"}, "subject has control characters"),
    ({"source": "a b"}, "source is not a URI reference"),
    ({"source": "über"}, "source is not a URI reference"),
    ({"source": "%zz"}, "source is not a URI reference"),
    ({"Upper": "x"}, "'Upper'"),
    ({"snake_case": "x"}, "'snake_case'"),
    ({"x" * 65: "x"}, "1 to 64 characters"),
    ({"": "x"}, "''"),
    ({"nested": {}}, "'nested' is not a string"),
    ({"ratio": 0.5}, "'ratio' is not a string"),
    ({"big": 2**31}, "32-bit integer"),
    ({"time": "yesterday"}, "RFC 3339"),
    ({"time": "2026-02-31T00:00:00Z"}, "RFC 3339"),
    ({"time": "2026-01-01"}, "RFC 3339"),
    ({"time": "2026-01-01T00:00:00"}, "RFC 3339"),
    ({"time": 7}, "'time' is not a string"),
    ({"subject": ""}, "subject"),
    ({"dataschema": "no uri"}, "dataschema is not a URI"),
    ({"datacontenttype": "json"}, "datacontenttype is not a media type"),
    ({"data_base64": "AA=="}, "both data and data_base64"),
    ({"data": None, "data_base64": "%%"}, "not base64"),
    ({"data": None, "data_base64": 7}, "not base64"),
    ({f"x{number}": "" for number in range(100)}, "more than 100 attributes"),
]


@pytest.mark.bad_input("event-missing", "event-attributes")
@pytest.mark.parametrize(("members", "fault"), BAD_ATTRIBUTES, ids=[fault for _, fault in BAD_ATTRIBUTES])
def test_an_event_with_a_wrong_attribute_is_400_and_the_fault_is_named(members: dict[str, Any], fault: str) -> None:
    status, message = refused(event(**members))

    assert status == 400
    assert fault in message
    assert len(message) < 1200
    assert message.isprintable()


BAD_BODIES: list[tuple[bytes, str]] = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"\xef\xbb\xbf{}", "not JSON"),
    (b"[]", "the event is not a JSON object"),
    (b'"text"', "the event is not a JSON object"),
    (b"null", "the event is not a JSON object"),
    (b"\xff\xfe", "not UTF-8"),
    (b"[" * 100_000, "nested more than 64 levels"),
    (b"[" * 65 + b"]" * 65, "nested more than 64 levels"),
    (b'{"a":' * 65 + b"1" + b"}" * 65, "nested more than 64 levels"),
    (b'{"id":"1","id":"2"}', "'id' twice"),
    (b'{"id":"1","data":{"a":1,"\\u0061":2}}', "'a' twice"),
    (b'{"data":NaN}', "NaN is not JSON"),
    (b'{"data":-Infinity}', "-Infinity is not JSON"),
    (b'{"data":1e999}', "beyond the range"),
    (b'{"data":18446744073709551616}', "64 bits"),
    (b'{"data":' + b"1" * 5000 + b"}", "digits"),
    (b'{"data":"\\ud800"}', "surrogates"),
    (b"{} {}", "not JSON"),
]


@pytest.mark.bad_input("event-unreadable", "event-ambiguous")
@pytest.mark.parametrize(("body", "fault"), BAD_BODIES, ids=[fault for _, fault in BAD_BODIES])
def test_a_body_that_parsers_would_disagree_about_is_400(body: bytes, fault: str) -> None:
    status, message = refused(body)

    assert status == 400
    assert fault in message


def test_64_levels_a_pair_of_surrogates_and_64_bits_are_taken() -> None:
    nested: Any = 1
    for _ in range(60):
        nested = [nested]
    sent = event(data={"deep": nested, "clef": "\U0001d11e", "large": 2**64 - 1})

    assert structured(sent).data == sent["data"]


@pytest.mark.bad_input("event-protocol")
@pytest.mark.parametrize(
    "content_type",
    [
        "application/cloudevents+xml",
        "application/cloudevents",
        "application/cloudevents+json; charset=latin-1",
        "application/cloudevents-batch+xml",
        "application/xml",
        "text/html",
        "multipart/form-data",
        "",
    ],
)
def test_another_format_is_415(content_type: str) -> None:
    status, message = refused(event(), content_type)

    assert status == 415
    assert "Content-Type" in message


def test_plain_json_is_a_binary_event_without_attributes() -> None:
    status, message = refused(event(), "application/json")

    assert status == 400
    assert "id is missing" in message


@pytest.mark.bad_input("event-attributes")
@pytest.mark.parametrize(
    ("headers", "fault"),
    [
        ({"ce-id": "a%0d%0ab"}, "id has control characters"),
        ({"ce-id": "%ff"}, "not percent-encoded UTF-8"),
        ({"ce-id": "\xe4"}, "not percent-encoded UTF-8"),
        ({"ce-id": "x" * 3000}, "id has more than 2048"),
        ({"ce-my-own": "x"}, "'my-own'"),
        ({"ce-data": "x"}, "data"),
        ({"ce-datacontenttype": "text/plain"}, "in binary mode, set Content-Type"),
        ({"ce-time": "2026"}, "RFC 3339"),
        ({"ce-specversion": "2.0"}, "specversion"),
    ],
)
def test_a_binary_event_with_a_wrong_header_is_400(headers: dict[str, str], fault: str) -> None:
    with pytest.raises(BadEvent) as caught:
        binary(HEADERS | headers)

    assert caught.value.status == 400
    assert fault in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.bad_input("event-missing")
@pytest.mark.parametrize("missing", ["ce-id", "ce-source", "ce-type", "ce-specversion"])
def test_a_binary_event_without_a_required_header_is_400(missing: str) -> None:
    with pytest.raises(BadEvent, match=f"{missing[3:]} is missing"):
        binary({name: value for name, value in HEADERS.items() if name != missing} | {"ce-x": "x"})


@pytest.mark.bad_input("event-ambiguous")
@pytest.mark.parametrize(("content_type", "body"), [("application/json", b"{"), ("text/plain", b"\xff")])
def test_binary_data_that_are_not_of_their_type_are_400(content_type: str, body: bytes) -> None:
    with pytest.raises(BadEvent) as caught:
        binary(HEADERS | {"content-type": content_type}, body)

    assert caught.value.status == 400


@pytest.mark.bad_input("event-ambiguous")
@pytest.mark.parametrize("name", ["ce-id", "content-type"])
def test_a_header_that_comes_twice_is_400(name: str) -> None:
    pairs = [*HEADERS.items(), ("content-type", "application/json"), (name, "application/json")]

    with pytest.raises(BadEvent, match="two headers") as caught:
        from_http([(key.encode(), value.encode()) for key, value in pairs], b"")

    assert caught.value.status == 400


def test_a_batch_is_its_events_and_one_that_is_none_does_not_spoil_the_others() -> None:
    body = json.dumps([event(id="1"), event(id="2", source="a b"), 7, event(id="3")]).encode()

    first, second, third, fourth = from_http([(b"content-type", BATCH.encode())], body)

    assert isinstance(first, Event)
    assert isinstance(fourth, Event)
    assert (first.id, fourth.id) == ("1", "3")
    assert isinstance(second, Malformed)
    assert (second.id, second.source, second.error.status) == ("2", "a b", 400)
    assert isinstance(third, Malformed)


@pytest.mark.bad_input("event-protocol")
def test_a_batch_that_is_no_array_is_400_and_one_of_too_many_413() -> None:
    assert refused(event(), BATCH)[0] == 400
    assert refused([0] * (MOST_EVENTS + 1), BATCH)[0] == 413


@pytest.mark.bad_input("event-size")
def test_an_event_of_more_values_than_memory_should_be_given_to_is_413() -> None:
    assert refused(event(data=[0] * MOST_VALUES))[0] == 413


ATTRIBUTE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x2FF, exclude_categories=["Cc", "Cs"]), min_size=1)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=20).map(lambda name: f"x{name}")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ATTRIBUTE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ATTRIBUTE, inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(id=ATTRIBUTE, subject=ATTRIBUTE, extensions=st.dictionaries(NAMES, ATTRIBUTE, max_size=3), data=JSON)
def test_what_we_take_the_sdk_reads_alike(id: str, subject: str, extensions: dict[str, str], data: object) -> None:
    sent = event(id=id, subject=subject, time="2026-01-01T12:00:00+01:00", data=data, **extensions)
    body = json.dumps(sent).encode()

    ours, theirs = structured(body), from_http_event(HTTPMessage({"content-type": STRUCTURED}, body))

    assert (ours.id, ours.source, ours.type) == (theirs.get_id(), theirs.get_source(), theirs.get_type())
    assert (ours.subject, ours.time) == (theirs.get_subject(), theirs.get_time())
    assert all(theirs.get_extension(name) == value for name, value in ours.extensions.items())
    assert ours.data == theirs.get_data()


@settings(max_examples=60, deadline=None)
@given(
    id=ATTRIBUTE,
    subject=ATTRIBUTE,
    extensions=st.dictionaries(NAMES, ATTRIBUTE, max_size=3),
    data=st.dictionaries(ATTRIBUTE, JSON, max_size=3),
)
def test_events_of_the_sdk_are_read_alike_in_each_mode(
    id: str, subject: str, extensions: dict[str, str], data: dict[str, Any]
) -> None:
    attributes = {"specversion": "1.0", "id": id, "source": SOURCE, "type": "t", "subject": subject, "time": NOON}
    sent = CloudEvent({**attributes, **extensions, "datacontenttype": "application/json"}, data)
    encoded = to_structured_event(sent)
    batch = b"[" + encoded.body + b", " + encoded.body + b"]"

    found = [
        *(one for message in (encoded, to_binary_event(sent)) for one in from_http(_pairs(message), message.body)),
        *from_http([(b"content-type", BATCH.encode())], batch),
    ]

    assert len(found) == 4
    for one in found:
        assert isinstance(one, Event)
        assert (one.id, one.source, one.type, one.subject, one.time) == (id, SOURCE, "t", subject, NOON)
        assert one.extensions == extensions
        assert one.data == data


@settings(max_examples=60, deadline=None)
@given(id=ATTRIBUTE, extensions=st.dictionaries(NAMES, ATTRIBUTE, max_size=3), data=JSON)
def test_the_sdk_reads_events_of_ours_alike_in_both_modes(id: str, extensions: dict[str, str], data: object) -> None:
    attributes = {"id": id, "source": SOURCE, "type": "t", "time": "2026-01-01T12:00:00Z", **extensions}
    body = json.dumps(data).encode()
    headers = {name.decode(): value.decode() for name, value in to_headers(attributes)}
    messages = [
        HTTPMessage({**headers, "content-type": "application/json"}, body),
        HTTPMessage({"content-type": STRUCTURED}, json.dumps(to_members(attributes, data)).encode()),
    ]

    for message in messages:
        theirs = from_http_event(message)
        assert (theirs.get_id(), theirs.get_source(), theirs.get_time()) == (id, SOURCE, NOON)
        assert all(theirs.get_extension(name) == value for name, value in extensions.items())
        assert theirs.get_data() == data


def test_a_header_may_have_quotes_and_unencoded_utf_8() -> None:
    found = binary(HEADERS | {"ce-subject": "€".encode().decode("latin-1"), "ce-x": '"a \\"b\\""'})

    assert found.subject == "€"
    assert found.extensions == {"x": 'a "b"'}


def test_attributes_without_data_are_decoded_by_the_same_rules() -> None:
    attributes = {"specversion": "1.0", "id": "1", "source": SOURCE, "type": "t", "final": "true"}

    assert from_members({**attributes, "final": True, "subject": None}) == attributes
    assert from_headers(to_headers(attributes)) == attributes
    with pytest.raises(BadEvent, match="'data' is reserved"):
        from_members({**attributes, "data": "x"})


def _pairs(message: HTTPMessage) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in message.headers.items()]
