"""The gateway's listener (LDS): HTTP parsing, refused requests, and the access log. Pure.

Field names are those of `envoy.config.listener.v3` and of the HTTP connection manager. The choices follow Envoy's guide
for edge proxies (https://www.envoyproxy.io/docs/envoy/latest/configuration/best_practices/edge).
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Final

from clusters.gateway.config import ROUTE_TABLE
from clusters.gateway.headers import STRIPPED_FROM_REQUESTS, STRIPPED_PREFIXES
from clusters.gateway.limits import GatewayLimits
from clusters.gateway.openai_script import OPENAI_SCRIPT_NAME
from clusters.gateway.replies import guards, local_replies
from clusters.gateway.route_config import (
    LUA_FILTER,
    OPENAI_SCRIPT,
    OWN_METADATA,
    PATH_FORM_SCRIPT,
    PATH_FORM_SCRIPT_NAME,
    VERSION_DOMAIN,
)

STATS_PREFIX: Final = "gateway"
_EXTENSIONS: Final = "type.googleapis.com/envoy.extensions."
_MEBIBYTE: Final = 1024 * 1024
_KIBIBYTE: Final = 1024

Json = dict[str, Any]


def listener(host: str, port: int, routes: Path, access_log: Path, limits: GatewayLimits) -> Json:
    """Return the `envoy.config.listener.v3.Listener` on `host:port` with the route table in the file `routes`."""
    manager = connection_manager(routes, access_log, limits)
    network_filter = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    return {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": f"{host}:{port}",
        "address": {"socket_address": {"address": host, "port_value": port}},
        "enable_reuse_port": False,  # one socket for all workers
        "socket_options": [_share_with_guard()],
        "per_connection_buffer_limit_bytes": limits.buffer_bytes,
        "filter_chains": [{"filters": [network_filter]}],
    }


def _share_with_guard() -> Json:
    """Return SO_REUSEPORT, with which Envoy can listen on a guarded port (`clusters.net.sockets.PortGuard`)."""
    return {
        "level": socket.SOL_SOCKET,
        "name": socket.SO_REUSEPORT,
        "int_value": 1,
        "state": "STATE_PREBIND",
        "description": "SO_REUSEPORT",
    }


def connection_manager(routes: Path, access_log: Path, limits: GatewayLimits) -> Json:
    """Return the configuration of the HTTP connection manager."""
    router = {"@type": _EXTENSIONS + "filters.http.router.v3.Router", "suppress_envoy_headers": True}
    return {
        "@type": _EXTENSIONS + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": STATS_PREFIX,
        "codec_type": "AUTO",  # HTTP/1.1, and HTTP/2 with prior knowledge
        "rds": {"route_config_name": ROUTE_TABLE, "config_source": file_source(routes)},
        "http_filters": [_guards(limits), _scripts(), {"name": "envoy.filters.http.router", "typed_config": router}],
        "early_header_mutation_extensions": [_strip_internal_headers()],
        "local_reply_config": local_replies(limits),
        "access_log": [_access_log(access_log)],
        **_reading(limits),
        **_timeouts(limits),
    }


def file_source(path: Path) -> Json:
    """Return a ConfigSource for a file. Envoy reads it again when another file is renamed over it."""
    return {"resource_api_version": "V3", "path_config_source": {"path": str(path)}}


def _reading(limits: GatewayLimits) -> Json:
    return {
        "max_request_headers_kb": limits.header_kib,
        "common_http_protocol_options": {
            "idle_timeout": _seconds(limits.client_idle_seconds),
            "max_headers_count": limits.header_count,
            "headers_with_underscores_action": "REJECT_REQUEST",  # many servers treat `a_b` and `a-b` as one name
        },
        "http_protocol_options": {"allow_absolute_url": False},  # absolute URLs are refused, since they are not paths
        "http2_protocol_options": {
            "max_concurrent_streams": limits.streams_per_connection,
            "initial_stream_window_size": 64 * _KIBIBYTE,
            "initial_connection_window_size": _MEBIBYTE,
        },
        "strip_any_host_port": True,
        "strip_trailing_host_dot": True,
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "REJECT_REQUEST",
        "use_remote_address": True,
        "internal_address_config": {},  # no client may set Envoy's headers, not even on loopback
        "preserve_external_request_id": True,  # keep the x-request-id of a client
        "server_header_transformation": "PASS_THROUGH",  # responses have no Server header: the backend's is removed
    }


def _timeouts(limits: GatewayLimits) -> Json:
    return {
        "request_headers_timeout": _seconds(limits.header_seconds),
        "request_timeout": _seconds(limits.body_seconds),
        "stream_idle_timeout": _seconds(limits.longest_seconds),
        "drain_timeout": _seconds(limits.drain_seconds),
    }


def _guards(limits: GatewayLimits) -> Json:
    """Return the filter that refuses requests by their headers before the body; `replies` sets the status."""
    policies = {
        guard.name: {
            "permissions": [{"and_rules": {"rules": [{"header": match} for match in guard.matches]}}],
            "principals": [{"any": True}],
        }
        for guard in guards(limits)
    }
    rules = {"action": "DENY", "policies": policies}
    return {
        "name": "envoy.filters.http.rbac",
        "typed_config": {"@type": _EXTENSIONS + "filters.http.rbac.v3.RBAC", "rules": rules},
    }


def _scripts() -> Json:
    """Return the filter of the scripts, which runs only where a virtual host or a route selects one."""
    scripts = {
        PATH_FORM_SCRIPT_NAME: {"inline_string": PATH_FORM_SCRIPT},
        OPENAI_SCRIPT_NAME: {"inline_string": OPENAI_SCRIPT},
    }
    return {
        "name": LUA_FILTER,
        "typed_config": {"@type": _EXTENSIONS + "filters.http.lua.v3.Lua", "source_codes": scripts},
    }


def _strip_internal_headers() -> Json:
    exact: list[Json] = [{"remove": name} for name in STRIPPED_FROM_REQUESTS]
    prefixed: list[Json] = [
        {"remove_on_match": {"key_matcher": {"prefix": prefix, "ignore_case": True}}} for prefix in STRIPPED_PREFIXES
    ]
    mutation = _EXTENSIONS + "http.early_header_mutation.header_mutation.v3.HeaderMutation"
    return {
        "name": "envoy.http.early_header_mutation.header_mutation",
        "typed_config": {"@type": mutation, "mutations": [*exact, *prefixed]},
    }


def _access_log(path: Path) -> Json:
    fields = {
        "time": "%START_TIME%",
        "method": "%REQ(:METHOD)%",
        "host": "%REQ(:AUTHORITY)%",
        "path": "%PATH(NQ:PATH)%",  # without the query, which may contain keys
        "path_form": f"%DYNAMIC_METADATA({OWN_METADATA}:path)%",  # the original path, if it selects the model
        "protocol": "%PROTOCOL%",
        "status": "%RESPONSE_CODE%",
        "flags": "%RESPONSE_FLAGS%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "milliseconds": "%DURATION%",
        "received": "%BYTES_RECEIVED%",
        "sent": "%BYTES_SENT%",
        "namespace": "%REQ(KNATIVE-SERVING-NAMESPACE)%",
        "revision": "%REQ(KNATIVE-SERVING-REVISION)%",
        "upstream": "%UPSTREAM_HOST%",
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "client": "%DOWNSTREAM_REMOTE_ADDRESS%",
        "request": "%REQ(X-REQUEST-ID)%",
    }
    log = {
        "@type": _EXTENSIONS + "access_loggers.file.v3.FileAccessLog",
        "path": str(path),
        "log_format": {"json_format": fields},
    }
    other_host = {"name": ":authority", "string_match": {"suffix": VERSION_DOMAIN}, "invert_match": True}
    no_answer = {"comparison": {"op": "GE", "value": {"default_value": 201, "runtime_key": "knodel.none"}}}
    all_but_probes = {"filters": [{"header_filter": {"header": other_host}}, {"status_code_filter": no_answer}]}
    return {"name": "envoy.access_loggers.file", "filter": {"or_filter": all_but_probes}, "typed_config": log}


def _seconds(value: float) -> str:
    return f"{value:g}s"
