"""Bad input that broke other servers, over all protocols: the response is a JSON error, and the server continues.

Cases of `test_protocol`, `test_protocol_v1`, `test_cloud_events`, `test_connection`, `test_compressed` and
`test_grpc_codec` are not repeated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from serving.modelserver.base.limits import ServerLimits
from tests.serving.modelserver.client import Answer, ask, request, tensor
from tests.serving.modelserver.conftest import NAME, REVISION, Running, Serve
from tests.support import models

V2 = f"/v2/models/{NAME}"
PREDICT = f"/v1/models/{NAME}:predict"
EVENT = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t"}
DOORS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "infer": (f"{V2}/infer", {}),
    "a version's infer": (f"{V2}/versions/7/infer", {}),
    "predict": (PREDICT, {}),
    "a stream of predictions": (PREDICT, {"accept": "text/event-stream"}),
    "generate": (f"{V2}/generate", {}),
    "generate_stream": (f"{V2}/generate_stream", {}),
    "invocations": ("/invocations", {}),
    "invocations in CSV": ("/invocations", {"content_type": "text/csv"}),
    "a structured event": (PREDICT, {"content_type": "application/cloudevents+json"}),
    "a binary event": (f"{V2}/infer", {f"ce_{name}": value for name, value in EVENT.items()}),
}
NO_REQUESTS: Mapping[str, bytes] = {
    "nothing": b"",
    "a number": b"1",
    "null": b"null",
    "a list": b"[]",
    "an empty object": b"{}",
    "cut off": b'{"inputs": [{"name": "x',
    "two values": b"{} {}",
    "not UTF-8": b'{"x": "\xff"}',
    "UTF-16": '{"x": 1}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"x": 1}',
    "a lone surrogate": b'{"x": "\\ud800", "inputs": "\\ud800", "instances": ["\\ud800"]}',
    "NaN": b'{"x": NaN}',
    "a number of 5000 digits": b'{"x": ' + b"9" * 5000 + b"}",
    "100 000 brackets": b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100 000 objects": b'{"x": ' * 100_000 + b"1" + b"}" * 100_000,
    "an unclosed bracket": b"[" * 100_000,
    "a pickle": b"\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
}
KINDS: Mapping[str, Mapping[str, str]] = {
    "a pickle": {"content_type": "application/x-pickle"},
    "BentoML's pickle": {"content_type": "application/vnd.bentoml+pickle"},
    "Python's own": {"content_type": "application/python-serialized"},
    "a form": {"content_type": "application/x-www-form-urlencoded"},
    "a form of parts": {"content_type": "multipart/form-data; boundary=" + "-" * 10_000},
    "a form without boundary": {"content_type": "multipart/form-data"},
    "XML": {"content_type": "application/xml"},
    "another charset": {"content_type": "application/json; charset=utf-7"},
    "brotli": {"content_encoding": "br"},
}
NAMES = ("..", "../x", "%2e%2e", "%2e%2e%2f", "..%5c", "%00", "m%00", "m%0d%0aX:1", "%C0%AE", "%ff", "м", "m.", "M",
         "m;x", "m%20", "x" * 10_000, "{name}", "${jndi:x}", "%25s")  # fmt: skip
"""Invalid names of models; `м` is Cyrillic."""


async def lives(running: Running) -> None:
    """Assert that the server works, and that no request is in flight."""
    assert (await running.infer(tensor([1.0]))).json["outputs"][0]["data"] == [2.0]
    assert (await running.get("/v2/health/live")).status == 200
    assert (await running.stats())["active"] == 0


def refused(answer: Answer, *statuses: int) -> None:
    """Assert that the error is short, and reveals nothing about this machine."""
    assert answer.status in statuses, (answer.status, answer.body[:300])
    assert answer.headers["content-type"] == "application/json"
    assert 0 < len(answer.error) < 500
    assert not any(word in answer.error for word in ("Traceback", "/tmp", ".py", "site-packages", "0x"))


@pytest.mark.bad_input("infer-malformed")
@pytest.mark.parametrize(("path", "headers"), DOORS.values(), ids=DOORS)
async def test_what_is_no_request_is_400_at_every_door(double: Running, path: str, headers: Mapping[str, str]) -> None:
    for name, body in NO_REQUESTS.items():
        sent = request("POST", path, body, **{"content_length": "0", **headers})
        answer = await ask(double.port, sent)
        assert answer.status == 400, (name, answer.status, answer.body[:300])
        refused(answer, 400)
    await lives(double)


@pytest.mark.bad_input("infer-pickle", "infer-forms")
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_other_kinds_of_bodies_are_415_at_every_door(double: Running, kind: Mapping[str, str]) -> None:
    for path, headers in DOORS.values():
        refused(await double.post(b"{}", path, **{**headers, **kind}), 415)
    await lives(double)


@pytest.mark.bad_input("infer-names")
@pytest.mark.parametrize("name", NAMES)
async def test_names_that_nobody_has_are_404_at_every_door(double: Running, name: str) -> None:
    encoded = name.encode()
    for path in (b"/v2/models/%b/infer", b"/v2/models/%b/versions/7/infer", b"/v2/models/m/versions/%b/infer",
                 b"/v1/models/%b:predict", b"/v2/models/%b/generate"):  # fmt: skip
        for method in (b"GET", b"POST"):
            sent = b"%b %b HTTP/1.1\r\nHost: m\r\nContent-Length: 0\r\n\r\n" % (method, path % encoded)
            refused(await ask(double.port, sent), 400, 404, 405)
    refused(await ask(double.port, b"GET /v2/models/%b HTTP/1.1\r\nHost: m\r\n\r\n" % encoded), 400, 404)
    await lives(double)


@pytest.mark.bad_input("infer-parameters")
async def test_parameters_of_other_servers_have_no_effect_or_are_refused(double: Running) -> None:
    given = {"n": 1 << 31, "best_of": 10**9, "guided_regex": "(a+)+$", "chat_template": "{{ 7 * 7 }}", "code": "1/0"}
    answer = await double.infer(tensor([1.0]), parameters=given)
    assert answer.json["outputs"][0]["data"] == [2.0]
    assert (await double.post({"x": [1.0], "parameters": given}, f"{V2}/generate")).json["y"] == 2.0
    for name in ("classification", "shared_memory_region"):
        refused(await double.infer({**tensor([1.0]), "parameters": {name: 1}}), 400)
    await lives(double)


@pytest.mark.bad_input("infer-pickle")
async def test_headers_that_carry_objects_elsewhere_carry_nothing_here(double: Running) -> None:
    headers = {"payload_container": "NdarrayContainer", "payload_meta": "gASVJAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOULg==",
               "args_number": "1", "inference_header_content_length": "0"}  # fmt: skip
    refused(await double.post({"inputs": [tensor([1.0])]}, **headers), 400)
    del headers["inference_header_content_length"]
    assert (await double.post({"inputs": [tensor([1.0])]}, **headers)).status == 200
    await lives(double)


@pytest.mark.bad_input("infer-ranges")
async def test_a_range_is_no_reason_for_a_part_of_an_answer(double: Running) -> None:
    whole = await double.get("/openapi.json")
    asked = await double.get("/openapi.json", range="bytes=" + ",".join(f"{n}-{n}" for n in range(2000)))
    assert (asked.status, asked.body) == (200, whole.body)
    refused(await double.get("/openapi.json", range="bytes=" + "0-1," * 20_000), 431)


@pytest.mark.bad_input("framing-connection")
async def test_headers_named_by_connection_are_taken_from_nothing(double: Running) -> None:
    plain = await double.infer(tensor([1.0]))
    body = {"inputs": [tensor([1.0])]}
    named = await double.post(body, connection="keep-alive, knodel-revision, host", knodel_revision="other-00001")
    assert (named.status, named.headers["knodel-revision"]) == (200, REVISION)
    assert named.body == plain.body


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_other_methods_are_405_and_change_nothing(double: Running, method: str) -> None:
    for path in (f"{V2}/infer", PREDICT, V2, "/v2/health/live"):
        answer = await ask(double.port, request(method, path, b"{}"))
        refused(answer, 405)
        assert answer.headers["allow"]
    await lives(double)


@pytest.mark.bad_input("manage-data-port")
@pytest.mark.parametrize("path", ["/v2/repository/index", f"/v2/repository/models/{NAME}/load",
                                  f"/v2/repository/models/{NAME}/unload", "/metrics", "/stats", "/docs",
                                  "/debug/pprof", "/v2/logging", "/v2/trace/setting",
                                  "/v2/systemsharedmemory/region/r/register"])  # fmt: skip
async def test_nothing_that_manages_is_on_the_data_port(double: Running, path: str) -> None:
    for answer in (await double.get(path), await double.post({}, path)):
        refused(answer, 404)


@pytest.mark.bad_input("infer-parameters")
async def test_texts_are_never_read_as_anything_else(serve: Serve) -> None:
    running = await serve(models.text())
    texts = ["{{7*7}}", "${x}", "$(id)", "'; DROP TABLE", "__import__('os')", "../../etc/passwd", "\r\nSet-Cookie: a"]
    answer = await running.infer(tensor(texts, "BYTES"), id="\r\nX: 1")
    assert answer.json["outputs"][0]["data"] == texts
    assert (answer.json["id"], answer.headers.get("x")) == ("\r\nX: 1", None)


@pytest.mark.bad_input("infer-forms")
async def test_a_body_of_parts_is_refused_before_it_is_read(double: Running) -> None:
    caller = await double.connect()
    head = request("POST", f"{V2}/infer", content_type="multipart/form-data; boundary=x", transfer_encoding="chunked")
    await caller.send(head + b"10000\r\n" + b"--x\r\n" * 100)
    refused(await caller.answer(), 415)
    caller.close()
    await lives(double)


@pytest.mark.bad_input("infer-leaks")
async def test_an_error_of_the_model_tells_an_id_and_nothing_of_the_model(serve: Serve) -> None:
    nodes = [models.node("Gather", ["table", "x"], ["y"])]
    tensors = [models.value("x", models.INT64, ["n"])], [models.value("y", models.FLOAT, ["n"])]
    running = await serve(models.model(nodes, *tensors, [models.floats("table", [1, 2], [2])]))
    requests = {
        f"{V2}/infer": {"inputs": [tensor([5], "INT64")]},
        PREDICT: {"instances": [5]},
        f"{V2}/generate": {"x": 5},
    }
    for path, body in requests.items():
        answer = await running.post(body, path)
        refused(answer, 400)
        assert "error " in answer.error and "Gather" not in answer.error


async def test_nothing_nests_in_a_scalar(serve: Serve) -> None:
    shape: list[int | str] = []
    tensors = [models.value("x", models.FLOAT, shape)], [models.value("y", models.FLOAT, shape)]
    running = await serve(models.model([models.node("Identity", ["x"], ["y"])], *tensors))
    nested: list[list[Any]] = [[[]], [[1.0]], [[[]]], [1.0, [2.0]]]
    for data in nested:
        refused(await running.infer(tensor(data, shape=[])), 400)
    assert (await running.infer(tensor([4.0], shape=[]))).json["outputs"][0]["data"] == [4.0]


@pytest.mark.parametrize("member", [b'"more": "\xff"', b'"\xff": 1', b'"more": "\xed\xa0\x80"'])
async def test_what_nobody_reads_is_utf8_too(double: Running, member: bytes) -> None:
    body = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}], ' + member + b"}"
    refused(await double.post(body), 400)
    refused(await double.post(b'{"instances": [1], ' + member + b"}", PREDICT), 400)


BROKEN = b"POST %s HTTP/1.1\r\nHost: m\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n"
STREAM = request("POST", PREDICT, b'{"instances": [1]}', accept="text/event-stream")


@pytest.mark.parametrize("sent", [BROKEN % b"/elsewhere", BROKEN % PREDICT.encode(), STREAM + BROKEN % b"/elsewhere"])
async def test_a_body_that_breaks_off_while_its_request_is_answered_is_no_fault_of_the_server(
    double: Running, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caller = await double.connect()
    await caller.send(sent)
    await caller.ended()
    caller.close()
    await lives(double)
    assert not caplog.records


async def test_a_body_that_ends_behind_its_answer_does_not_keep_the_connection_for_ever(serve: Serve) -> None:
    running = await serve(models.double(), limits=ServerLimits(keep_alive=1))
    caller = await running.connect()
    await caller.send(request("POST", "/elsewhere", content_length="4") + b"12")
    assert (await caller.answer()).status == 404
    await caller.send(b"34")
    assert await caller.ended() == b""
    caller.close()


async def test_the_doors_are_those_that_the_document_names(double: Running) -> None:
    page = (await double.get("/openapi.json")).json
    posted = {path for path, methods in page["paths"].items() if "post" in methods}
    assert posted == {path for path, _ in DOORS.values()} - {f"{V2}/versions/7/infer"}
