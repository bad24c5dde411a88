"""Pool classes of Deployments as Knative 0.50 makes them, on a real cluster and on the embedded one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from autoscaler.warmpool.claims.classes import pool_class
from clusters.base.names import label_value_fault
from clusters.base.objects import ANNOTATION_GPU_FRACTION, Object
from clusters.base.pod_queues import VOLCANO_QUEUE


def template(revision: str = "iris-00001", configuration: str = "iris", service: str = "iris") -> Object:
    """Return `spec.template` of a Deployment on real Knative; a Configuration without a Service has variables without
    values.
    """
    named: Object = {"value": service} if service else {}
    user = {
        "name": "server",
        "image": "knodel-server:1",
        "args": ["--name", configuration],
        "env": [
            {"name": "PORT", "value": "8080"},
            {"name": "K_REVISION", "value": revision},
            {"name": "K_CONFIGURATION", "value": configuration},
            {"name": "K_SERVICE", **named},
        ],
        "ports": [{"name": "user-port", "containerPort": 8080, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "50m", "memory": "256Mi"}, "requests": {"cpu": "50m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    queue = {
        "name": "queue-proxy",
        "image": "queue:v0.50.0",
        "env": [
            {"name": "SERVING_NAMESPACE", "value": "default"},
            {"name": "SERVING_SERVICE", **named},
            {"name": "SERVING_CONFIGURATION", "value": configuration},
            {"name": "SERVING_REVISION", "value": revision},
            {"name": "CONTAINER_CONCURRENCY", "value": "0"},
            {"name": "REVISION_TIMEOUT_SECONDS", "value": "300"},
            {"name": "ENABLE_HTTP_FULL_DUPLEX", "value": "true"},
            {"name": "SERVING_POD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        ],
        "ports": [{"name": "queue-port", "containerPort": 8012, "protocol": "TCP"}],
    }
    term = {
        "labelSelector": {"matchLabels": {"serving.knative.dev/revision": revision}},
        "topologyKey": "kubernetes.io/hostname",
    }
    apart = {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term, "weight": 100}]}
    return {
        "metadata": {"labels": {"serving.knative.dev/revision": revision}, "annotations": {"a": revision}},
        "spec": {
            "affinity": {"podAntiAffinity": apart},
            "containers": [user, queue],
            "terminationGracePeriodSeconds": 300,
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    }


def test_the_class_is_a_label_value_and_depends_on_no_order_of_keys() -> None:
    made = template()
    turned = {**made, "spec": dict(reversed(made["spec"].items()))}
    assert pool_class(made) == pool_class(turned)
    assert not label_value_fault(pool_class(made))


@pytest.mark.parametrize(
    "other",
    [
        template("iris-00002"),
        template("wine-00001", "wine", "wine"),
        template("knodel-pool-small-00003", "knodel-pool-small", ""),  # the seed of a pool
    ],
)
def test_revisions_that_differ_in_names_alone_are_of_one_class(other: Object) -> None:
    assert pool_class(other) == pool_class(template())


def test_the_part_of_a_gpu_makes_a_class() -> None:
    def with_part(text: str) -> Object:
        made = template()
        made["metadata"]["annotations"][ANNOTATION_GPU_FRACTION] = text
        return made

    assert pool_class(with_part("0.5")) == pool_class(with_part("0.5"))
    assert len({pool_class(one) for one in (template(), with_part("0.5"), with_part("0.25"))}) == 3


def test_the_class_does_not_depend_on_the_arguments_of_the_server_alone() -> None:
    seed = template()
    seed["spec"]["containers"][0]["args"] = ["--pool", "--timeout", "300"]
    assert pool_class(seed) == pool_class(template())
    helped = template()
    helped["spec"]["containers"].append({"name": "helper", "image": "helper:1", "args": ["--one"]})
    other = copy.deepcopy(helped)
    other["spec"]["containers"][2]["args"] = ["--two"]
    assert pool_class(helped) != pool_class(other)


def test_the_format_makes_a_class_and_onnx_is_meant_where_none_is_told() -> None:
    def told(*words: str) -> str:
        made = template()
        made["spec"]["containers"][0]["args"] = ["--name", "iris", *words]
        return pool_class(made)

    assert told("--format", "onnx") == told("--slots", "2") == pool_class(template())
    assert told("--format", "sklearn") == told("--slots", "2", "--format", "sklearn") != told()
    assert told("--format", "python", "--allow-code") != told("--format", "sklearn")


def test_the_format_that_a_server_found_counts_where_the_template_names_none() -> None:
    def told(found: str, *words: str) -> str:
        made = template()
        made["spec"]["containers"][0]["args"] = ["--name", "iris", *words]
        return pool_class(made, found)

    assert told("sklearn") == told("onnx", "--format", "sklearn") != told("onnx")
    assert told("onnx") == pool_class(template())


def test_without_queue_proxy_the_first_container_serves() -> None:
    one, other = template(), template("wine-00001", "wine", "wine")
    for made in (one, other):
        del made["spec"]["containers"][1]
        del made["spec"]["containers"][0]["ports"]
    assert pool_class(one) == pool_class(other)


def _server(field: str, value: Any) -> Callable[[Object], None]:
    return lambda spec: spec["containers"][0].update({field: value})


def _queue(name: str, value: str) -> Callable[[Object], None]:
    def change(spec: Object) -> None:
        next(one for one in spec["containers"][1]["env"] if one["name"] == name)["value"] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _server("image", "knodel-server:2"),
        _server("resources", {"limits": {"cpu": "60m", "memory": "256Mi"}}),
        _server("env", [{"name": "PORT", "value": "8080"}, {"name": "SECRET", "value": "theirs"}]),
        _server("securityContext", {"runAsNonRoot": True}),
        _server("volumeMounts", []),
        _server("command", ["/bin/other"]),
        _queue("CONTAINER_CONCURRENCY", "1"),
        _queue("REVISION_TIMEOUT_SECONDS", "60"),
        _queue("ENABLE_HTTP_FULL_DUPLEX", "false"),
        _queue("SERVING_NAMESPACE", "other"),
        lambda spec: spec.update(serviceAccountName="robot"),
        lambda spec: spec.update(nodeSelector={"gpu": "yes"}),
        lambda spec: spec.update(terminationGracePeriodSeconds=60),
        lambda spec: spec.update(volumes=[{"name": "scratch", "secret": {"secretName": "theirs"}}]),
        lambda spec: spec["affinity"].update(nodeAffinity={"required": "gpu"}),
    ],
)
def test_what_a_running_pod_cannot_be_told_makes_another_class(change: Callable[[Object], None]) -> None:
    changed = template()
    change(changed["spec"])
    assert pool_class(changed) != pool_class(template())


def test_a_member_serves_only_revisions_with_its_queue() -> None:
    def queued(queue: str) -> Object:
        made = template()
        made["spec"]["schedulerName"] = "volcano"
        made["metadata"]["annotations"][VOLCANO_QUEUE] = queue
        return made

    assert pool_class(queued("vision")) == pool_class(queued("vision")) != pool_class(queued("speech"))


def test_a_queue_has_no_effect_for_another_scheduler() -> None:
    marked = template()
    marked["metadata"]["annotations"][VOLCANO_QUEUE] = "vision"
    assert pool_class(marked) == pool_class(template())
