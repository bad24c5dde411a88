"""Upstream's manifests as the testbed applies them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.testbed.errors import TestbedError
from tests.testbed.manifests import DROPPED, REQUESTS, Setting, adapted, named, ordered

IMAGES = {"ko://example.org/x": "dev.local/x:1"}


def thing(kind: str, name: str = "x", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}


def deployment(**container: Any) -> dict[str, Any]:
    containers = [{"name": "x", "image": "ko://example.org/x", **container}]
    return thing("Deployment", spec={"template": {"spec": {"containers": containers}}})


def container_of(document: dict[str, Any]) -> Any:
    [adapted_document] = adapted([document], IMAGES)
    return adapted_document["spec"]["template"]["spec"]["containers"][0]


def test_every_document_is_kept_in_order_but_those_that_the_testbed_does_without() -> None:
    documents = [thing("Service"), thing("HorizontalPodAutoscaler"), thing("ConfigMap"), deployment(), thing("Secret")]
    kept = [document["kind"] for document in adapted(documents, IMAGES)]
    assert kept == ["Service", "ConfigMap", "Deployment", "Secret"]
    assert set(DROPPED).isdisjoint(kept)


def test_images_are_ours_wherever_they_are_named() -> None:
    variable = {"name": "X_IMAGE", "value": "ko://example.org/x"}
    documents = [deployment(env=[variable]), thing("ConfigMap", data={"sidecar": "ko://example.org/x"})]
    text = json.dumps(adapted(documents, IMAGES))
    assert text.count("dev.local/x:1") == 3
    assert "ko://" not in text


def test_an_image_that_is_not_built_here_is_refused() -> None:
    with pytest.raises(TestbedError, match=r"ko://example\.org/new is not built here"):
        adapted([thing("ConfigMap", data={"sidecar": "ko://example.org/new"})], IMAGES)


def test_what_was_read_is_left_as_it_was() -> None:
    document = deployment(args=["--a 1"])
    before = json.dumps(document)
    adapted([document], IMAGES)
    assert json.dumps(document) == before


def test_requests_are_small_and_limits_stay() -> None:
    limits = {"cpu": "1", "memory": "1Gi"}
    resources = container_of(deployment(resources={"requests": {"cpu": "1"}, "limits": limits}))["resources"]
    assert resources == {"requests": REQUESTS, "limits": limits}


def test_readiness_is_looked_at_at_once_and_every_second() -> None:
    probe = {"httpGet": {"port": 1}, "initialDelaySeconds": 20, "periodSeconds": 10}
    made = container_of(deployment(readinessProbe=probe, livenessProbe=probe))
    assert made["readinessProbe"] == {"httpGet": {"port": 1}, "periodSeconds": 1}
    assert made["livenessProbe"] == probe


def test_nothing_is_left_that_needs_a_shell() -> None:
    hook = {"exec": {"command": ["/bin/sh"]}}
    made = container_of(deployment(args=["--base-id 1", "-x"], lifecycle={"preStop": hook, "postStart": hook}))
    assert made["args"] == ["--base-id", "1", "-x"]
    assert made["lifecycle"] == {"postStart": hook}


def test_a_setting_joins_those_of_upstream() -> None:
    documents = [thing("ConfigMap", "config-x", data={"_example": "…"}), thing("ConfigMap", "config-y")]
    settings = [Setting("config-x", "a", "1", "because"), Setting("config-y", "b", "2", "because")]
    made = adapted(documents, IMAGES, settings)
    assert [document["data"] for document in made] == [{"_example": "…", "a": "1"}, {"b": "2"}]


def test_a_setting_of_a_config_map_that_upstream_does_not_have_is_refused() -> None:
    with pytest.raises(TestbedError, match="no ConfigMap config-gone"):
        adapted([thing("ConfigMap")], IMAGES, [Setting("config-gone", "a", "1", "because")])


def test_namespaces_enforce_the_restricted_pod_security() -> None:
    [namespace] = adapted([thing("Namespace")], {})
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}


def test_namespaces_and_kinds_come_first_then_what_pods_read_then_pods_then_webhooks() -> None:
    kinds = [
        "ValidatingWebhookConfiguration",
        "Deployment",
        "ConfigMap",
        "CustomResourceDefinition",
        "Secret",
        "Namespace",
    ]
    first, rest = ordered(thing(kind) for kind in kinds)
    assert [document["kind"] for document in first] == ["CustomResourceDefinition", "Namespace"]
    assert [document["kind"] for document in rest] == [
        "ConfigMap",
        "Secret",
        "Deployment",
        "ValidatingWebhookConfiguration",
    ]


def test_a_document_is_found_by_kind_and_name() -> None:
    assert named([thing("Service"), thing("ConfigMap")], "ConfigMap", "x") == thing("ConfigMap")
