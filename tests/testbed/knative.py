"""Knative Serving as the testbed runs it: upstream's core, and the few settings that are not upstream's."""

from __future__ import annotations

from tests.testbed import images, upstream
from tests.testbed.manifests import Setting, adapted
from tests.testbed.upstream import Document

NAMESPACE = "knative-serving"
DOMAIN = "knodel.test"
"""A Service answers at NAME.NAMESPACE.knodel.test; `.test` is never anybody's (RFC 6761)."""
INGRESS_CLASS = "kourier.ingress.networking.knative.dev"
SERVING = "knative.dev/serving"
NETWORKING = "knative.dev/networking"
CACHING = "knative.dev/caching"
LINKED = {
    NETWORKING: (
        "config/certificate.yaml",
        "config/config-network.yaml",
        "config/domain-claim.yaml",
        "config/ingress.yaml",
        "config/serverlessservice.yaml",
    ),
    CACHING: ("config/image.yaml",),
}
"""What Serving's config/core holds as links, which a Go module cannot carry: read where they point to."""

SETTINGS = (
    Setting("config-network", "ingress-class", INGRESS_CLASS, "Kourier is the ingress; upstream's default is Istio"),
    Setting("config-domain", DOMAIN, "", "a name of the tests' own, so that no request can reach a real host"),
    Setting("config-deployment", "queue-sidecar-cpu-request", "10m", "200 replicas have to fit two cores"),
    Setting("config-autoscaler", "allow-zero-initial-scale", "true", "seeds of warm pools start at zero"),
    Setting("config-autoscaler", "stable-window", "6s", "the least that Knative takes: scenarios wait for zero"),
    Setting("config-autoscaler", "scale-to-zero-grace-period", "2s", "one ingress learns of a change in far less"),
    Setting("config-features", "tag-header-based-routing", "enabled", "the header that chooses a version by its tag"),
    Setting("config-features", "kubernetes.podspec-persistent-volume-claim", "enabled", "models on volume claims"),
    Setting("config-observability", "metrics-protocol", "prometheus", "the activator's gauge of held requests is read"),
)


def documents() -> list[Document]:
    """Every object of Knative Serving. Raises TestbedError when its sources cannot be had."""
    module = images.module("serving")
    sources = upstream.sources(module, [SERVING, *LINKED])
    found = upstream.documents(sources[SERVING], "config/core")
    for linked, places in LINKED.items():
        found += upstream.documents(sources[linked], *places)
    return adapted(found, images.published(), SETTINGS)
