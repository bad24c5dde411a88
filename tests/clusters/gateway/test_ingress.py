"""Virtual hosts made from Ingress objects."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.objects import Key
from clusters.gateway.ingress import revisions_of, virtual_hosts, without_collisions
from clusters.gateway.routes import Route, RouteSplit, VirtualHost
from tests.clusters.gateway.ingresses import ingress


def no_timeout(revision: Key) -> float:
    return 0.0


def revisions(route: Route) -> dict[str, int]:
    return {split.revision.name: split.percent for split in route.splits}


def test_a_split_keeps_its_percents_and_drops_what_gets_none() -> None:
    host, *_ = virtual_hosts(ingress("m", {"m-00001": 90, "m-00002": 10, "m-00003": 0}), no_timeout)
    assert host.hosts == ("m.default.localhost",)
    assert [revisions(route) for route in host.routes] == [{"m-00001": 90, "m-00002": 10}]


def test_every_split_names_its_revision_to_the_activator() -> None:
    host, *_ = virtual_hosts(ingress("m", {"m-00001": 100}), no_timeout)
    headers = (("Knative-Serving-Namespace", "default"), ("Knative-Serving-Revision", "m-00001"))
    assert host.routes[0].splits == (RouteSplit(Key("default", "m-00001"), 100, headers),)


def test_routes_that_ask_for_a_header_come_before_the_others() -> None:
    made = ingress("m", {"m-00001": 100}, {"blue": "m-00002"})
    for rule in made["spec"]["rules"]:
        rule["http"]["paths"].reverse()
    main = virtual_hosts(made, no_timeout)[0]
    assert [route.match for route in main.routes] == [(("Knative-Serving-Tag", "blue"),), ()]


def test_a_tag_has_a_host_and_a_path_form_of_its_own() -> None:
    main, tag = virtual_hosts(ingress("m", {"m-00001": 100}, {"blue": "m-00002"}), no_timeout)
    assert (main.path_form, tag.path_form) == ("m.default", "blue.m.default")
    assert tag.hosts == ("blue-m.default.localhost",)
    assert revisions(tag.routes[0]) == {"m-00002": 100}


def test_cluster_local_rules_stay_off_the_public_listener() -> None:
    made = ingress("m", {"m-00001": 100})
    made["spec"]["rules"] = made["spec"]["rules"][:1]
    assert virtual_hosts(made, no_timeout) == ()


def test_the_path_form_reaches_models_of_every_namespace() -> None:
    hosts = virtual_hosts(ingress("m", {"m-00001": 100}, namespace="team"), no_timeout)
    assert [host.path_form for host in hosts] == ["m.team"]


def test_a_host_that_is_not_the_routes_own_has_no_path_form() -> None:
    made = ingress("m", {"m-00001": 100}, {"blue": "m-00002"})
    for rule in made["spec"]["rules"]:
        rule["hosts"] = ["ml.example.org"]
    assert [host.path_form for host in virtual_hosts(made, no_timeout)] == ["", ""]


def test_a_route_waits_for_the_slowest_of_its_revisions() -> None:
    seconds = {"m-00001": 20.0, "m-00002": 30.0}
    host, *_ = virtual_hosts(ingress("m", {"m-00001": 50, "m-00002": 50}), lambda key: seconds[key.name])
    assert host.routes[0].timeout == 30.0


def test_a_revision_without_bound_leaves_its_route_without() -> None:
    seconds = {"m-00001": 20.0, "m-00002": 0.0}
    host, *_ = virtual_hosts(ingress("m", {"m-00001": 50, "m-00002": 50}), lambda key: seconds[key.name])
    assert host.routes[0].timeout == 0.0


def test_all_revisions_are_named_whatever_their_percent() -> None:
    made = ingress("m", {"m-00001": 100, "m-00002": 0}, {"blue": "m-00003"})
    assert revisions_of(made) == {Key("default", f"m-0000{number}") for number in (1, 2, 3)}


@pytest.mark.parametrize(
    ("where", "value"),
    [("hosts", ["a b"]), ("hosts", ["*"]), ("path", "/a?b"), ("path", "a"), ("header", "a\nb"), ("name", "a b")],
)
def test_what_envoy_would_refuse_is_refused_before(where: str, value: object) -> None:
    made = copy.deepcopy(ingress("m", {"m-00001": 100}))
    rule = made["spec"]["rules"][1]
    path = rule["http"]["paths"][0]
    if where == "hosts":
        rule["hosts"] = value
    elif where == "path":
        path["path"] = value
    elif where == "header":
        path["appendHeaders"] = {"a": value}
    else:
        path["appendHeaders"] = {value: "a"}
    with pytest.raises(ValueError, match="must match"):
        virtual_hosts(made, no_timeout)


def test_of_two_virtual_hosts_with_one_name_the_first_has_it() -> None:
    route = Route((RouteSplit(Key("default", "m-00001"), 100),))
    first = VirtualHost("a/0", ("x", "y"), (route,), "m")
    second = VirtualHost("b/0", ("y", "z"), (route,), "m")
    third = VirtualHost("c/0", ("x",), (route,))
    kept, refused = without_collisions([first, second, third])
    assert kept == (first, VirtualHost("b/0", ("z",), (route,)))
    assert refused == {"y": "b/0", "x": "c/0"}


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=4, unique=True), max_size=6))
def test_after_collisions_no_host_is_there_twice_and_none_is_lost(names: list[list[str]]) -> None:
    hosts = [VirtualHost(str(number), tuple(own), ()) for number, own in enumerate(names)]
    kept, _ = without_collisions(hosts)
    left = [name for host in kept for name in host.hosts]
    assert len(left) == len(set(left))
    assert set(left) == {name for own in names for name in own}
