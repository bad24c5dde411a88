"""A server on loopback accepts its own host names, and refuses other web pages."""

from __future__ import annotations

import re

import pytest

from clusters.net.hosts import LOOPBACK_NAMES, KnownHosts
from serving.modelserver.base.errors import BadOptions
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.options import ServerOptions, parse_options
from tests.serving.modelserver.client import ask
from tests.serving.modelserver.conftest import NAME, Running, Serve
from tests.support import models

LIMITS = ServerLimits(hosts=KnownHosts(frozenset(LOOPBACK_NAMES)))
BODY = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}'


def raw(*headers: str, body: bytes = BODY) -> bytes:
    """Return an inference request with exactly these headers and its length."""
    lines = [f"POST /v2/models/{NAME}/infer HTTP/1.1", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.fixture
async def guarded(serve: Serve) -> Running:
    return await serve(models.double(), limits=LIMITS)


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:1", "iris.default.localhost"])
async def test_its_own_names_are_served(guarded: Running, host: str) -> None:
    assert (await ask(guarded.port, raw(f"Host: {host}", "Origin: http://localhost:3000", JSON))).status == 200


JSON = "Content-Type: application/json"


@pytest.mark.parametrize(
    ("headers", "remedy"),
    [
        (("Host: evil.example", JSON), "--allowed-host evil.example"),
        (("Host: 127.0.0.1", "Origin: https://evil.example", JSON), "--allowed-host evil.example"),
        (("Host: 127.0.0.1", "Origin: null", JSON), "--allowed-host '*'"),
        (("Host: 127.0.0.1", "Origin: http://localhost", "Origin: https://evil.example", JSON), "Origin"),
    ],
)
async def test_another_host_or_origin_is_refused_on_both_ports(
    guarded: Running, headers: tuple[str, ...], remedy: str
) -> None:
    for port in (guarded.port, guarded.management_port):
        answer = await ask(port, raw(*headers))
        assert answer.status == 403 and remedy in answer.error


@pytest.mark.parametrize("sign", ["Origin: http://localhost", "Sec-Fetch-Site: cross-site"])
@pytest.mark.parametrize("kind", [None, "text/plain;charset=UTF-8", "application/x-www-form-urlencoded"])
async def test_a_page_that_names_no_json_is_refused(double: Running, sign: str, kind: str | None) -> None:
    typed = () if kind is None else (f"Content-Type: {kind}",)
    answer = await ask(double.port, raw("Host: m", sign, *typed))
    assert answer.status == 415 and "application/json" in answer.error


async def test_a_client_that_is_no_browser_may_leave_the_type_out(double: Running) -> None:
    assert (await ask(double.port, raw("Host: m"))).status == 200


def options(*more: str, **environ: str) -> ServerOptions:
    return parse_options(["--name", "m", "--storage-uri", "file:///m.onnx", *more], environ)


def test_names_are_checked_on_loopback_and_where_they_are_listed() -> None:
    usual = options().hosts
    assert usual is not None and usual.knows("127.0.0.1:8080") and not usual.knows("models.lan")
    own = options(HOST="::1").hosts
    assert own is not None and own.knows("[::1]:8080") and not own.knows("")
    assert options(HOST="0.0.0.0").hosts is None
    more = options("--allowed-host", "Models.lan", "--allowed-host=*.team.example").hosts
    assert more is not None and more.knows("models.lan:80") and more.knows("a.team.example") and more.knows("localhost")
    listed = options(HOST="0.0.0.0", KNODEL_ALLOWED_HOSTS="models.lan, other").hosts
    assert listed is not None and listed.knows("other") and not listed.knows("evil.example")
    assert options("--allowed-host", "*").hosts is None


@pytest.mark.parametrize("name", ["http://models.lan", "models.lan:80", "models.lan/x", "", "a b", "*.", "*x", "::1"])
def test_what_is_not_a_host_name_is_refused(name: str) -> None:
    with pytest.raises(BadOptions, match=f"--allowed-host '{re.escape(name)}' is not a host name: write NAME"):
        options("--allowed-host", name)
    if name:
        with pytest.raises(BadOptions, match="KNODEL_ALLOWED_HOSTS"):
            options(KNODEL_ALLOWED_HOSTS=f"models.lan,{name}")


def test_a_refusal_names_the_setting_that_has_the_names() -> None:
    by_option, by_variable = options("--allowed-host", "a").hosts, options(KNODEL_ALLOWED_HOSTS="a").hosts
    assert by_option is not None and by_variable is not None
    assert "start it with --allowed-host b.example" in str(by_option.refusal("b.example", None))
    refusal = str(by_variable.refusal("b.example", None))
    assert "add b.example to its variable KNODEL_ALLOWED_HOSTS" in refusal and "--allowed-host" not in refusal
