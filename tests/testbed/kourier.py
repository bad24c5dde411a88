"""Kourier as the testbed runs it: its controller, and Envoy from the wheel as its gateway, at a fixed address."""

from __future__ import annotations

from tests.testbed import images, upstream
from tests.testbed.addresses import INGRESS_ADDRESS
from tests.testbed.manifests import adapted, named
from tests.testbed.upstream import Document

NAMESPACE = "kourier-system"
KOURIER = "knative.dev/net-kourier"
GATEWAY = "3scale-kourier-gateway"
SERVICE = "kourier"


def documents() -> list[Document]:
    """Every object of Kourier. Raises TestbedError when its sources cannot be had."""
    folder = upstream.sources(images.module("kourier"), [KOURIER])[KOURIER]
    found = upstream.documents(folder, "config")
    envoy = named(found, "Deployment", GATEWAY)["spec"]["template"]["spec"]["containers"][0]["image"]
    return [_at_fixed_address(one) for one in adapted(found, {**images.published(), envoy: images.envoy_reference()})]


def _at_fixed_address(document: Document) -> Document:
    """The ingress has an address that this machine reaches and tests can know; there is no load balancer."""
    if document["kind"] == "Service" and document["metadata"]["name"] == SERVICE:
        document["spec"] |= {"type": "ClusterIP", "clusterIP": INGRESS_ADDRESS}
    return document
