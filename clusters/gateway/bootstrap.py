"""Envoy's bootstrap configuration: administration socket, xDS files, and the one cluster of all revisions. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from clusters.gateway.config import ACTIVATOR_SUBSET, CLUSTER
from clusters.gateway.limits import GatewayLimits
from clusters.gateway.listener import STATS_PREFIX, file_source
from clusters.gateway.route_config import OWN_METADATA, SUBSET_KEY, TOKEN_KEY
from clusters.gateway.token import HEADER

BOOTSTRAP: Final = "envoy.json"
ADMIN_SOCKET: Final = "admin.sock"
"""Relative to Envoy's working directory, because the path of a unix socket is limited to 107 bytes."""

_EXTENSIONS: Final = "type.googleapis.com/envoy.extensions."
_STRICT: Final = {"envoy.reloadable_features.strict_chunk_parsing": True}  # a chunk must end with CRLF
_UNBOUNDED: Final = 1_000_000  # the gateway has no queue; activator and model server bound theirs and report overload
_THRESHOLDS: Final = ("max_connections", "max_pending_requests", "max_requests", "max_retries")
_RETRIES: Final = 3  # attempts after the first, each at another endpoint if there is one
_OTHER_HOST_ATTEMPTS: Final = 5  # selections before a retry uses an endpoint again
_KEPT_STATS: Final = (
    {"suffix": "version_text"},
    {"suffix": "update_rejected"},
    {"exact": f"http.{STATS_PREFIX}.downstream_rq_active"},
    {"exact": f"http.{STATS_PREFIX}.downstream_rq_total"},
    {"exact": f"http.{STATS_PREFIX}.downstream_cx_active"},
)
"""The statistics in use: the configuration in force and active requests. Envoy has thousands more."""

Json = dict[str, Any]


def bootstrap(listeners: Path, clusters: Path, limits: GatewayLimits) -> Json:
    """Return the `envoy.config.bootstrap.v3.Bootstrap` that follows these two files."""
    return {
        "node": {"id": "knodel-gateway", "cluster": "knodel"},
        "admin": {"address": {"pipe": {"path": ADMIN_SOCKET, "mode": 0o600}}},
        "dynamic_resources": {"lds_config": file_source(listeners), "cds_config": file_source(clusters)},
        "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": _KEPT_STATS}}},
        "layered_runtime": {"layers": [{"name": "strict", "static_layer": _STRICT}]},
        "stats_flush_on_admin": True,  # only the administration interface reads them, so no timer flushes them
        "overload_manager": _overload(limits),
    }


def cluster(endpoints: Path, limits: GatewayLimits) -> Json:
    """Return the `envoy.config.cluster.v3.Cluster` of all revisions."""
    return {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": CLUSTER,
        "type": "EDS",
        "eds_cluster_config": {"eds_config": file_source(endpoints)},
        "connect_timeout": f"{limits.connect_seconds:g}s",
        "per_connection_buffer_limit_bytes": limits.buffer_bytes,
        "circuit_breakers": {"thresholds": [{"priority": "DEFAULT"} | dict.fromkeys(_THRESHOLDS, _UNBOUNDED)]},
        "load_balancing_policy": {"policies": [{"typed_extension_config": _subsets()}]},
        "common_lb_config": {
            "healthy_panic_threshold": {"value": 0.0},
            "update_merge_window": "0s",  # changes of endpoints take effect at once
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _EXTENSIONS + "upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http_protocol_options": {}},
                "common_http_protocol_options": {"idle_timeout": f"{limits.backend_idle_seconds:g}s"},
                "retry_policy": retry_policy(),
                "http_filters": [
                    _send_token(),
                    {
                        "name": "envoy.filters.http.upstream_codec",
                        "typed_config": {"@type": _EXTENSIONS + "filters.http.upstream_codec.v3.UpstreamCodec"},
                    },
                ],
            }
        },
    }


def _send_token() -> Json:
    """Add the token of the selected endpoint to a request. Route headers are set before the selection."""
    value = f"%UPSTREAM_METADATA({OWN_METADATA}:{TOKEN_KEY})%"
    header = {"header": {"key": HEADER, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
    mutation = {
        "@type": _EXTENSIONS + "filters.http.header_mutation.v3.HeaderMutation",
        "mutations": {"request_mutations": [{"append": header}]},
    }
    return {"name": "envoy.filters.http.header_mutation", "typed_config": mutation}


def retry_policy() -> Json:
    """Return the policy: retry only if no byte of the request can have reached a backend, first at another endpoint."""
    predicate = "envoy.retry_host_predicates.previous_hosts"
    previous = {"@type": _EXTENSIONS + "retry.host.previous_hosts.v3.PreviousHostsPredicate"}
    return {
        "retry_on": "connect-failure,refused-stream,reset-before-request",
        "num_retries": _RETRIES,
        "retry_host_predicate": [{"name": predicate, "typed_config": previous}],
        "host_selection_retry_max_attempts": _OTHER_HOST_ATTEMPTS,
        "retry_back_off": {"base_interval": "0.005s", "max_interval": "0.1s"},
    }


def _subsets() -> Json:
    return {
        "name": "envoy.load_balancing_policies.subset",
        "typed_config": {
            "@type": _EXTENSIONS + "load_balancing_policies.subset.v3.Subset",
            "fallback_policy": "DEFAULT_SUBSET",
            "default_subset": {SUBSET_KEY: ACTIVATOR_SUBSET},
            "subset_selectors": [{"keys": [SUBSET_KEY]}],
            "subset_lb_policy": {"policies": [{"typed_extension_config": _least_request()}]},
        },
    }


def _least_request() -> Json:
    """Compare all endpoints: cheap for the few replicas of one machine, and more exact than two random choices."""
    policy = {
        "@type": _EXTENSIONS + "load_balancing_policies.least_request.v3.LeastRequest",
        "selection_method": "FULL_SCAN",
    }
    return {"name": "envoy.load_balancing_policies.least_request", "typed_config": policy}


def _overload(limits: GatewayLimits) -> Json:
    name = "envoy.resource_monitors.global_downstream_max_connections"
    kind = "resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"
    monitor = {"@type": _EXTENSIONS + kind, "max_active_downstream_connections": limits.connections}
    return {"resource_monitors": [{"name": name, "typed_config": monitor}]}
