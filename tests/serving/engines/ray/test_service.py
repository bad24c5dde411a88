"""The engine of a Ray Serve elsewhere: its state by what the proxies answer, and the addresses that it may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from clusters.net.ssrf import LOOPBACK_HOSTS
from serving.engines.base.engine import EngineOptions
from serving.engines.base.errors import InferenceFailed, InputRefused, LoadFailed
from serving.engines.ray import service
from serving.engines.ray.service import Service, ServiceEngine, route_fault
from tests.support.ray_service import Application, ray_service
from tests.support.wait import eventually

HERE = EngineOptions(allow_hosts=LOOPBACK_HOSTS)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is read more often than in production, and a start that fails ends sooner."""
    monkeypatch.setattr(service, "READ_PERIOD", 0.02)
    monkeypatch.setattr(service, "SILENT", 0.1)
    monkeypatch.setattr(service, "START_TIMEOUT", 0.1)


@contextmanager
def engine_of(url: str, options: EngineOptions = HERE) -> Iterator[ServiceEngine]:
    engine = ServiceEngine(Service.of(url), options)
    try:
        yield engine
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("url", "expected", "authority"),
    [
        ("http://ranker-serve-svc:8000/rank/", ("ranker-serve-svc", 8000, False, "/rank"), "ranker-serve-svc:8000"),
        ("https://ray.example.org", ("ray.example.org", 443, True, ""), "ray.example.org"),
        ("http://ray.example.org:80/a/b", ("ray.example.org", 80, False, "/a/b"), "ray.example.org"),
    ],
)
def test_a_url_in_parts(url: str, expected: tuple[str, int, bool, str], authority: str) -> None:
    assert Service.of(url) == expected
    assert Service.of(url).authority == authority


@pytest.mark.parametrize(
    ("routes", "prefix", "fault"),
    [
        ({"/rank": "ranker"}, "/rank", ""),
        ({"/rank": "ranker"}, "/rank/v1", ""),
        ({"/": "all"}, "/rank", ""),
        ({"/": "all"}, "", ""),
        ({"/rank": "ranker"}, "/ranking", "it has no application at /ranking, only at /rank"),
        ({"/a": "a", "/b": "b"}, "", "it has no application at /, only at /a, /b"),
        ({}, "/rank", "it has no application yet"),
    ],
)
def test_the_application_at_the_prefix_must_be_routed(routes: Mapping[str, str], prefix: str, fault: str) -> None:
    assert route_fault(routes, prefix) == fault


def test_requests_go_to_the_address_that_was_checked() -> None:
    with ray_service(Application("1")) as url, engine_of(url) as engine:
        address = engine.enter()
        assert address is not None
        assert (address.host, address.prefix, address.key) == ("127.0.0.1", "/rank", "")
        assert address.authority == url.split("/")[2]
        engine.leave()
        assert engine.slots == service.DEFAULT_SLOTS
        with pytest.raises(InputRefused, match="over HTTP only"):
            engine.infer({}, [])
    with ray_service(Application("1")) as url, engine_of(url, HERE._replace(slots=3)) as engine:
        assert engine.slots == 3


async def test_a_service_that_serves_no_more_takes_no_requests_until_it_serves_again() -> None:
    application = Application("1")
    with ray_service(application) as url, engine_of(url) as engine:
        application.healthy = False
        await eventually(lambda: "/-/healthz has the status 503" in engine.state.reason)
        with pytest.raises(InferenceFailed, match="does not serve"):
            engine.enter()
        application.healthy, application.routed = True, False
        await eventually(lambda: "no application yet" in engine.state.reason)
        application.routed = True
        await eventually(lambda: engine.state.reason == "")
        assert engine.enter() is not None


async def test_a_service_that_is_gone_is_named() -> None:
    with ray_service(Application("1")) as url:
        engine = ServiceEngine(Service.of(url), HERE)
    await eventually(lambda: "Connection refused" in engine.state.reason)
    assert url.split("/")[2] in engine.state.reason
    engine.close()


def test_a_service_that_does_not_answer_fails_the_start_with_the_reason() -> None:
    with ray_service(Application("1", routed=False)) as url, pytest.raises(LoadFailed, match="no application yet"):
        ServiceEngine(Service.of(url), HERE)
    with pytest.raises(LoadFailed, match=r"at 127\.0\.0\.1:\d+ does not serve: .*refused"):
        ServiceEngine(Service.of(url), HERE)


@pytest.mark.bad_input("artifact-addresses")
def test_a_host_with_a_private_address_must_be_allowed() -> None:
    with ray_service(Application("1")) as url, pytest.raises(LoadFailed, match="private or reserved"):
        ServiceEngine(Service.of(url), EngineOptions())


@pytest.mark.bad_input("artifact-addresses")
def test_a_name_of_a_service_must_not_lead_to_this_machine() -> None:
    options = EngineOptions(allow_hosts=frozenset({"ranker-serve-svc"}))
    with ray_service(Application("1")) as url:
        named = Service.of(url.replace("127.0.0.1", "ranker-serve-svc"))
        with pytest.raises(LoadFailed, match="of this machine"):
            ServiceEngine(named, options, lambda _: ["127.0.0.1"])


async def test_an_unusable_name_is_a_reason_and_the_next_reading_comes() -> None:
    found: list[list[str] | UnicodeError] = [["127.0.0.1"]]

    def resolve(_: str) -> list[str]:
        if isinstance(found[-1], UnicodeError):
            raise found[-1]
        return found[-1]

    with ray_service(Application("1")) as url:
        engine = ServiceEngine(Service.of(url.replace("127.0.0.1", "localhost")), HERE, resolve)
        found.append(UnicodeError("label too long"))
        await eventually(lambda: "label too long" in engine.state.reason)
        found.append(["127.0.0.1"])
        await eventually(lambda: engine.state.reason == "")
        engine.close()


async def test_each_reading_finds_and_checks_the_addresses_anew() -> None:
    found = [["127.0.0.1"]]
    with ray_service(Application("1")) as url:
        engine = ServiceEngine(Service.of(url.replace("127.0.0.1", "localhost")), HERE, lambda _: found[-1])
        found.append(["127.0.0.2"])  # where nobody listens
        await eventually(lambda: "Connection refused" in engine.state.reason)
        engine.close()
