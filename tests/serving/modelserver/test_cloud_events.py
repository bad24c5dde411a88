"""CloudEvents as requests: the events of a broker and the responses to it."""

from __future__ import annotations

import base64
import gzip
import json
import struct
import time
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.modelserver.base.errors import ContentTooLarge, ServingError
from serving.modelserver.codec.cloud_event import CloudEvent, from_binary, from_structured, to_binary
from tests.serving.modelserver.client import Answer, tensor
from tests.serving.modelserver.conftest import NAME, Running, Serve
from tests.support import models

PREDICT = f"/v1/models/{NAME}:predict"
INFER = f"/v2/models/{NAME}/infer"
ATTRIBUTES = {"specversion": "1.0", "id": "e-1", "source": "/sensors/7", "type": "dev.example.reading"}
STRUCTURED = "application/cloudevents+json"
DATA = {"instances": [1, 2]}


async def binary(running: Running, data: Any, path: str = PREDICT, **attributes: str) -> Answer:
    headers = {f"ce-{name}": value for name, value in {**ATTRIBUTES, **attributes}.items()}
    return await running.post(data, path, content_type="application/json", **headers)


async def structured(running: Running, members: Any, path: str = PREDICT, **headers: str) -> Answer:
    return await running.post(members, path, content_type=STRUCTURED, **headers)


async def test_an_event_in_binary_mode_is_answered_in_binary_mode(double: Running) -> None:
    answer = await binary(double, DATA)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == {"predictions": [2.0, 4.0]}
    assert answer.headers["ce-specversion"] == "1.0"
    assert answer.headers["ce-type"] == "io.kserve.inference.response"
    assert answer.headers["ce-source"] == f"io.kserve.inference.{NAME}"
    assert answer.headers["ce-causationid"] == "e-1"
    assert answer.headers["ce-id"] not in ("", "e-1")
    assert datetime.fromisoformat(answer.headers["ce-time"]).tzinfo is not None


async def test_a_structured_event_is_answered_by_a_structured_event(double: Running) -> None:
    answer = await structured(double, {**ATTRIBUTES, "data": DATA})
    assert (answer.status, answer.headers["content-type"]) == (200, STRUCTURED)
    event = answer.json
    assert event["data"] == {"predictions": [2.0, 4.0]}
    assert (event["specversion"], event["causationid"]) == ("1.0", "e-1")
    assert event["datacontenttype"] == "application/json"


async def test_a_broker_that_was_told_no_path_is_told_which_to_name(double: Running) -> None:
    for answer in (await binary(double, DATA, "/"), await structured(double, {**ATTRIBUTES, "data": DATA}, "/")):
        assert answer.status == 405
        assert INFER in answer.error and "Trigger" in answer.error


async def test_the_data_may_be_a_v2_request(double: Running) -> None:
    request = {"inputs": [tensor([1.0])]}
    assert (await binary(double, request, INFER)).json["outputs"][0]["data"] == [2.0]
    answer = await structured(double, {**ATTRIBUTES, "data": request}, INFER)
    assert answer.json["data"]["outputs"][0]["data"] == [2.0]
    assert (await binary(double, request, f"/v2/models/{NAME}/versions/7/infer")).headers["ce-specversion"] == "1.0"


async def test_a_copy_of_an_event_has_an_answer_of_the_same_id(double: Running) -> None:
    first, again = await binary(double, DATA), await structured(double, {**ATTRIBUTES, "data": DATA})
    other, foreign = await binary(double, DATA, id="e-2"), await binary(double, DATA, source="/sensors/8")
    ids = [first.headers["ce-id"], again.json["id"], other.headers["ce-id"], foreign.headers["ce-id"]]
    assert ids[0] == ids[1] and len(set(ids)) == 3


async def test_what_traces_an_event_goes_on_to_its_answer(double: Running) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = await binary(double, DATA, correlationid="order Ü%41", traceparent=trace)
    assert answer.headers["ce-traceparent"] == trace
    assert answer.headers["ce-correlationid"] == "order%20%C3%9CA"


