"""Make the entries of Envoy's route table: weights, header matches, the path form, and direct responses.

Pure. Field names are those of `envoy.config.route.v3`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from clusters.gateway.headers import STRIPPED_FROM_REQUESTS
from clusters.gateway.openai_script import MODEL_KEY, MODEL_LIST_DOMAIN, OPENAI_PATH, OPENAI_SCRIPT_NAME, openai_script
from clusters.gateway.routes import Headers, Route, RouteSplit, VirtualHost
from clusters.net.language_models import LARGEST_BODY, LanguageModel, entries, model_list

CLUSTER: Final = "revisions"
METADATA: Final = "envoy.lb"  # the metadata namespace of Envoy's subset load balancer
SUBSET_KEY: Final = "revision"
VERSION_DOMAIN: Final = ".version.gateway.knodel.internal"
"""The domain of the Host for which the listener responds with the version of the route table in force. Each control
plane uses a secret name below it."""

PATH_FORM_DOMAIN: Final = ".path.gateway.knodel.internal"
SHORT_FORM_NAMESPACE: Final = "default"
"""The namespace of models at `/v2/models/NAME/…` and `/v1/models/NAME:predict`."""
ORIGINAL_PATH: Final = "knodel-internal-path"
"""The header with the original path, without its query, while the path form replaces it. It is removed before the
request reaches a backend."""
OWN_METADATA: Final = "knodel.gateway"
"""Metadata of requests (the original `path`, for the access log) and of endpoints (`TOKEN_KEY`)."""
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
  headers:add("{ORIGINAL_PATH}", asked)
  local metadata = handle:streamInfo():dynamicMetadata()
  metadata:set("{OWN_METADATA}", "path", asked)
  metadata:set("{OWN_METADATA}", "{MODEL_KEY}", name)
  headers:replace(":authority", host .. "{PATH_FORM_DOMAIN}")
  handle:clearRouteCache()
end
"""
"""A Lua script that selects the model by the path of a request whose Host is not that of a model:

    /namespaces/NAMESPACE/models/NAME[@TAG]/REST  → REST of the model, or of the version with the tag
    /v2/models/NAME/…, /v1/models/NAME:predict    → the same path of a model of the namespace default

Path forms as routes would double the table, and Envoy would match them one by one.
"""

OPENAI_SCRIPT: Final = openai_script(OWN_METADATA, ORIGINAL_PATH, PATH_FORM_DOMAIN, SHORT_FORM_NAMESPACE)
_OPENAI_PATHS: Final[tuple[dict[str, Any], ...]] = (
    {"path_separated_prefix": OPENAI_PATH},
    {"safe_regex": {"regex": rf"/namespaces/[a-z0-9-]+{OPENAI_PATH}(/.*)?"}},
)

_NO_CLUSTER: Final = "knodel-internal-none"  # a header that no request has

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
    """Return the metadata of an endpoint, or the match of a route, for a subset such as one revision."""
    return {"filter_metadata": {METADATA: {SUBSET_KEY: value}}}


def virtual_host(host: VirtualHost) -> Json:
    """Return the entry of the route table for a virtual host."""
    alias = (host.path_form + PATH_FORM_DOMAIN,) if host.path_form else ()
    return {
        "name": host.name,
        "domains": [*host.hosts, *alias],
        "routes": [_entry(route) for route in host.routes],
    }


def unknown_model(domain: str) -> Json:
    """Return the virtual host for every Host and path that has the form of a model but belongs to none.

    Without it, the platform's responses of `path_form` would be sent for an absent model.
    """
    domains = [f"*.{domain}", f"*{PATH_FORM_DOMAIN}", f"*{VERSION_DOMAIN}"]
    return {"name": "unknown model", "domains": domains}


def foreign_host() -> Json:
    """Return the virtual host for names that are not the gateway's, such as those of DNS rebinding."""
    return {
        "name": "foreign host",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 403}}],
    }


