"""Requests through a real Envoy with our configuration."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc.aio
import pytest

from clusters.base.clock import SystemClock
from clusters.gateway.envoy import ACCESS_LOG, Envoy
from clusters.gateway.limits import GatewayLimits
from clusters.gateway.route_config import PATH_FORM_DOMAIN, VERSION_DOMAIN
from clusters.gateway.routes import Backend as Address
from clusters.gateway.routes import Route, RouteSplit, Table, VirtualHost
from clusters.gateway.token import HEADER
from serving.modelserver.base.split import is_of_split
from tests.clusters.gateway.backends import Backend, ask, backend, read_answer
from tests.clusters.gateway.tables import HEAD, ONE, TWO, is_error, table
from tests.support.ports import free_port
from tests.support.wait import eventually


async def test_a_host_is_known_whatever_its_port_and_case(served: int) -> None:
    for host in ("m.default.localhost", "M.Default.LOCALHOST:1234", "m.default.localhost."):
        assert (await ask(served, "/", host)).json["backend"] == "first"


async def test_an_unknown_host_is_404_and_names_what_was_asked(served: int) -> None:
    answer = await ask(served, "/x?key=secret", "nope.default.localhost")
    assert is_error(answer, 404)
    assert "nope.default.localhost" in answer.json["error"]
    assert "path /x;" in answer.json["error"]  # without the query, in which callers have keys
    assert answer.headers["content-type"] == "application/json"


async def test_the_path_form_reaches_a_model_without_its_host(served: int, first: Backend) -> None:
    below = ("", "/infer", "/versions/1/infer", "?a=b")
    for path in [*(f"/v2/models/m{rest}" for rest in below), "/v1/models/m:predict", "/v1/models/m:predict?a=b"]:
        assert (await ask(served, path, "127.0.0.1")).json["backend"] == "first", path
        assert first.requests[-1].path_qs == path
        assert "knodel-internal-path" not in first.requests[-1].headers


@pytest.mark.parametrize(
    ("rest", "received"),
    [
        ("/v2/models/m/infer", "/v2/models/m/infer"),
        ("/v2/models/m/infer?a=b", "/v2/models/m/infer?a=b"),
        ("/v1/models/m:predict", "/v1/models/m:predict"),
        ("/openapi.json", "/openapi.json"),
        ("/v2/health/ready", "/v2/health/ready"),
        ("/", "/"),
        ("", "/"),
        ("?a=b", "/?a=b"),
    ],
)
async def test_the_path_form_with_a_namespace_gives_the_model_the_rest_of_the_path(
    served: int, first: Backend, rest: str, received: str
) -> None:
    assert (await ask(served, f"/namespaces/default/models/m{rest}", "127.0.0.1")).json["backend"] == "first"
    assert first.requests[-1].path_qs == received
    assert "knodel-internal-path" not in first.requests[-1].headers
    assert first.requests[-1].headers["Knative-Serving-Revision"] == "m-00001"


@pytest.mark.parametrize("at", ["@", "%40"])
async def test_the_path_form_with_a_tag_reaches_the_version_of_the_tag(
    gateway: Envoy, first: Backend, second: Backend, at: str
) -> None:
    backends = {ONE: (first.address,), TWO: (second.address,)}
    await gateway.apply(table({"m-00001": 100}, backends, tags={"blue": "m-00002"}))
    answer = await ask(gateway.port, f"/namespaces/default/models/m{at}blue/v2/models/m/infer", "127.0.0.1")
    assert answer.json["backend"] == "second"
    by_host = await ask(gateway.port, "/v2/models/m/infer", "blue-m.default.localhost")
    assert by_host.json["backend"] == "second"
    by_path_headers, by_host_headers = (dict(request.headers) for request in second.requests)
    for own in ("Host", "X-Request-ID"):
        by_path_headers.pop(own, None)
        by_host_headers.pop(own, None)
    assert by_path_headers == by_host_headers, "a tagged request carries the same marks in both forms"


@pytest.mark.parametrize(
    "path",
    [
        "/namespaces/default/models/nope/v2/health/ready",
        "/namespaces/other/models/m/v2/health/ready",
        "/namespaces/default/models/m@nope/v2/health/ready",
        "/namespaces/default/models/m@/v2/health/ready",
        "/namespaces/default/models/m@a@b/v2/health/ready",
        "/namespaces/default/models/M/v2/health/ready",
        "/namespaces/default/models",
        "/namespaces/default/models/",
        "/namespaces/default",
        "/namespaces/default/models/m/../nope/v2/health/ready",
    ],
)
async def test_a_path_form_of_no_model_is_404_and_never_answered_by_the_platform(served: int, path: str) -> None:
    answer = await ask(served, path + "?key=secret", "127.0.0.1:8080")
    assert is_error(answer, 404)
    assert "secret" not in answer.json["error"]
    assert "knodel.internal" not in answer.json["error"]
    assert path.replace("/m/../nope", "/nope") in answer.json["error"]


async def test_other_paths_without_a_host_are_404(served: int) -> None:
    for path in ("/v2/models/nope/infer", "/v2/models/mm", "/v1/models/m", "/v2/models", "/", "/x"):
        answer = await ask(served, path, "127.0.0.1:8080")
        assert is_error(answer, 404), path
        assert "knodel.internal" not in answer.json["error"]


async def test_a_host_of_a_models_form_is_never_answered_by_anything_else(served: int) -> None:
    for path in ("/v2", "/v2/health/ready", "/v2/models/m/infer"):
        assert is_error(await ask(served, path, "nope.default.localhost"), 404), path


async def test_the_platform_answers_for_itself(served: int) -> None:
    assert (await ask(served, "/v2", "localhost")).json["extensions"] == ["binary_tensor_data", "model_repository"]
    assert (await ask(served, "/v2/health/live", "localhost")).json == {"live": True}
    assert (await ask(served, "/v2/health/ready", "localhost")).json == {"ready": True}
    refused = await ask(served, "/v2", "localhost", method="POST")
    assert is_error(refused, 405)
    assert refused.headers["allow"] == "GET"


async def test_only_the_gateway_marks_what_the_split_sends(gateway: Envoy, first: Backend, second: Backend) -> None:
    backends = {ONE: (first.address,), TWO: (second.address,)}
    await gateway.apply(table({"m-00001": 100}, backends, tags={"blue": "m-00002"}))
    forged = {"Knative-Serving-Default-Route": "true"}
    tagged = {"Knative-Serving-Tag": "blue"}
    asked: tuple[tuple[str, str, dict[str, str], Backend], ...] = (
        ("/", "m.default.localhost", {}, first), ("/", "m.default.localhost", forged, first),
        ("/v2/models/m/infer", "x", forged, first),
        ("/", "blue-m.default.localhost", forged, second), ("/", "m.default.localhost", forged | tagged, second),
        ("/v2/models/m/infer", "x", forged | tagged, second),
        ("/namespaces/default/models/m@blue/v2/models/m/infer", "x", forged, second),
        ("/", "m.default.localhost", forged | {"Knative-Serving-Tag": "unknown"}, first),
    )  # fmt: skip
    counted = []
    for path, host, headers, served in asked:
        await ask(gateway.port, path, host, headers=headers)
        got = served.requests[-1].headers
        counted.append(is_of_split([(name.lower().encode(), value.encode()) for name, value in got.items()]))
        assert got.getall("Knative-Serving-Default-Route", []) == (["true"] if served is first else [])
    assert counted == [True] * 3 + [False] * 5


async def test_the_gateway_sends_the_token_of_the_endpoint_and_no_other(
    gateway: Envoy, first: Backend, second: Backend
) -> None:
    one, two = replace(first.address, token="of-one"), replace(second.address, token="of-two")
    forged = {HEADER: "of-two", HEADER.upper(): "of-one", "Connection": HEADER}
    for backends, served, token in (({ONE: (one,)}, first, "of-one"), ({}, second, "of-two")):
        await gateway.apply(table({"m-00001": 100}, backends, activator=two))
        answer = await ask(gateway.port, headers=forged)
        assert served.requests[-1].headers.getall(HEADER) == [token]
        assert token not in str(answer)
    await gateway.apply(table({"m-00001": 100}, {ONE: (replace(one, token="of-its-successor"),)}))
    await ask(gateway.port, headers=forged)
    assert first.requests[-1].headers.getall(HEADER) == ["of-its-successor"]
    await gateway.apply(table({"m-00001": 100}, {ONE: (first.address,)}))
    await ask(gateway.port, headers=forged)
    assert first.requests[-1].headers.getall(HEADER, []) == []


async def test_over_http2_and_grpc_the_split_is_marked_alike(gateway: Envoy, first: Backend) -> None:
    await gateway.apply(table({"m-00001": 100}, {ONE: (replace(first.address, token="of-one"),)}))
    forged = ((HEADER.lower(), "forged"), ("knative-serving-default-route", "false"))
    authority = [("grpc.default_authority", "m.default.localhost")]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.port}", authority) as channel:
        with pytest.raises(grpc.aio.AioRpcError):  # the backend is no server of gRPC
            await channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"", metadata=forged)
    got = first.requests[-1].headers
    headers = [(name.lower().encode(), value.encode()) for name, value in got.items()]
    assert got["content-type"] == "application/grpc"
    assert is_of_split(headers, b"of-one")
    assert not is_of_split(headers, b"of-two")


async def test_requests_are_split_by_percent(gateway: Envoy, first: Backend, second: Backend) -> None:
    await gateway.apply(table({"m-00001": 90, "m-00002": 10}, {ONE: (first.address,), TWO: (second.address,)}))
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    for _ in range(1000):
        writer.write(b"GET / HTTP/1.1\r\n" + HEAD + b"\r\n")
        assert (await read_answer(reader)).status == 200
    writer.close()
    assert 60 <= len(second.requests) <= 140, "four standard deviations around 100"


async def test_a_tag_is_reached_by_host_by_header_and_by_both_forms(
    gateway: Envoy, first: Backend, second: Backend
) -> None:
    backends = {ONE: (first.address,), TWO: (second.address,)}
    await gateway.apply(table({"m-00001": 100}, backends, tags={"blue": "m-00002"}))
    header = {"Knative-Serving-Tag": "blue"}
    assert (await ask(gateway.port, "/", "blue-m.default.localhost")).json["backend"] == "second"
    assert (await ask(gateway.port, "/", headers=header)).json["backend"] == "second"
    assert (await ask(gateway.port, "/v2/models/m/infer", "x", headers=header)).json["backend"] == "second"
    assert (await ask(gateway.port, "/", headers={"Knative-Serving-Tag": "red"})).json["backend"] == "first"


async def test_a_revision_without_endpoints_is_the_activators(gateway: Envoy, first: Backend, second: Backend) -> None:
    for backends, expected in (({}, "second"), ({ONE: (first.address,)}, "first"), ({}, "second")):
        await gateway.apply(table({"m-00001": 100}, backends, activator=second.address))
        assert (await ask(gateway.port)).json["backend"] == expected
    headers = second.requests[-1].headers
    assert headers.getall("Knative-Serving-Revision") == ["m-00001"]
    assert headers.getall("Knative-Serving-Namespace") == ["default"]


async def test_an_address_that_changes_its_revision_changes_its_requests(
    gateway: Envoy, first: Backend, second: Backend
) -> None:
    tags = {"one": "m-00001", "two": "m-00002"}
    for owner, other in ((ONE, "two"), (TWO, "one")):
        await gateway.apply(table({"m-00001": 100}, {owner: (first.address,)}, second.address, tags))
        own = "one" if owner == ONE else "two"
        assert (await ask(gateway.port, "/", f"{own}-m.default.localhost")).json["backend"] == "first"
        assert (await ask(gateway.port, "/", f"{other}-m.default.localhost")).json["backend"] == "second"


@pytest.mark.bad_input("framing-internal")
async def test_internal_headers_of_clients_do_not_come_through(served: int, first: Backend) -> None:
    sent = {
        "knative-serving-revision": "other",
        "Knative-Serving-Namespace": "other",
        "K-Network-Probe": "queue",
        "k-proxy-request": "x",
        "Knodel-Internal-Host": "x",
        "X-Envoy-Upstream-Rq-Timeout-Ms": "1",
        "X-Mine": "stays",
        "Knative-Serving-Tag": "stays",
    }
    await ask(served, headers=sent)
    headers = first.requests[-1].headers
    assert headers.getall("Knative-Serving-Revision") == ["m-00001"]
    assert headers.getall("Knative-Serving-Namespace") == ["default"]
    assert not [name for name in headers if name.lower().startswith(("k-", "knodel-", "x-envoy-"))]
    assert headers["X-Mine"] == headers["Knative-Serving-Tag"] == "stays"


async def test_answers_name_no_server(gateway: Envoy) -> None:
    async with backend("named", {"Server": "secret", "X-Envoy-Upstream-Service-Time": "1", "X-Mine": "stays"}) as named:
        await gateway.apply(table({"m-00001": 100}, {ONE: (named.address,)}))
        answers = [await ask(gateway.port), await ask(gateway.port, host="nope")]
    assert not [name for one in answers for name in one.headers if name == "server" or name.startswith("x-envoy")]
    assert answers[0].headers["x-mine"] == "stays"


@pytest.mark.fault("I4")
async def test_who_cannot_be_connected_to_is_replaced_by_another(
    gateway: Envoy, first: Backend, second: Backend
) -> None:
    dead = Address("127.0.0.1", free_port())
    await gateway.apply(table({"m-00001": 100}, {ONE: (dead, first.address, second.address)}))
    answers = [await ask(gateway.port, method="POST", body=b"x") for _ in range(30)]
    assert {answer.status for answer in answers} == {200}


@pytest.mark.fault("I4")
async def test_a_request_that_may_have_been_seen_is_not_sent_twice(gateway: Envoy, second: Backend) -> None:
    seen = 0

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        await gateway.apply(table({"m-00001": 100}, {ONE: (address,)}, activator=second.address))
        answer = await ask(gateway.port, method="POST", body=b"x")
    assert is_error(answer, 502)
    assert "may have been carried out" in answer.json["error"]
    assert "retry-after" not in answer.headers
    assert (seen, second.requests) == (1, [])


async def test_nobody_to_answer_is_503_with_retry_after(gateway: Envoy) -> None:
    await gateway.apply(table({"m-00001": 100}, {}))
    answer = await ask(gateway.port)
    assert is_error(answer, 503)
    assert answer.headers["retry-after"] == "1"


async def test_a_model_that_takes_too_long_is_504(gateway: Envoy, first: Backend) -> None:
    first.hold.clear()
    await gateway.apply(table({"m-00001": 100}, {ONE: (first.address,)}, timeout=0.1))
    assert is_error(await ask(gateway.port), 504)


async def test_the_access_log_has_one_json_line_for_each_request_but_no_probes(gateway: Envoy, first: Backend) -> None:
    await gateway.apply(table({"m-00001": 100}, {ONE: (first.address,)}))
    await ask(gateway.port, "/a?key=secret", headers={"x-request-id": "mine"})
    await ask(gateway.port, "/b", "nope")
    await ask(gateway.port, "/namespaces/default/models/m/c?key=secret", "127.0.0.1")
    log = gateway.folder / ACCESS_LOG
    await eventually(lambda: log.read_text().count("\n") == 3)
    one, two, three = (json.loads(line) for line in log.read_text().splitlines())
    assert (one["status"], one["path"], one["revision"], one["request"]) == (200, "/a", "m-00001", "mine")
    assert one["upstream"] == f"127.0.0.1:{first.address.port}"
    assert (two["status"], two["host"], two["revision"]) == (404, "nope", None)
    assert (three["status"], three["path"], three["revision"]) == (200, "/c", "m-00001")
    assert three["path_form"] == "/namespaces/default/models/m/c"
    assert one["path_form"] is None


async def test_names_of_the_gateways_own_are_of_no_use_to_callers(gateway: Envoy, first: Backend) -> None:
    await gateway.apply(table({"m-00001": 100}, {ONE: (first.address,)}))
    for host in (f"guessed{VERSION_DOMAIN}", f"a.b{VERSION_DOMAIN}", f"m.default{PATH_FORM_DOMAIN}"):
        for path in ("/", "/v2", "/v2/models/m/infer"):
            assert is_error(await ask(gateway.port, path, host), 404), (host, path)
    log = gateway.folder / ACCESS_LOG
    await eventually(lambda: log.read_text().count("\n") == 9)
    assert {json.loads(line)["status"] for line in log.read_text().splitlines()} == {404}
    assert first.requests == []


@pytest.fixture
async def on_a_laptop(tmp_path: Path, first: Backend) -> AsyncIterator[int]:
    """The port of a gateway that serves its own names only."""
    hosts = ("127.0.0.1", "localhost", "[::1]", "*.localhost", "models.lan", "*.team.example")
    made = Envoy(tmp_path / "guarded", "127.0.0.1", free_port(), SystemClock(), GatewayLimits(hosts=hosts))
    await made.start()
    try:
        await made.apply(table({"m-00001": 100}, {ONE: (first.address,)}))
        yield made.port
    finally:
        await made.stop(grace=0.0)


async def test_a_gateway_of_one_machine_answers_to_its_own_names(on_a_laptop: int) -> None:
    form, own = "/v2/models/m/infer", {"origin": "http://localhost:3000"}
    for host in ("127.0.0.1:80", "localhost", "[::1]:80", "LOCALHOST", "models.lan", "a.b.team.example"):
        assert (await ask(on_a_laptop, form, host, headers=own)).json["backend"] == "first", host
    for origin in ("http://m.default.localhost:8080", "https://a.team.example", "http://[::1]"):
        assert (await ask(on_a_laptop, "/", headers={"origin": origin})).json["backend"] == "first", origin


async def test_a_gateway_of_one_machine_refuses_pages_of_others(on_a_laptop: int, first: Backend) -> None:
    for host in ("evil.example:8080", "127.0.0.1.evil.example", "team.example", "10.0.0.1"):
        answer = await ask(on_a_laptop, "/v2/models/m/infer", host)
        assert is_error(answer, 403), host
        assert "KNODEL_GATEWAY_HOSTS=" in answer.json["error"] and host.partition(":")[0] in answer.json["error"]
    for origin in ("https://evil.example", "null", "http://localhost.evil.example", "http://evil.example/localhost"):
        for host in ("127.0.0.1", "m.default.localhost"):
            answer = await ask(on_a_laptop, "/v2/models/m/infer", host, headers={"origin": origin})
            assert is_error(answer, 403), (origin, host)
            assert origin in answer.json["error"]
    assert first.requests == []


async def test_a_route_without_splits_is_503(gateway: Envoy) -> None:
    route = Route((RouteSplit(ONE, 100),), match=(("a", "b"),))
    await gateway.apply(Table((VirtualHost("default/m/0", ("m.default.localhost",), (route, Route(()))),)))
    assert is_error(await ask(gateway.port), 503)