async def test_data_may_come_in_base64_and_compressed(double: Running) -> None:
    encoded = base64.b64encode(json.dumps(DATA).encode()).decode()
    assert (await structured(double, {**ATTRIBUTES, "data_base64": encoded})).json["data"]["predictions"] == [2.0, 4.0]
    body = gzip.compress(json.dumps({**ATTRIBUTES, "data": DATA}).encode())
    assert (await structured(double, body, content_encoding="gzip")).json["data"]["predictions"] == [2.0, 4.0]
    body = gzip.compress(json.dumps(DATA).encode())
    headers = {f"ce-{name}": value for name, value in ATTRIBUTES.items()}
    assert (await double.post(body, PREDICT, content_encoding="gzip", **headers)).json["predictions"] == [2.0, 4.0]


async def test_tensors_as_bytes_travel_in_binary_mode_only(double: Running) -> None:
    request = {"inputs": [tensor([1.0])], "parameters": {"binary_data_output": True}}
    answer = await binary(double, request, INFER)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.binary == struct.pack("<f", 2) and answer.headers["ce-specversion"] == "1.0"
    assert (await structured(double, {**ATTRIBUTES, "data": request}, INFER)).status == 400


@pytest.mark.parametrize(
    "wrong",
    [
        {"specversion": None}, {"specversion": "0.3"}, {"specversion": 1}, {"id": None}, {"id": ""}, {"id": "a\r\nb"},
        {"id": "x" * 3000}, {"source": None}, {"source": "two words"}, {"source": "%zz"}, {"type": None},
        {"time": "yesterday"}, {"time": "2026-13-01T00:00:00Z"}, {"Upper": "x"}, {"under_score": "x"}, {"object": {}},
        {"float": 1.5}, {"data_base64": "eA=="}, {"data_base64": "?", "data": None}, {"datacontenttype": "a\r\nb: c"},
        {"datacontenttype": "application/json; a=é"},
        {"id": 5}, {"id": True}, {"source": 1}, {"type": 1}, {"subject": 1}, {"datacontenttype": 1}, {"id": "😀" * 200},
        {"correlationid": "%" * 700},
    ],
)  # fmt: skip
async def test_what_is_no_event_is_400_and_harms_nothing(double: Running, wrong: dict[str, Any]) -> None:
    members = {**ATTRIBUTES, "data": DATA, **wrong}
    answer = await structured(double, {name: value for name, value in members.items() if value is not None})
    assert answer.status == 400 and answer.error, answer.body
    assert (await structured(double, {**ATTRIBUTES, "data": DATA})).status == 200


@pytest.mark.parametrize(
    "wrong",
    [{"specversion": "2.0"}, {"id": ""}, {"id": "%0d%0a"}, {"id": "%ff"}, {"source": "a b"}, {"time": "now"},
     {"with-dash": "x"}],
)  # fmt: skip
async def test_what_is_no_event_in_headers_is_400(double: Running, wrong: dict[str, str]) -> None:
    answer = await binary(double, DATA, **wrong)
    assert answer.status == 400 and "event" in answer.error


@pytest.mark.parametrize("twice", ['"id": "e-2"', '"data": {"instances": [3]}', '"data": 1', '"ex": 1, "ex": 1'])
async def test_a_member_that_comes_twice_is_400(double: Running, twice: str) -> None:
    body = json.dumps({**ATTRIBUTES, "data": DATA}).removesuffix("}") + f", {twice}}}"
    answer = await structured(double, body.encode())
    assert answer.status == 400 and "duplicate" in answer.error


async def test_extensions_may_be_numbers_and_booleans(double: Running) -> None:
    assert (await structured(double, {**ATTRIBUTES, "data": DATA, "partition": 5, "retry": True})).status == 200


async def test_members_without_end_cost_little_and_are_told_in_short(double: Running) -> None:
    some = {f"A{number}": 0 for number in range(80)}
    answer = await structured(double, {**ATTRIBUTES, **some, "data": DATA})
    assert answer.status == 400 and len(answer.error) < 1000
    answer = await structured(double, {**ATTRIBUTES, **some, **{f"b{number}": 0 for number in range(80)}})
    assert answer.status == 400 and "100" in answer.error
    many = gzip.compress(b"{" + b",".join(b'"A%d":0' % number for number in range(1_000_000)) + b"}", 1)
    begun = time.thread_time()
    with pytest.raises(ContentTooLarge):
        from_structured(gzip.decompress(many))
    assert time.thread_time() - begun < 0.5
    assert (await structured(double, many, content_encoding="gzip")).status == 413