def path_form(hosts: Sequence[str]) -> Json:
    """Return the virtual host of the gateway's own names: responses of the platform, then models by path.

    `PATH_FORM_SCRIPT` converts the path form to a Host and selects a route again. It needs the last route to run: Envoy
    selects scripts by route, not by virtual host.
    """
    fixed = [entry for path, answer in _FIXED_ANSWERS for entry in _fixed(path, answer)]
    by_body = [_by_body(match) for match in _OPENAI_PATHS]
    return {
        "name": "path form",
        "domains": list(hosts),
        "routes": [*fixed, *by_body, {"match": {"prefix": "/"}, "direct_response": {"status": 404}}],
        "typed_per_filter_config": _script(PATH_FORM_SCRIPT_NAME),
    }


def model_lists(models: Iterable[LanguageModel]) -> list[Json]:
    """Return the virtual hosts with the lists of language models, one for each namespace that has any.

    `OPENAI_SCRIPT` selects one by its Host. The last one is that of all other namespaces, an empty list.
    """
    by_namespace: dict[str, list[LanguageModel]] = {}
    for model in models:
        by_namespace.setdefault(model.namespace, []).append(model)
    lists = [_list_host(f"models of {one}", one + MODEL_LIST_DOMAIN, by_namespace[one]) for one in sorted(by_namespace)]
    return [*lists, _list_host("no models", f"*{MODEL_LIST_DOMAIN}", ())]


def _list_host(name: str, domain: str, models: Sequence[LanguageModel]) -> Json:
    path = f"{OPENAI_PATH}/models"
    fixed = _fixed(path, model_list(models))
    for entry in (entry for model in models for entry in entries(model)):
        fixed += _fixed(f"{path}/{entry['id']}", entry)
    return {"name": name, "domains": [domain], "routes": fixed}


def _by_body(match: Json) -> Json:
    """Return a route whose requests are held until the body is complete, and then routed by `OPENAI_SCRIPT`."""
    return {
        "match": match,
        # Only a route to a cluster has a limit of its own. This one has none: without the script it responds with 404.
        "route": {"cluster_header": _NO_CLUSTER, "cluster_not_found_response_code": "NOT_FOUND"},
        "request_body_buffer_limit": LARGEST_BODY,
        "typed_per_filter_config": _script(OPENAI_SCRIPT_NAME),
    }


def _script(name: str) -> Json:
    return {LUA_FILTER: {"@type": _EXTENSIONS + "filters.http.lua.v3.LuaPerRoute", "name": name}}


def version_host(host: str, version: str) -> Json:
    """Return the virtual host `host`, which responds with the version of its route table."""
    answer = {"status": 200, "body": {"inline_string": version}}
    return {
        "name": "version",
        "domains": [host],
        "routes": [{"match": {"prefix": "/"}, "direct_response": answer}],
    }


def starting_host() -> Json:
    """Return the only virtual host before the first `apply`, which responds with 503."""
    return {
        "name": "starting",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 503}}],
    }


def _entry(route: Route) -> Json:
    path = {"prefix": "/"} if route.prefix == "/" else {"path_separated_prefix": route.prefix.rstrip("/")}
    headers = [{"name": name, "string_match": {"exact": value}} for name, value in route.match]
    entry: Json = {"match": path | ({"headers": headers} if headers else {})}
    if route.headers:
        entry["request_headers_to_add"] = _set_headers(route.headers)
    if not route.splits:
        return entry | {"direct_response": {"status": 503}}
    clusters = [_weighted(split) for split in route.splits]
    return entry | {"route": {"weighted_clusters": {"clusters": clusters}, "timeout": f"{route.timeout:g}s"}}


def _weighted(split: RouteSplit) -> Json:
    entry: Json = {"name": CLUSTER, "weight": split.percent, "metadata_match": subset(str(split.revision))}
    if split.headers:
        entry["request_headers_to_add"] = _set_headers(split.headers)
    return entry


def _set_headers(headers: Headers) -> list[Json]:
    return [_set_header(name, value) for name, value in headers]


def _set_header(name: str, value: str) -> Json:
    escaped = value.replace("%", "%%")  # Envoy reads `%` as the start of a variable
    header: Json = {"header": {"key": name, "value": escaped}}
    if name in STRIPPED_FROM_REQUESTS:  # the client's header was removed, so there is none to overwrite
        return header
    return header | {"append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}


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
