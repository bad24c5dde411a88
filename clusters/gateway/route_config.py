"""Virtual hosts → Envoy's route table entries: weights, header matches, the path form, the gateway's own answers.

Pure. Field names are those of `envoy.config.route.v3`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from clusters.gateway.headers import STRIPPED_FROM_REQUESTS
from clusters.gateway.routes import Headers, Route, Split, VirtualHost

CLUSTER: Final = "revisions"
METADATA: Final = "envoy.lb"  # the namespace in which Envoy's subset load balancer looks
SUBSET_KEY: Final = "revision"
VERSION_DOMAIN: Final = ".version.gateway.knodel.internal"
"""Below it is the Host to which the listener itself answers the version of the route table in force. Each control plane
chooses a name that callers cannot guess."""

PATH_FORM_DOMAIN: Final = ".path.gateway.knodel.internal"
SHORT_FORM_NAMESPACE: Final = "default"
"""The namespace of the models that `/v2/models/NAME/…` and `/v1/models/NAME:predict` reach."""
ASKED_PATH: Final = "knodel-internal-path"
"""Keeps the path that the caller sent, without its query, while the path form replaces it; removed before a backend
sees the request."""
OWN_METADATA: Final = "knodel.gateway"
"""Metadata of requests (`path` as the caller sent it, for the access log) and of endpoints (`TOKEN_KEY`)."""
TOKEN_KEY: Final = "token"  # noqa: S105 - a name, not a secret

LUA_FILTER: Final = "envoy.filters.http.lua"
PATH_FORM_SCRIPT_NAME: Final = "path form"
PATH_FORM_SCRIPT: Final = f"""
function envoy_on_request(handle)
  local headers = handle:headers()
  local path = headers:get(":path")
  local asked = path:match("^[^?]*")
  local host = nil
  local namespace, name, tagged, rest = path:match("^/namespaces/([a-z0-9-]+)/models/([a-z0-9-]+)([^/?]*)(.*)$")
  if namespace ~= nil then
    local tag = tagged:match("^@([a-z0-9-]+)$") or tagged:match("^%%40([a-z0-9-]+)$")
    if tag == nil and tagged ~= "" then return end
    host = (tag and tag .. "." or "") .. name .. "." .. namespace
    headers:replace(":path", rest:sub(1, 1) == "/" and rest or "/" .. rest)
  else
    name = asked:match("^/v2/models/([a-z0-9-]+)$") or asked:match("^/v2/models/([a-z0-9-]+)/")
      or asked:match("^/v1/models/([a-z0-9-]+):predict$")
    if name == nil then return end
    host = name .. ".{SHORT_FORM_NAMESPACE}"
  end
  headers:add("{ASKED_PATH}", asked)
  handle:streamInfo():dynamicMetadata():set("{OWN_METADATA}", "path", asked)
  headers:replace(":authority", host .. "{PATH_FORM_DOMAIN}")
  handle:clearRouteCache()
end
"""
"""Finds the model by the path of a request whose Host no model has:

    /namespaces/NAMESPACE/models/NAME[@TAG]/REST  → REST of the model, or of the version with the tag
    /v2/models/NAME/…, /v1/models/NAME:predict    → the same path of a model of the namespace default

As routes the path forms would double the table, and Envoy would try them one by one.
"""

PLATFORM: Final = {"name": "knodel", "version": "1", "extensions": ["binary_tensor_data", "model_repository"]}
"""Server metadata of the Open Inference Protocol for the platform as a whole (`GET /v2`)."""

_FIXED_ANSWERS: Final = (
    ("/v2", PLATFORM),
    ("/v2/health/live", {"live": True}),
    ("/v2/health/ready", {"ready": True}),
)

_EXTENSIONS: Final = "type.googleapis.com/envoy.extensions."

Json = dict[str, Any]


def subset(value: str) -> Json:
    """Metadata of an endpoint, or the wish of a route, for the endpoints of one revision."""
    return {"filter_metadata": {METADATA: {SUBSET_KEY: value}}}


def virtual_host(host: VirtualHost) -> Json:
    """The entry of the route table for one virtual host."""
    alias = (host.path_form + PATH_FORM_DOMAIN,) if host.path_form else ()
    return {
        "name": host.name,
        "domains": [*host.hosts, *alias],
        "routes": [_entry(route) for route in host.routes],
    }


def unknown_model(domain: str) -> Json:
    """The virtual host of every Host and path that has a model's form but is none's: never answered by anything else.

    Without it the platform's own answers below `path_form` would stand in for those of a model that is not there.
    """
    domains = [f"*.{domain}", f"*{PATH_FORM_DOMAIN}", f"*{VERSION_DOMAIN}"]
    return {"name": "unknown model", "domains": domains}


def foreign_host() -> Json:
    """Return the virtual host of names that are not the gateway's, as a web page has it by DNS rebinding."""
    return {
        "name": "foreign host",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 403}}],
    }