async def test_values_of_headers_may_be_quoted(double: Running) -> None:
    answer = await binary(double, DATA, id=r'"a \"b\" %41\\"')
    assert answer.headers["ce-causationid"] == "a%20%22b%22%20A\\"
    same = await structured(double, {**ATTRIBUTES, "id": 'a "b" A\\', "data": DATA})
    assert same.json["causationid"] == 'a "b" A\\' and same.json["id"] == answer.headers["ce-id"]


async def test_all_faults_of_an_event_are_told_at_once(double: Running) -> None:
    answer = await double.post(DATA, PREDICT, ce_id="1")
    assert all(word in answer.error for word in ("specversion", "source", "type"))


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'"text"', b"[" * 100_000, b'{"data": NaN}'])
async def test_bodies_that_are_no_event_are_400(double: Running, body: bytes) -> None:
    assert (await structured(double, body)).status == 400


@pytest.mark.parametrize(
    "content_type",
    ["application/cloudevents-batch+json", "application/cloudevents+avro", "application/cloudevents+json; charset=x"],
)
async def test_batches_and_other_formats_are_415(double: Running, content_type: str) -> None:
    assert (await double.post([], PREDICT, content_type=content_type)).status == 415


async def test_data_that_is_no_json_is_415(double: Running) -> None:
    answer = await structured(double, {**ATTRIBUTES, "datacontenttype": "application/xml", "data": "<a/>"})
    assert answer.status == 415


async def test_an_error_is_answered_as_to_any_caller(double: Running, serve: Serve) -> None:
    for answer in (await binary(double, {"instances": ["x"]}), await structured(double, {**ATTRIBUTES, "data": {}})):
        assert answer.status == 400 and answer.error
        assert answer.headers["content-type"] == "application/json" and "ce-id" not in answer.headers
    loading = await serve(None)
    answer = await structured(loading, {**ATTRIBUTES, "data": DATA})
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_an_event_is_answered_by_one_event_whatever_the_sender_accepts(double: Running) -> None:
    headers = {f"ce-{name}": value for name, value in ATTRIBUTES.items()}
    answer = await double.post(DATA, PREDICT, accept="text/event-stream", **headers)
    assert answer.json == {"predictions": [2.0, 4.0]}


TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)


@given(st.dictionaries(st.from_regex(r"[a-z0-9]{1,10}", fullmatch=True), TEXTS, max_size=4), TEXTS)
@settings(max_examples=100, deadline=None)
def test_attributes_survive_headers(extensions: dict[str, str], given_id: str) -> None:
    special = ("specversion", "source", "type", "time")
    attributes = {name: value for name, value in extensions.items() if name not in special}
    attributes |= {"id": given_id, "source": "/a", "type": "t"}
    headers = to_binary(CloudEvent(attributes))
    assert all(0x20 < byte < 0x7F for _, value in headers for byte in value)
    assert from_binary(headers).attributes == attributes


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*ATTRIBUTES, "time", "data", "data_base64", "Odd"]), JSON_VALUES))
@settings(max_examples=200, deadline=None)
def test_odd_events_are_decoded_or_refused(members: dict[str, Any]) -> None:
    try:
        from_structured(json.dumps({**ATTRIBUTES, **members}).encode())
    except ServingError as error:
        assert error.status == 400 and "\n" not in str(error)


@given(st.binary(max_size=100))
@settings(max_examples=100, deadline=None)
def test_odd_bytes_are_no_event(body: bytes) -> None:
    with pytest.raises(ServingError):
        from_structured(body)


async def test_requests_without_an_event_are_none_the_wiser(serve: Serve) -> None:
    running = await serve(models.double())
    answer = await running.post(DATA, PREDICT)
    assert not any(name.startswith("ce-") for name in answer.headers)
