"""Who may speak to whom, by the policies that come with Knodel: nobody but those who have to."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from clusters.base.objects import Object, name_of
from serving.install.bundle import OVERLAYS, load_overlay
from tests.security.network import Address, Pod, may_be_reached, may_reach

SYSTEM, MODELS = "knodel-system", "models"
FILE = Path(__file__).parents[2] / "manifests" / "components" / "model-namespace" / "network-policies.yaml"
METADATA = ("169.254.169.254", "fe80::a9fe:a9fe", "fd00:ec2::254")
PART_OF = {"app.kubernetes.io/part-of": "knodel"}
PORTS = {"probes": 8081, "metrics": 9090, "http": 8080}


def component(name: str) -> Pod:
    """A Pod of our own."""
    return Pod(SYSTEM, {**PART_OF, "app.kubernetes.io/name": f"knodel-{name}"}, PORTS)


CONTROLLER, AUTOSCALER, EVENTING = component("controller"), component("autoscaler"), component("eventing")
MODEL = Pod(MODELS, {"knodel.dev/model": "m", "serving.knative.dev/revision": "m-00001"})
MEMBER = Pod(MODELS, {"autoscaling.knodel.dev/pool": "p"})
CLAIMED = Pod(MODELS, {**MEMBER.labels, **MODEL.labels})
ACTIVATOR = Pod("knative-serving", {"app": "activator"})
KOURIER = Pod("kourier-system", {"app": "3scale-kourier-gateway"})
NEIGHBOUR = Pod(MODELS, {"app": "notebook"})
STRANGER = Pod("elsewhere", {"app": "activator", **PART_OF, "app.kubernetes.io/name": "knodel-autoscaler"})
STORE, API_SERVER = Address("93.184.215.14"), Address("10.0.0.1")


@pytest.fixture(scope="module")
def around_models() -> list[Object]:
    """The policies of a namespace in which Models run."""
    made: list[Object] = list(yaml.safe_load_all(FILE.read_text()))
    for one in made:
        one["metadata"]["namespace"] = MODELS
    return made


@pytest.fixture(scope="module", params=OVERLAYS)
def around_us(request: pytest.FixtureRequest) -> list[Object]:
    """Those of our own namespace, in each overlay."""
    return [one for one in load_overlay(request.param) if one["kind"] == "NetworkPolicy"]


@pytest.mark.parametrize(
    ("pod", "by", "ports"),
    [
        (MODEL, ACTIVATOR, {8012, 8013, 8112, 9090, 9095}),
        (MODEL, KOURIER, {8012, 8013, 8112}),
        (MODEL, AUTOSCALER, {8012, 8013, 9090, 9095}),
        (MODEL, CONTROLLER, {9095}),
        (MODEL, EVENTING, set()),
        (MODEL, STRANGER, set()),
        (MODEL, NEIGHBOUR, set()),
        (MODEL, MODEL, set()),
        (MODEL, Address("8.8.8.8"), set()),
        (MEMBER, AUTOSCALER, {9095}),
        (MEMBER, CONTROLLER, set()),
        (MEMBER, ACTIVATOR, set()),
        (MEMBER, STRANGER, set()),
        (CLAIMED, ACTIVATOR, {8012, 8013, 8112, 9090, 9095}),
    ],
)
def test_a_model_is_reached_by_those_who_bring_requests_and_read_samples(
    around_models: list[Object], pod: Pod, by: Pod | Address, ports: set[int]
) -> None:
    every = {22, 53, 80, 443, 8012, 8013, 8080, 8112, 9090, 9095}
    assert {port for port in every if may_be_reached(around_models, pod, by, port)} == ports


@pytest.mark.parametrize("pod", [MODEL, MEMBER, CLAIMED])
def test_a_model_reaches_names_and_stores_and_nothing_else(around_models: list[Object], pod: Pod) -> None:
    every = {22, 53, 80, 443, 5432, 6443, 8012, 8080, 9095, 10250}
    assert {port for port in every if may_reach(around_models, pod, STORE, port)} == {53, 80, 443}
    for other in (MODEL, NEIGHBOUR, AUTOSCALER, CONTROLLER):
        assert {port for port in every if may_reach(around_models, pod, other, port)} == {53}


@pytest.mark.parametrize("address", METADATA)
def test_nobody_asks_the_metadata_service_for_credentials(
    around_models: list[Object], around_us: list[Object], address: str
) -> None:
    for pod in (MODEL, MEMBER, CLAIMED):
        assert not may_reach(around_models, pod, Address(address), 80)
        assert not may_reach(around_models, pod, Address(address), 443)
    for pod in (CONTROLLER, AUTOSCALER, EVENTING):
        assert not may_reach(around_us, pod, Address(address), 80)
        assert not may_reach(around_us, pod, Address(address), 443)


def test_what_no_policy_names_in_our_namespace_is_alone(around_us: list[Object]) -> None:
    other = Pod(SYSTEM, {"app": "debug"}, PORTS)
    for peer in (CONTROLLER, MODEL, STRANGER, STORE, API_SERVER):
        for port in (53, 80, 443, 6443, 8080, 8081, 9090, 9095):
            assert not may_be_reached(around_us, other, peer, port)
            assert not may_reach(around_us, other, peer, port)


@pytest.mark.parametrize(
    ("pod", "by", "ports"),
    [
        (CONTROLLER, STRANGER, {8081, 9090}),  # probes come from nodes, a scraper from where its owner runs it
        (AUTOSCALER, STRANGER, {8081, 9090}),
        (EVENTING, STRANGER, {8080, 8081, 9090}),
        (EVENTING, Address("8.8.8.8"), {8081, 9090}),
    ],
)
def test_of_ours_the_webhook_alone_is_asked_by_others(
    around_us: list[Object], pod: Pod, by: Pod | Address, ports: set[int]
) -> None:
    every = {22, 80, 443, 8080, 8081, 8443, 9090, 9095}
    assert {port for port in every if may_be_reached(around_us, pod, by, port)} == ports


@pytest.mark.parametrize(
    ("pod", "whom", "ports"),
    [
        (CONTROLLER, API_SERVER, {443, 6443, 8443}),
        (AUTOSCALER, API_SERVER, {443, 6443, 8443}),
        (EVENTING, API_SERVER, {443, 6443, 8443}),
        (AUTOSCALER, MODEL, {8012, 8013, 9090, 9095}),
        (AUTOSCALER, MEMBER, {9095}),
        (AUTOSCALER, ACTIVATOR, {8012, 8013, 9090}),
        (AUTOSCALER, NEIGHBOUR, set()),
        (CONTROLLER, MODEL, {9095}),
        (CONTROLLER, NEIGHBOUR, set()),
        (EVENTING, MODEL, set()),
        (EVENTING, NEIGHBOUR, set()),
    ],
)
def test_each_of_ours_reaches_whom_its_work_needs(
    around_us: list[Object], pod: Pod, whom: Pod | Address, ports: set[int]
) -> None:
    every = {22, 80, 443, 5432, 6443, 8012, 8013, 8443, 9090, 9095, 10250}
    assert {port for port in every if may_reach(around_us, pod, whom, port)} == ports


def test_what_the_autoscaler_may_ask_and_what_models_answer_are_the_same(
    around_us: list[Object], around_models: list[Object]
) -> None:
    for pod in (MODEL, MEMBER):
        asked = {port for port in range(8000, 9100) if may_reach(around_us, AUTOSCALER, pod, port)}
        answered = {port for port in range(8000, 9100) if may_be_reached(around_models, pod, AUTOSCALER, port)}
        assert asked == answered, name_of(around_us[0])


def test_a_namespace_without_policies_is_open() -> None:
    assert may_be_reached([], MODEL, STRANGER, 22)
    assert may_reach([], MODEL, STRANGER, 22)
