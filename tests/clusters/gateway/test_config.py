"""The RDS and EDS files for routes and endpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clusters.base.objects import Key
from clusters.gateway import config
from clusters.gateway.config import Resource, RouteMaker, endpoints
from clusters.gateway.routes import Backend, Route, RouteSplit, Table, VirtualHost
from clusters.gateway.xds import XdsFiles

ACTIVATOR = Backend("127.0.0.1", 9000)


def host(name: str, splits: Mapping[str, int], **more: Any) -> VirtualHost:
    made = tuple(RouteSplit(Key("default", revision), percent) for revision, percent in splits.items())
    return VirtualHost(f"default/{name}/0", (f"{name}.default.localhost",), (Route(made, **more),), name)


def virtual_hosts(resource: Resource) -> dict[str, Any]:
    (table,) = json.loads(resource.content)["resources"]
    return {entry["name"]: entry for entry in table["virtual_hosts"]}


def lb_endpoints(resource: Resource) -> list[tuple[int, str]]:
    (assignment,) = json.loads(resource.content)["resources"]
    return [
        (
            one["endpoint"]["address"]["socket_address"]["port_value"],
            one["metadata"]["filter_metadata"]["envoy.lb"]["revision"],
        )
        for one in assignment["endpoints"][0]["lb_endpoints"]
    ]


@given(st.dictionaries(st.sampled_from([f"m-0000{n}" for n in range(9)]), st.integers(1, 100), min_size=1))
def test_weights_are_the_percents(splits: dict[str, int]) -> None:
    entry = virtual_hosts(RouteMaker().make((host("m", splits),)))["default/m/0"]
    clusters = entry["routes"][0]["route"]["weighted_clusters"]["clusters"]
    weights = {one["metadata_match"]["filter_metadata"]["envoy.lb"]["revision"]: one["weight"] for one in clusters}
    assert weights == {f"default/{revision}": percent for revision, percent in splits.items()}


def test_a_route_without_backends_asks_to_try_again() -> None:
    entry = virtual_hosts(RouteMaker().make((host("m", {}),)))["default/m/0"]
    assert entry["routes"][0]["direct_response"] == {"status": 503}


def test_a_path_of_its_own_ends_at_a_separator() -> None:
    entry = virtual_hosts(RouteMaker().make((host("m", {"m-00001": 100}, prefix="/a/"),)))["default/m/0"]
    assert entry["routes"][0]["match"] == {"path_separated_prefix": "/a"}


def test_a_percent_sign_in_a_header_is_no_variable() -> None:
    entry = virtual_hosts(RouteMaker().make((host("m", {"m-00001": 100}, headers=(("a", "5 %"),)),)))["default/m/0"]
    assert entry["routes"][0]["request_headers_to_add"][0]["header"] == {"key": "a", "value": "5 %%"}


def test_the_table_tells_its_own_version() -> None:
    resource = RouteMaker().make((host("m", {"m-00001": 100}),))
    answer = virtual_hosts(resource)["version"]["routes"][0]["direct_response"]
    assert answer == {"status": 200, "body": {"inline_string": resource.version}}
    assert json.loads(resource.content)["version_info"] == resource.version


@given(st.lists(st.integers(1, 99), min_size=1, max_size=5))
def test_a_maker_that_remembers_makes_what_a_fresh_one_makes(percents: list[int]) -> None:
    maker = RouteMaker()
    other = host("other", {"other-00001": 100})
    for percent in percents:
        hosts = (host("m", {"m-00001": percent, "m-00002": 100 - percent}), other)
        assert maker.make(hosts) == RouteMaker().make(hosts)


def test_the_version_changes_with_the_content_alone() -> None:
    one, same = host("m", {"m-00001": 100}), host("m", {"m-00001": 100})
    other = host("m", {"m-00001": 99, "m-00002": 1})
    make = RouteMaker().make
    assert make((one,)).version == make((same,)).version != make((other,)).version


def test_a_revision_at_zero_takes_no_place_among_the_endpoints() -> None:
    backends = {Key("default", "m-00001"): (Backend("127.0.0.1", 2), Backend("127.0.0.1", 1))}
    made = endpoints(Table(backends=backends, activator=ACTIVATOR))
    assert lb_endpoints(made) == [(1, "default/m-00001"), (2, "default/m-00001"), (9000, "activator")]
    assert endpoints(Table(activator=ACTIVATOR)).version != made.version


def test_an_address_that_is_served_is_not_parked() -> None:
    one, two = Backend("127.0.0.1", 1), Backend("127.0.0.1", 2)
    made = endpoints(Table(backends={Key("default", "m-00001"): (one,)}, parked=frozenset({one, two})))
    assert lb_endpoints(made) == [(1, "default/m-00001"), (2, "parked")]


def test_a_starting_gateway_refuses_everything_but_the_probe() -> None:
    hosts = virtual_hosts(config.starting())
    assert set(hosts) == {"version", "starting"}
    assert hosts["starting"]["routes"][0]["direct_response"] == {"status": 503}


def test_a_file_is_written_only_when_its_content_changed(tmp_path: Path) -> None:
    files = XdsFiles(tmp_path)
    first, second = endpoints(Table(activator=ACTIVATOR)), endpoints(Table())
    assert files.write("endpoints.json", first)
    inode = files.path("endpoints.json").stat().st_ino
    assert not files.write("endpoints.json", first)
    assert not XdsFiles(tmp_path).write("endpoints.json", first), "a new control plane finds the file as it is"
    assert files.path("endpoints.json").stat().st_ino == inode
    assert files.write("endpoints.json", second)
    assert files.path("endpoints.json").read_bytes() == second.content
    assert [path.name for path in tmp_path.iterdir()] == ["endpoints.json"], "no half-written file stays"
