"""Headers that belong to the platform: no client may send them in, and some answers may not carry them out."""

from __future__ import annotations

from typing import Final

REVISION: Final = "Knative-Serving-Revision"  # names the revision to the activator; set for each split
NAMESPACE: Final = "Knative-Serving-Namespace"
TAG: Final = "Knative-Serving-Tag"  # set by the rule of a tag; a caller may send it to choose a tag

DEFAULT_ROUTE: Final = "Knative-Serving-Default-Route"  # set where the split chooses the revision, and nowhere else

STRIPPED_FROM_REQUESTS: Final = (REVISION, NAMESPACE, DEFAULT_ROUTE)
"""Removed from every request that comes in."""

STRIPPED_PREFIXES: Final = ("k-network-", "k-proxy-", "knodel-internal-", "x-envoy-")
"""Every header of a request that begins so is removed: Knative's probes and hashes, our own, and Envoy's own knobs."""

ADDED_BY_ENVOY: Final = ("x-envoy-internal",)
"""Added to requests by Envoy itself, of no use to a model; removed before a backend sees them."""

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
"""Removed from every answer that a backend gave."""
