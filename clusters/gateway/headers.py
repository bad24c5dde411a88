"""Headers of the platform, which are removed from requests of clients and from responses."""

from __future__ import annotations

from typing import Final

REVISION: Final = "Knative-Serving-Revision"  # the revision, for the activator; set for each split
NAMESPACE: Final = "Knative-Serving-Namespace"
TAG: Final = "Knative-Serving-Tag"  # set by the rule of a tag; a client may send it to select a tag

DEFAULT_ROUTE: Final = "Knative-Serving-Default-Route"  # set only where the split selects the revision

STRIPPED_FROM_REQUESTS: Final = (REVISION, NAMESPACE, DEFAULT_ROUTE)
"""Removed from every request of a client."""

STRIPPED_PREFIXES: Final = ("k-network-", "k-proxy-", "knodel-internal-", "x-envoy-")
"""Headers with these prefixes are removed from requests: Knative's probes and hashes, ours, and Envoy's options."""

ADDED_BY_ENVOY: Final = ("x-envoy-internal",)
"""Added to requests by Envoy, and removed before they reach a backend."""

STRIPPED_FROM_ANSWERS: Final = (
    "server",
    "x-envoy-upstream-service-time",
    "x-envoy-overloaded",
    "x-envoy-ratelimited",
    "x-envoy-degraded",
    "x-envoy-immediate-health-check-fail",
    "x-envoy-attempt-count",
    "x-envoy-decorator-operation",
)
"""Removed from every response of a backend."""
