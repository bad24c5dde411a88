"""Functions without input or output: Server-Timing, headers, messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.errors import KnodelError
from clusters.base.objects import Key
from clusters.embedded.activator.proxy.errors import (
    HoldExpired,
    HoldQueueFull,
    MissingRevision,
    UnknownRevision,
    error_response,
)
from clusters.embedded.activator.proxy.headers import (
    HEADER_TOKEN,
    RawHeaders,
    has_body,
    is_from_gateway,
    request_head,
    response_headers,
    revision_of,
)
from clusters.embedded.activator.proxy.probe import parse_startup
from clusters.embedded.activator.proxy.timing import RequestTimes, Startup, header, stages
from clusters.embedded.activator.wire import (
    ActivatorTarget,
    RevisionLoad,
    decode,
    encode,
    loads_from_wire,
    loads_to_wire,
    target_from_wire,
    target_to_wire,
)
from clusters.net.endpoints import Endpoint
from clusters.net.upstream import UpstreamError

seconds = st.floats(0, 1000)
durations = st.floats(0, 100_000)
loaded_at = st.none() | st.floats(0, 3000)
startups = st.none() | st.builds(Startup, durations, durations, durations, st.booleans(), loaded_at)


@st.composite
def helds(draw: st.DrawFn) -> RequestTimes:
    arrived, wait, infer = draw(seconds), draw(seconds), draw(seconds)
    sent = arrived + wait
    since = draw(st.floats(0, sent))
    return RequestTimes(arrived, sent, sent + infer, draw(st.booleans()), since)


@given(helds(), startups)
def test_stages_are_never_negative_and_sum_to_the_wall_time(held: RequestTimes, startup: Startup | None) -> None:
    spent = stages(held, startup)
    assert all(duration >= -1e-6 for _, duration in spent)
    assert sum(duration for _, duration in spent) == pytest.approx((held.answered - held.arrived) * 1000, abs=0.01)
    shown = [float(part.split("=")[1]) for part in header(spent).decode().split(", ")]
    assert sum(shown) == pytest.approx((held.answered - held.arrived) * 1000, abs=1)


def test_who_woke_the_revision_reports_the_start() -> None:
    held = RequestTimes(arrived=10.0, sent=11.1, answered=11.2, first=True, endpoint_since=11.0)
    assert header(stages(held, Startup(300, 200, 100))) == (
        b"start;dur=700.0, load;dur=200.0, warmup;dur=100.0, queue;dur=100.0, infer;dur=100.0"
    )


def test_a_claimed_start_reports_the_claim_and_what_of_the_load_came_after_it() -> None:
    held = RequestTimes(arrived=10.0, sent=10.05, answered=10.06, first=True, endpoint_since=10.02)
    loaded = Startup(imports=900, load=30, warmup=10, claimed=True, loaded_at=10.045)  # so it began at 10.005
    assert header(stages(held, loaded)) == (
        b"claim;dur=20.0, load;dur=15.0, warmup;dur=10.0, queue;dur=5.0, infer;dur=10.0"
    )


def test_a_load_that_the_server_waited_for_is_no_inference() -> None:
    held = RequestTimes(arrived=10.0, sent=10.02, answered=10.06, first=True, endpoint_since=10.02)
    loaded = Startup(imports=900, load=30, warmup=10, claimed=True, loaded_at=10.045)
    assert header(stages(held, loaded)) == (
        b"claim;dur=20.0, load;dur=15.0, warmup;dur=10.0, queue;dur=0.0, infer;dur=15.0"
    )


def test_a_load_that_ended_before_the_claim_did_costs_the_caller_nothing() -> None:
    held = RequestTimes(arrived=10.0, sent=10.02, answered=10.03, first=True, endpoint_since=10.02)
    loaded = Startup(imports=0, load=5, warmup=1, claimed=True, loaded_at=10.01)
    assert (
        header(stages(held, loaded)) == b"claim;dur=20.0, load;dur=0.0, warmup;dur=0.0, queue;dur=0.0, infer;dur=10.0"
    )


def test_who_joined_reports_its_waiting_as_queue() -> None:
    held = RequestTimes(arrived=10.0, sent=11.1, answered=11.2, first=False, endpoint_since=11.0)
    assert header(stages(held, Startup(300, 200, 100))) == b"queue;dur=1100.0, infer;dur=100.0"


def test_a_start_longer_than_the_wait_began_before_the_request() -> None:
    held = RequestTimes(arrived=10.0, sent=10.5, answered=10.6, first=True, endpoint_since=10.4)
    assert [name for name, _ in stages(held, Startup(300, 200, 100))] == ["queue", "infer"]


@pytest.mark.parametrize(
    ("page", "startup"),
    [
        (b'{"startup": {"imports": 1, "load": 2.5, "warmup": null}}', Startup(1, 2.5, 0)),
        (b'{"startup": {"load": 2, "claimed": true, "readyFor": null}}', Startup(0, 2, 0, claimed=True)),
        (b'{"startup": {"load": 2, "claimed": true, "readyFor": 500}}', Startup(0, 2, 0, claimed=True, loaded_at=9.5)),
        (b'{"startup": {"load": 2, "readyFor": -1}}', None),
        (b'{"startup": null}', None),
        (b'{"startup": {"load": -1}}', None),
        (b'{"startup": {"load": "x"}}', None),
        (b"[]", None),
        pytest.param(b"[" * 60_000, None, id="deep"),
        (b"", None),
    ],
)
def test_a_stats_page_is_read_or_left(page: bytes, startup: Startup | None) -> None:
    assert parse_startup(page, now=10.0) == startup


def test_the_gateways_headers_name_the_revision() -> None:
    headers = [(b"knative-serving-revision", b"r"), (b"knative-serving-namespace", b"n")]
    assert revision_of(headers) == Key("n", "r")
    with pytest.raises(MissingRevision):
        revision_of(headers[:1])
    with pytest.raises(MissingRevision):
        revision_of([headers[0], (b"knative-serving-namespace", b"\xff")])


@pytest.mark.bad_input("framing-connection")
def test_connection_cannot_take_length_or_host_away() -> None:
    scope = {
        "method": "POST",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [
            (b"host", b"h"),
            (b"connection", b"host, Content-Length , x"),
            (b"content-length", b"2"),
            (b"x", b"1"),
        ],
    }
    assert request_head(scope) == b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n"


def test_a_body_of_unknown_length_is_chunked_whatever_length_is_said() -> None:
    headers = [(b"transfer-encoding", b"chunked"), (b"content-length", b"5")]
    scope = {"method": "POST", "raw_path": b"/a", "query_string": b"q=1", "headers": headers}
    assert request_head(scope) == b"POST /a?q=1 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    assert has_body(headers)
    assert not has_body([(b"content-length", b"0")])
    assert not has_body([])


def test_the_gateways_token_ends_here_and_the_endpoints_goes_on() -> None:
    scope = {"method": "POST", "raw_path": b"/", "query_string": b"", "headers": [(HEADER_TOKEN, b"own"), (b"a", b"1")]}
    assert request_head(scope, b"pod") == b"POST / HTTP/1.1\r\na: 1\r\nknodel-internal-gateway: pod\r\n\r\n"
    assert request_head(scope) == b"POST / HTTP/1.1\r\na: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "token", "passed"),
    [
        ([(HEADER_TOKEN, b"own")], b"own", True),
        ([(HEADER_TOKEN, b"forged")], b"own", False),
        ([(HEADER_TOKEN, b"")], b"own", False),
        ([], b"own", False),
        ([(HEADER_TOKEN, b"")], b"", False),
    ],
)
def test_a_request_from_the_gateway_has_the_activators_token(headers: RawHeaders, token: bytes, passed: bool) -> None:
    assert is_from_gateway(headers, token) is passed


def test_an_activator_of_an_earlier_version_reads_targets_with_tokens_and_this_one_reads_those_without() -> None:
    target = ActivatorTarget(Key("n", "r"), (Endpoint("n/p", "h", 1, 2, "token"),), 1, 1, 1.0)
    message = target_to_wire(target)
    assert message["endpoints"] == [["n/p", "h", 1, 2]]
    del message["tokens"]
    assert target_from_wire(message).endpoints == (Endpoint("n/p", "h", 1, 2),)


def test_a_token_is_in_no_log_of_an_endpoint() -> None:
    assert "secret" not in f"{Endpoint('n/p', 'h', 1, 2, 'secret')}"


def test_answers_lose_their_hop() -> None:
    headers = [(b"connection", b"x-a"), (b"x-a", b"1"), (b"keep-alive", b"5"), (b"x-b", b"2")]
    assert response_headers(headers) == [(b"x-b", b"2")]


@pytest.mark.parametrize(
    ("error", "status", "retries"),
    [
        (MissingRevision("x"), 404, False),
        (HoldQueueFull("x"), 429, True),
        (HoldExpired("x"), 503, True),
        (UnknownRevision("x"), 503, True),
        (UpstreamError("x"), 502, False),
        (KnodelError("x"), 500, False),
    ],
)
def test_each_fault_has_its_status(error: KnodelError, status: int, retries: bool) -> None:
    answer = error_response(error)
    assert answer.status == status
    assert (b"retry-after" in dict(answer.headers)) == retries
    assert answer.body == b'{"error":"x"}'


keys = st.builds(Key, st.text(max_size=9), st.text(max_size=9))
ports = st.integers(1, 65535)
endpoints = st.builds(Endpoint, st.text(max_size=9), st.text(max_size=9), ports, ports, st.text(max_size=9))
targets = st.builds(
    ActivatorTarget,
    keys,
    st.lists(endpoints, max_size=4).map(tuple),
    st.integers(0, 10_000),
    st.integers(0, 1000),
    st.floats(0, 3600),
    st.booleans(),
)


@given(targets)
def test_a_target_survives_the_wire(target: ActivatorTarget) -> None:
    assert target_from_wire(decode(encode(target_to_wire(target)))) == target


@given(st.dictionaries(keys, st.builds(RevisionLoad, st.integers(0, 9), st.integers(0, 9)), max_size=5))
def test_loads_survive_the_wire(loads: dict[Key, RevisionLoad]) -> None:
    assert loads_from_wire(decode(encode({"loads": loads_to_wire(loads)}))["loads"]) == loads


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b"\xff"])
def test_a_line_that_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode(line)