def path_form(hosts: Sequence[str]) -> Json:
    """The virtual host of the gateway's own names: the platform's own answers, then models by their path.

    `PATH_FORM_SCRIPT` turns the path form into a Host and looks for a route again. The last route is there for it to
    run at all: Envoy asks a route, not a virtual host, which script applies.
    """
    by_path = {"@type": _EXTENSIONS + "filters.http.lua.v3.LuaPerRoute", "name": PATH_FORM_SCRIPT_NAME}
    fixed = [entry for path, answer in _FIXED_ANSWERS for entry in _fixed(path, answer)]
    return {
        "name": "path form",
        "domains": list(hosts),
        "routes": [*fixed, {"match": {"prefix": "/"}, "direct_response": {"status": 404}}],
        "typed_per_filter_config": {LUA_FILTER: by_path},
    }


def version_host(host: str, version: str) -> Json:
    """Return the virtual host `host`, which answers the version of the table that it belongs to."""
    answer = {"status": 200, "body": {"inline_string": version}}
    return {
        "name": "version",
        "domains": [host],
        "routes": [{"match": {"prefix": "/"}, "direct_response": answer}],
    }


def starting_host() -> Json:
    """The one virtual host of a gateway that has not heard of the cluster yet: try again."""
    return {
        "name": "starting",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 503}}],
    }


def _entry(route: Route) -> Json:
    path = {"prefix": "/"} if route.prefix == "/" else {"path_separated_prefix": route.prefix.rstrip("/")}
    entry: Json = {"match": path | _header_matches(route.match)}
    if route.headers:
        entry["request_headers_to_add"] = _set_headers(route.headers)
    if not route.splits:
        return entry | {"direct_response": {"status": 503}}
    clusters = [_weighted(split) for split in route.splits]
    return entry | {"route": {"weighted_clusters": {"clusters": clusters}, "timeout": f"{route.timeout:g}s"}}


def _header_matches(match: Headers) -> Json:
    if not match:
        return {}
    return {"headers": [{"name": name, "string_match": {"exact": value}} for name, value in match]}


def _weighted(split: Split) -> Json:
    entry: Json = {"name": CLUSTER, "weight": split.percent, "metadata_match": subset(str(split.revision))}
    if split.headers:
        entry["request_headers_to_add"] = _set_headers(split.headers)
    return entry


def _set_headers(headers: Headers) -> list[Json]:
    return [_set_header(name, value) for name, value in headers]


def _set_header(name: str, value: str) -> Json:
    header: Json = {"header": {"key": name, "value": _escaped(value)}}
    if name in STRIPPED_FROM_REQUESTS:  # the caller's own is gone, so there is nothing to overwrite
        return header
    return header | {"append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}


def _escaped(value: str) -> str:
    """Envoy reads `%` as the start of a variable."""
    return value.replace("%", "%%")


def _fixed(path: str, answer: Mapping[str, Any]) -> list[Json]:
    json_type = {"header": {"key": "content-type", "value": "application/json"}}
    read = {"name": ":method", "string_match": {"exact": "GET"}}
    return [
        {
            "match": {"path": path, "headers": [read]},
            "direct_response": {"status": 200, "body": {"inline_string": json.dumps(answer)}},
            "response_headers_to_add": [json_type | {"append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}],
        },
        {
            "match": {"path": path},
            "direct_response": {"status": 405},
            "response_headers_to_add": [{"header": {"key": "allow", "value": "GET"}}],
        },
    ]
