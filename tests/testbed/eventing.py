"""Knative Eventing as the testbed runs it on request: core, the in-memory channel and the broker over channels."""

from __future__ import annotations

from tests.testbed import images, upstream
from tests.testbed.manifests import WORKLOADS, Setting, adapted
from tests.testbed.upstream import Document

NAMESPACE = "knative-eventing"
EVENTING = "knative.dev/eventing"
CORE = (
    "config/core/100-namespace.yaml",
    "config/core/200-eventing-serviceaccount.yaml",
    "config/core/200-job-sink-serviceaccount.yaml",
    "config/core/200-pingsource-mt-adapter-serviceaccount.yaml",
    "config/core/200-request-reply-serviceaccount.yaml",
    "config/core/200-webhook-serviceaccount.yaml",
    "config/core/configmaps",
    "config/core/deployments/controller.yaml",
    "config/core/deployments/webhook.yaml",
    "config/core/resources",
    "config/core/roles",
    "config/core/webhooks",
)
"""Without the workloads of PingSource, JobSink and RequestReply, which Knodel does not use."""
CHANNEL = "config/channels/in-memory-channel"
BROKER = "config/brokers/mt-channel-broker"
NOT_BUILT = ("knative.dev/eventing/cmd/auth_proxy",)
"""Images that a variable names for what Knodel does not use (the door of an IntegrationSink): nothing starts them."""

SETTINGS = (
    Setting("config-features", "authentication-oidc", "enabled", "a Trigger proves to the event webhook who it is"),
)


def documents() -> list[Document]:
    """Every object of Knative Eventing. Raises TestbedError when its sources cannot be had."""
    module = images.module("eventing")
    folder = upstream.sources(module, [EVENTING])[EVENTING]
    unused = {f"ko://{package}": f"{images.REGISTRY}/unused:{module.version}" for package in NOT_BUILT}
    found = upstream.documents(folder, *CORE, CHANNEL, BROKER)
    return [_without_integrations(one) for one in adapted(found, images.published() | unused, SETTINGS)]


def _without_integrations(document: Document) -> Document:
    """ConfigMaps of integrations' images are links, which a Go module cannot carry: the controller does without."""
    if document["kind"] in WORKLOADS:
        for container in document["spec"]["template"]["spec"]["containers"]:
            for variable in container.get("env", []):
                if reference := variable.get("valueFrom", {}).get("configMapKeyRef"):
                    reference["optional"] = True
    return document
