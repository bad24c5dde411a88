"""Add-ons of our own making, and upstream's documents out of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbed import dns, eventing, images, knative, kuberay, volcano
from tests.testbed.addresses import DNS_ADDRESS
from tests.testbed.errors import TestbedError
from tests.testbed.manifests import named
from tests.testbed.upstream import documents


def test_documents_come_in_the_order_of_their_paths_and_empty_ones_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "config" / "b").mkdir(parents=True)
    (tmp_path / "config" / "b" / "1.yaml").write_text("a: 3\n")
    (tmp_path / "config" / "a.yaml").write_text("# nothing yet\n---\na: 1\n---\na: 2\n")
    assert documents(tmp_path, "config", "config/a.yaml") == [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 1}, {"a": 2}]


def test_a_place_that_upstream_has_moved_is_named(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="config is not there"):
        documents(tmp_path, "config")


def test_every_program_that_upstream_names_has_an_image_of_its_version() -> None:
    published = images.published()
    assert published["ko://knative.dev/serving/cmd/queue"] == f"dev.local/queue:{images.module('serving').version}"
    assert published["ko://knative.dev/eventing/cmd/controller"].startswith("dev.local/eventing-controller:v")
    assert len(set(published.values())) == len(published)


def test_the_name_server_is_at_the_address_that_pods_are_told() -> None:
    service = named(dns.documents(), "Service", "kube-dns")
    assert service["spec"]["clusterIP"] == DNS_ADDRESS
    pod = named(dns.documents(), "Deployment", "coredns")["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_kuberay_is_in_a_namespace_of_its_own_and_its_program_is_that_of_our_image() -> None:
    documents = kuberay.documents()
    placed = [one for one in documents if one["kind"] not in (*kuberay.CLUSTER_WIDE, "Namespace")]
    assert {one["metadata"]["namespace"] for one in placed} == {kuberay.NAMESPACE}
    assert {subject["namespace"] for one in documents for subject in one.get("subjects", [])} == {kuberay.NAMESPACE}
    (container,) = named(documents, "Deployment", "kuberay-operator")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"dev.local/kuberay-operator:{images.module('kuberay').version}"
    assert "command" not in container
    assert "cpu" not in container["resources"]["limits"]
    assert named(documents, "CustomResourceDefinition", "rayservices.ray.io")


def test_volcano_has_its_programs_of_our_images_and_a_queue_but_no_webhooks() -> None:
    documents = volcano.documents()
    assert not volcano.WEBHOOKS & {one["kind"] for one in documents}
    assert not [one for one in documents if one["metadata"]["name"].startswith(volcano.ADMISSION)]
    version = images.module("volcano").version
    for name, binary in (
        ("volcano-scheduler", "volcano-scheduler"),
        ("volcano-controllers", "volcano-controller-manager"),
    ):
        (container,) = named(documents, "Deployment", name)["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"dev.local/{binary}:{version}"
        assert all(argument.startswith("-") for argument in container["args"])
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert named(documents, "CustomResourceDefinition", "jobflows.flow.volcano.sh")
    assert named(documents, "Queue", volcano.QUEUE)["spec"]["capability"] == {"cpu": volcano.QUEUE_CPU}


def test_every_setting_that_is_not_upstreams_has_a_reason() -> None:
    for settings in (knative.SETTINGS, eventing.SETTINGS):
        assert all(setting.reason for setting in settings)
        keys = [(setting.config_map, setting.key) for setting in settings]
        assert len(set(keys)) == len(keys)
