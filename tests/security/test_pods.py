"""Every Pod that is rendered is restricted; the check says each thing that would not be."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from clusters.base.objects import Object
from tests.security.pod_security import faults
from tests.security.pods import KNATIVES_OWN, expanded, templates

RENDERED = dict(templates())
OWN_COMPONENTS = {name for name in RENDERED if ":Deployment/" in name}
GOOD: Object = {
    "enableServiceLinks": False,
    "containers": [
        {
            "name": "server",
            "ports": [{"containerPort": 8080}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }
    ],
}
NO_CPU_LIMIT = "has no limits"
"""Our components ask for processor time and may have what is left: a limit would delay a decision that is due."""


@pytest.mark.parametrize("name", RENDERED)
def test_a_pod_that_is_rendered_is_restricted(name: str) -> None:
    found = faults(RENDERED[name]["spec"])
    assert [one for one in found if name not in OWN_COMPONENTS or not one.endswith(NO_CPU_LIMIT)] == []


@pytest.mark.parametrize("name", sorted(name for name in OWN_COMPONENTS if not name.startswith("testbed:")))
def test_a_component_cannot_take_all_memory_of_its_node(name: str) -> None:
    for container in RENDERED[name]["spec"]["containers"]:
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("name", sorted(RENDERED.keys() - OWN_COMPONENTS))
def test_a_model_has_no_way_to_the_api(name: str) -> None:
    assert RENDERED[name]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", RENDERED)
def test_no_secret_is_in_a_variable_or_an_argument(name: str) -> None:
    for container in RENDERED[name]["spec"]["containers"]:
        assert "envFrom" not in container
        assert not [one for one in container.get("env") or () if "secretKeyRef" in (one.get("valueFrom") or {})]
        words = (*container.get("command", ()), *container.get("args", ()))
        assert not [word for word in words if re.search(r"(?<!\$)\$\(", word)]  # `$$(` is a text


def test_pods_of_all_sorts_are_looked_at() -> None:
    sorts = {name.partition(":")[0] for name in RENDERED}
    assert {"production", "edge", "testbed", "warm pool", "models/stores.yaml"} <= sorts


def test_a_restricted_pod_has_no_fault() -> None:
    assert faults(GOOD) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"hostPID": True}, "spec: hostPID"),
        ({"enableServiceLinks": True}, "spec: has variables of all Services"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volume v: hostPath"),
        ({"securityContext": {"sysctls": [{"name": "kernel.x"}]}}, "spec: sysctls"),
        ({"securityContext": {"runAsUser": 0}}, "spec: runs as root"),
    ],
)
def test_what_a_pod_may_not_say_is_found(change: dict[str, Any], fault: str) -> None:
    assert fault in faults({**GOOD, **change})


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"privileged": True}, "more than the baseline"),
        ({"procMount": "Unmasked"}, "more than the baseline"),
        ({"allowPrivilegeEscalation": True}, "may gain privileges"),
        ({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}, "has capabilities"),
        ({"capabilities": {}}, "has capabilities"),
        ({"runAsNonRoot": False}, "may run as root"),
        ({"runAsUser": 0}, "may run as root"),
        ({"seccompProfile": {"type": "Unconfined"}}, "has all system calls"),
        ({"readOnlyRootFilesystem": False}, "may write to its root"),
    ],
)
@pytest.mark.parametrize("sort", ["containers", "initContainers"])
def test_what_a_container_may_not_have_is_found_in_each_sort(sort: str, change: dict[str, Any], fault: str) -> None:
    spec = copy.deepcopy(GOOD)
    container = copy.deepcopy(GOOD["containers"][0])
    container["securityContext"] |= change
    spec[sort] = [container]
    assert faults(spec) == [f"container server: {fault}"]


def test_a_port_of_the_host_and_missing_limits_are_found() -> None:
    spec = copy.deepcopy(GOOD)
    spec["containers"][0] |= {"ports": [{"hostPort": 80}], "resources": {}}
    assert faults(spec) == ["container server: has a port of the host", "container server: has no limits"]


def test_an_expanded_template_is_a_deployment_of_kubernetes() -> None:
    made = expanded("m", {"metadata": {"labels": {"a": "b"}}, "spec": {**GOOD, "containerConcurrency": 1}})
    assert made["spec"]["template"]["metadata"]["labels"] == {"app": "m", "a": "b"}
    assert not KNATIVES_OWN & made["spec"]["template"]["spec"].keys()
